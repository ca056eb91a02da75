# SPDX-License-Identifier: Apache-2.0
"""One thing at a time on each VM, and on the host as a whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

HOST = "host"
"""What actions that are about no single VM wait for each other on."""


class Turns:
    """One lock per name, kept while somebody waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nobody = threading.Condition(self._lock)
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        with self._lock:
            lock, waiting = self._locks.get(name, (threading.Lock(), 0))
            self._locks[name] = (lock, waiting + 1)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                lock, waiting = self._locks[name]
                if waiting == 1:
                    del self._locks[name]
                    self._nobody.notify_all()
                else:
                    self._locks[name] = (lock, waiting - 1)

    def wait_until_none(self, limit_s: float) -> None:
        with self._nobody:
            self._nobody.wait_for(lambda: not self._locks, timeout=limit_s)
