# SPDX-License-Identifier: Apache-2.0
"""Whether the files that a server began with are still what is found at their names, and which database it knows."""

from __future__ import annotations

from collections.abc import Sequence
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
            found = _identity(path)
            if found != known:
                what = "is gone" if found is None else "was replaced"
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
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
