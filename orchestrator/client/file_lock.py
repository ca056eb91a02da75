# SPDX-License-Identifier: Apache-2.0
"""A lock that the kernel lets go of when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

POLL_S: Final = 0.02


class LockTimeout(TimeoutError):
    """Somebody else has held the lock all the time."""


@contextmanager
def file_lock(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold ``path`` (made when it is not there) against all other processes.

    :raises LockTimeout: after ``timeout_s`` :raises OSError: the file cannot be made
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + timeout_s
    try:
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise LockTimeout(str(path))
            time.sleep(POLL_S)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
