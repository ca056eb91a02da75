# SPDX-License-Identifier: Apache-2.0
"""Commits of one SQLite file are put on disk together: whoever has committed while a flush went on needs one more, all
of them the same."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from orchestrator.core.errors import Retryable


class Flush:
    """Of the write-ahead log, which SQLite leaves to the kernel with ``synchronous=NORMAL`` (sqlite.org/wal.html).
    Its frames lie in the order of their commits, so a flush is one of everything that was committed before."""

    def __init__(self, database: Path) -> None:
        self._log = database.with_name(f"{database.name}-wal")
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._done = 0
        self.asked = 0
        """How often; a number that grows."""

    def __call__(self) -> None:
        """Returns once what was committed before is on disk.

        :raises Retryable: ``store.unavailable``: it may be lost when the machine loses power now
        """
        with self._lock:
            self.asked += 1
            mine = self.asked
        with self._one_at_a_time:
            if self._done >= mine:
                return
            with self._lock:
                asked = self.asked
            try:
                self._flush()
            except OSError as error:
                hint = "is its disk full or read-only?"
                raise Retryable(
                    "store.unavailable", "the database cannot be used", details=str(error), hint=hint
                ) from error
            self._done = asked

    def _flush(self) -> None:
        """Opened anew each time: whoever closes the last connection writes the log to the database and removes it."""
        try:
            log = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.fdatasync(log)
        finally:
            os.close(log)
