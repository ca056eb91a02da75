# SPDX-License-Identifier: Apache-2.0
"""What a server keeps in its state directory: its lock, the identity of its files, which database it knows."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.state.keys import write_private
from orchestrator.core.errors import Conflict

_HINT = "start it again when the state directory is as it should be"


class OwnFiles:
    """Of one state directory. A directory that was moved away holds this server's lock no more: another server may
    run in what is there now."""

    def __init__(self, state: Path, names: Sequence[str]) -> None:
        self._known = {path: _identity(path) for path in (state, *(state / name for name in names))}

    def check(self) -> None:
        """:raises Conflict: ``serve.state_gone``"""
        for path, known in self._known.items():
            identity = _identity(path)
            if identity != known:
                what = "is gone" if identity is None else "was replaced"
                raise Conflict("serve.state_gone", f"{path} {what} while the server ran", hint=_HINT)


class KnownCount:
    """What had been counted in the database when a server of this state directory last did: a database that has counted
    less was restored."""

    def __init__(self, state: Path) -> None:
        self._file = state / "starts"

    def read(self) -> int:
        """0: no server of this state directory has begun yet."""
        try:
            text = self._file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return 0
        return int(text) if text.isdecimal() and len(text) < 19 else 0

    def write(self, counted: int) -> None:
        part = self._file.with_suffix(".part")
        part.write_text(f"{counted}\n", encoding="ascii")
        part.replace(self._file)


class LastBackup:
    """When the last backup of this state directory was made: the time of an empty file."""

    def __init__(self, state: Path) -> None:
        self._file = state / "last_backup"

    def made(self) -> None:
        """Just now."""
        self._file.touch(mode=0o600)

    def at(self) -> float:
        """Seconds since the epoch; 0: none was."""
        try:
            return self._file.stat().st_mtime
        except OSError:
            return 0.0


@dataclass(frozen=True)
class KnownRecord:
    """Of the audit. ``settled``: what a person had settled last of the database when it was written."""

    settled: int
    sequence: int
    proof: str


class NewestRecord:
    """The last audit record that a server of this state directory has committed: a database without it has forgotten
    what that server had promised. Written in place: it is one for each change that somebody asks for."""

    def __init__(self, state: Path) -> None:
        self._file = state / "newest_record"
        self._lock = threading.Lock()
        self._newest = 0

    def read(self) -> KnownRecord | None:
        """None: there was none yet, or its line is not whole."""
        try:
            words = self._file.read_text(encoding="ascii").split()
        except (OSError, UnicodeDecodeError):
            return None
        if len(words) != 3 or not all(word.isdecimal() for word in words[:2]):
            return None
        return KnownRecord(int(words[0]), int(words[1]), words[2])

    def write(self, record: KnownRecord) -> None:
        line = f"{record.settled:020d} {record.sequence:020d} {record.proof}\n"
        with self._lock:
            if record.sequence > self._newest:
                self._newest = record.sequence
                descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    os.pwrite(descriptor, line.encode("ascii"), 0)
                finally:
                    os.close(descriptor)


class AuditHead:
    """Implements ports/files.NotedHead in the state directory."""

    def __init__(self, state: Path) -> None:
        self._file = state / "secrets" / "audit_head"

    def read(self) -> str | None:
        try:
            return self._file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None

    def write(self, head: str) -> None:
        write_private(self._file, f"{head}\n".encode("ascii"))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


class ExecutorLock:
    """Held until :meth:`release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        """:raises Conflict: ``serve.already_running``"""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise Conflict(
                "serve.already_running",
                "another server uses this state directory",
                hint="stop it, or give this one a VGPUCTL_STATE of its own",
            ) from error

    def release(self) -> None:
        os.close(self._descriptor)


def controller_name(state: Path) -> str:
    """Host name, and which of its state directories."""
    place = hashlib.sha256(str(state.resolve()).encode()).hexdigest()
    return f"{socket.gethostname()[:63]}-{place[:8]}"
