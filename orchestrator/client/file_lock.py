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
_OPENED: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class LockTimeout(TimeoutError):
    """Somebody else has held the lock all the time."""


def lock_for_next_program(path: Path) -> int | None:
    """A descriptor that holds ``path`` and stays open in the program which this process becomes by exec; ``file_lock``
    takes it up there. None: somebody else holds it.

    :raises OSError: the file cannot be made
    """
    descriptor = os.open(path, _OPENED, 0o600)
    if not _try_lock(descriptor):
        os.close(descriptor)
        return None
    os.set_inheritable(descriptor, True)
    return descriptor


@contextmanager
def file_lock(path: Path, timeout_s: float, inherited: int | None = None) -> Iterator[None]:
    """Hold ``path`` (made when it is not there) against all other processes. ``inherited``: a descriptor of
    ``lock_for_next_program``, which this program's own children do not get.

    :raises LockTimeout: after ``timeout_s`` :raises OSError: the file cannot be made
    """
    descriptor = os.open(path, _OPENED, 0o600) if inherited is None else inherited
    os.set_inheritable(descriptor, False)
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
