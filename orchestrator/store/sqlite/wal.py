# SPDX-License-Identifier: Apache-2.0
"""The write-ahead log of an SQLite file: commits are put on disk together, and moved into the file by a thread.

Whoever has committed while a flush went on needs one more, all of them the same. SQLite leaves moving to the commit
that makes the log long: whoever commits then waits for a thousand pages and two flushes, and so do all who write after
it. Moved beside them, it stops nobody (sqlite.org/wal.html, "Checkpointing").
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from pysqlite3 import dbapi2 as sqlite

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
                wanted = self.asked
            try:
                self._flush()
            except OSError as error:
                hint = "is its disk full or read-only?"
                raise Retryable(
                    "store.unavailable", "the database cannot be used", details=str(error), hint=hint
                ) from error
            self._done = wanted

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


EVERY: Final = 100
"""Commits from one move to the next."""
LONG: Final = 4096
"""Pages of a log, 16 MiB: it begins anew once all of it is moved, which commits that come all the time prevent. One
that has become so long is moved while nobody commits; most of it has been moved by then."""
MAX_PAGES: Final = 65_536
"""Pages of a log, 256 MiB, beyond which whoever commits moves it: the thread has failed, or a reader stays for long."""
log = logging.getLogger(__name__)


class Checkpoints:
    """Of one database, as long as it is open. ``turn``: whoever is in it writes alone."""

    def __init__(self, database: Path, turn: AbstractContextManager[None]) -> None:
        self._database = database
        self._turn = turn
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._connection: sqlite.Connection | None = None
        self._lock = threading.Lock()
        self._commits = 0
        self._under_way: Future[None] | None = None
        self._closed = False

    def committed(self) -> None:
        """Something was; waits for nothing. Looks that go on while a server ends commit after it was closed."""
        with self._lock:
            self._commits += 1
            if self._commits < EVERY or self._closed:
                return
            if self._under_way is None or self._under_way.done():
                self._commits, self._under_way = 0, self._thread.submit(self._move)

    def _move(self) -> None:
        """As much as no reader stands in the way of. What fails is tried again later, and in the end by a commit."""
        try:
            if self._connection is None:
                self._connection = self._connected()
            if _pages_moved(self._connection) > LONG:
                with self._turn:
                    _pages_moved(self._connection)
        except (sqlite.Error, Retryable) as error:
            log.warning("the log of %s was not moved into it: %s", self._database.name, error)

    def _connected(self) -> sqlite.Connection:
        """To a file that is there: one that has gone is not made anew."""
        uri = f"{self._database.absolute().as_uri()}?mode=rw"
        return sqlite.connect(uri, uri=True, check_same_thread=False)

    def close(self) -> None:
        """After the move that is under way."""
        with self._lock:
            self._closed = True
        self._thread.shutdown()
        if self._connection is not None:
            self._connection.close()


def _pages_moved(connection: sqlite.Connection) -> int:
    """How long the log is, with what had been moved before."""
    row = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(row[1])
