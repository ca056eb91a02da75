# SPDX-License-Identifier: Apache-2.0
"""A file that lines are added to, for whoever collects logs: opened each time, so it may be renamed (logrotate)."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class AppendedFile:
    """Of one writer. ``max_bytes``: one that has more is renamed to ``PATH.1``, in place of the one before."""

    path: Path
    max_bytes: int

    def add(self, lines: bytes) -> None:
        """All of them or none.

        :raises OSError: it cannot be written, or is no regular file
        """
        with suppress(FileNotFoundError):
            before = self.path.lstat()
            if stat.S_ISREG(before.st_mode) and before.st_size > self.max_bytes:
                self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        # O_NONBLOCK: opening a FIFO must not wait for somebody to read it.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o600)
        try:
            is_now = os.fstat(descriptor)
            if not stat.S_ISREG(is_now.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            if os.write(descriptor, lines) < len(lines):  # a write that fails has written nothing
                os.ftruncate(descriptor, is_now.st_size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
