# SPDX-License-Identifier: Apache-2.0
"""Private copies on their way into a library of files.

What is checked is our own copy: nobody can exchange it between check and use.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.core.errors import Fatal, InvalidInput, VgpuctlError

KEPT_FREE_BYTES: Final = 256 * 1024**2
"""Of the disk that copies are made on."""
SAVE_EVERY_BYTES: Final = 64 * 1024**2
"""So often the room is looked at again, and what was written goes to the disk: who sends it sees how far it really is,
and does not wait for all of it at the end."""
ABANDONED_S: Final = 24 * 3600.0


@dataclass(frozen=True)
class Copied:
    """A copy that the library may rename into its place; what is left of it afterwards is deleted."""

    path: Path
    sha256: str
    size: int

    def as_it_is(self) -> Copied:
        """After something else was written to it."""
        with self.path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        return Copied(self.path, sha256, self.path.stat().st_size)


@dataclass(frozen=True, kw_only=True)
class Refusals:
    """How a library says what is wrong."""

    max_bytes: int
    too_large: Callable[[], VgpuctlError]
    """The error for more than that."""
    digest_differs: str
    """Code of the error for another content than was announced."""
    not_stored: str
    """Code of the error for a disk that does not take the copy."""


class PrivateCopies:
    """In the library's own directory, under names that nobody can guess."""

    def __init__(self, directory: Path, refusals: Refusals, owner: str = "") -> None:
        """``owner``: of several controllers that share the directory, this one."""
        self._directory = directory
        self._refusals = refusals
        self._owner = owner
        for leftover in directory.glob(f"{glob.escape(owner)}*.part"):
            leftover.unlink(missing_ok=True)

    @contextmanager
    def of(self, chunks: Iterator[bytes], sha256: str | None, announced: int | None = None) -> Iterator[Copied]:
        """A copy that has the given SHA-256, if one was given. ``announced``: its size in bytes, where that is known
        before; nothing is read when there is no room for it.

        :raises InvalidInput: the content has another digest; which one is told to nobody
        :raises Fatal: the disk does not take it
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()
        if announced is not None and announced > self._refusals.max_bytes:
            raise self._refusals.too_large()
        self._check_room(announced or 0)
        part = self._directory / f"{self._owner}{uuid.uuid4().hex}.part"
        try:
            copied = self._copy(chunks, part)
            if sha256 is not None and copied.sha256 != sha256.lower():
                raise InvalidInput(
                    self._refusals.digest_differs,
                    "the file does not have the given SHA-256",
                    hint="it is damaged, or the digest belongs to another file",
                )
            yield copied
        except OSError as error:
            raise Fatal(
                self._refusals.not_stored,
                "the file could not be stored",
                details=str(error),
                hint="is the disk full?",
            ) from error
        finally:
            part.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """What nobody has written to for a day was left by a controller that is gone."""
        for part in self._directory.glob("*.part"):
            with suppress(FileNotFoundError):
                if part.stat().st_mtime < time.time() - ABANDONED_S:
                    part.unlink()

    def _check_room(self, size: int) -> None:
        """The database may lie on the same disk: a file never takes the last of it."""
        free = shutil.disk_usage(self._directory).free
        if size + KEPT_FREE_BYTES > free:
            raise Fatal(
                self._refusals.not_stored,
                "the server's disk has too little room for the file",
                details=f"{free} bytes are free in {self._directory}, {KEPT_FREE_BYTES} of them are kept",
                hint="make room there, or remove images that no VM needs",
            )

    def _copy(self, chunks: Iterator[bytes], target: Path) -> Copied:
        sha256, size, unsaved = hashlib.sha256(), 0, 0
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for chunk in chunks:
                size += len(chunk)
                if size > self._refusals.max_bytes:
                    raise self._refusals.too_large()
                sha256.update(chunk)
                file.write(chunk)
                unsaved += len(chunk)
                if unsaved >= SAVE_EVERY_BYTES:
                    self._check_room(0)
                    os.fdatasync(file.fileno())
                    unsaved = 0
            file.flush()
            os.fsync(file.fileno())
        return Copied(target, sha256.hexdigest(), size)
