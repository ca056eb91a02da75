# SPDX-License-Identifier: Apache-2.0
"""A file that somebody names to the server: a regular one with one name, and nothing of the kernel's."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orchestrator.core.errors import VgpuctlError

CHUNK: Final = 1024 * 1024
_OF_THE_KERNEL: Final = ("/proc/", "/sys/", "/dev/")
"""There, even what looks like a regular file is none: /proc/self/environ holds this process' environment."""


@contextmanager
def open_file(source: str, refused: Callable[[str, str], VgpuctlError]) -> Iterator[Iterator[bytes]]:
    """A regular file in chunks; ``refused`` makes the error of a path and why it is none."""
    if ".." in Path(source).parts:
        raise refused(source, "the path goes through '..'")
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else (error.strerror or "it cannot be opened")
        raise refused(source, why.lower()) from error
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise refused(source, "it is not a regular file")
        if str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(_OF_THE_KERNEL):
            raise refused(source, "it is the kernel's, not a disk's")
        if about.st_nlink != 1:
            raise refused(source, "it has several names (hard links)")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield iter(lambda: file.read(CHUNK), b"")
    finally:
        os.close(descriptor)
