# SPDX-License-Identifier: Apache-2.0
"""Writers of one process come one after the other, woken by the one before.

SQLite has no queue of writers: one that finds another at work sleeps and looks again, up to a tenth of a second each
time, and finds the next one at work.
"""

from __future__ import annotations

import threading
from types import TracebackType

from orchestrator.core.errors import Retryable


class WriterLock:
    """A context for one writing transaction at a time."""

    def __init__(self, patience_s: float) -> None:
        self._lock = threading.Lock()
        self._patience_s = patience_s

    def __enter__(self) -> None:
        """:raises Retryable: ``store.busy``"""
        if not self._lock.acquire(timeout=self._patience_s):
            raise Retryable("store.busy", "the database is busy", details=f"no turn within {self._patience_s:g} s")

    def __exit__(self, _kind: object, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._lock.release()
