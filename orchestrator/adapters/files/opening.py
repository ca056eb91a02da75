# SPDX-License-Identifier: Apache-2.0
"""A file that somebody names to the server: a regular one with one name, reached through no link, nothing of the
kernel's and nothing of the server's own.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.core.errors import VgpuctlError

CHUNK: Final = 1024 * 1024
_OF_THE_KERNEL: Final = ("/proc/", "/sys/", "/dev/")
"""There, even what looks like a regular file is none: /proc/self/environ holds this process' environment."""
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must not wait for a writer.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Refuse = Callable[[str, str], VgpuctlError]
"""Makes the error of a path and why it is none."""


@dataclass(frozen=True, kw_only=True)
class Readable:
    """Which files the server reads because somebody names them."""

    below: tuple[Path, ...] = (Path("/"),)
    """Directories without links in their paths."""
    never_below: Path
    """The state directory: it holds the keys, and closing SQLite's files drops the locks on them."""

    @contextmanager
    def open(self, source: str, refused: Refuse) -> Iterator[Iterator[bytes]]:
        """The file in chunks."""
        path = Path(source)
        if ".." in path.parts:
            raise refused(source, "the path goes through '..'")
        if not any(path.is_relative_to(directory) for directory in self.below):
            raise refused(
                source, "it is in no directory that the server may read files from (setting file_directories)"
            )
        try:
            descriptor = self._opened(path, lambda why: refused(source, why))
        except OSError as error:
            linked = error.errno == errno.ELOOP
            why = "it is a symbolic link" if linked else (error.strerror or "it cannot be opened")
            raise refused(source, why.lower()) from error
        try:
            _check(descriptor, lambda why: refused(source, why))
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                yield iter(lambda: file.read(CHUNK), b"")
        finally:
            os.close(descriptor)

    def _opened(self, path: Path, refused: Callable[[str], VgpuctlError]) -> int:
        """Directory after directory, so that none of them is a link or the one that is left alone."""
        own = _identity(self.never_below.stat())
        directory = os.open("/", _DIRECTORY)
        try:
            for part in path.parts[1:-1]:
                if stat.S_ISLNK(os.stat(part, dir_fd=directory, follow_symlinks=False).st_mode):
                    raise refused(f"the directory {part[:40]} in its path is a symbolic link")
                below = os.open(part, _DIRECTORY, dir_fd=directory)
                os.close(directory)
                directory = below
                if _identity(os.fstat(directory)) == own:
                    raise refused("it is in the server's own directory")
            return os.open(path.name or ".", _FILE, dir_fd=directory)
        finally:
            os.close(directory)


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def _check(descriptor: int, refused: Callable[[str], VgpuctlError]) -> None:
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        raise refused("it is not a regular file")
    if str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(_OF_THE_KERNEL):
        raise refused("it is the kernel's, not a disk's")
    if about.st_nlink != 1:
        raise refused("it has several names (hard links)")
