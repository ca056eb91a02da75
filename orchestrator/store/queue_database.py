# SPDX-License-Identifier: Apache-2.0
"""The database of the engine's queue: a file of its own on SQLite, a schema of its own on PostgreSQL.

Nothing in it is the only copy of anything: what has to run is read from the operations.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pysqlite3 import dbapi2 as sqlite
from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.core.errors import Retryable

_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=30000", "foreign_keys=ON")
"""NORMAL: when its machine loses power the queue may forget its last moments, and stays whole. What it forgot is queued
again, and a run of what has ended does nothing."""
_PAUSED_MS = 10_000
_SCHEMA: Final = "dbos"
"""As the library calls it."""
_OPENING: Final = 0x76677171
"""The advisory lock of who opens the queue."""
_AGAIN_S: Final = 0.1
_NOT_WHOLE: Final = frozenset({"42P01", "42703", "3F000", "42P06", "42P07", "42701", "42710"})
"""PostgreSQL, appendix A: a table, a column, a schema is undefined; or defined already, when the rest is made."""
_NOT_A_QUEUE: Final = frozenset({sqlite.SQLITE_ERROR, sqlite.SQLITE_CORRUPT, sqlite.SQLITE_NOTADB})
"""SQLite: a statement does not suit the tables, or the file is damaged."""


class QueueDatabase:
    """Connections as the queue's library needs them: it begins its transactions itself."""

    def __init__(self, url: str) -> None:
        """``url`` as SQLAlchemy writes it."""
        self.url = url
        self.engine = _sqlite(url) if make_url(url).get_backend_name() == "sqlite" else _postgresql(url)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What the database did not do, in our words.

        :raises Retryable: ``store.queue``, ``store.queue_lost``
        """
        try:
            yield
        except (SQLAlchemyError, sqlite.Error) as error:  # the driver's own: of a file that is none of SQLite's
            if _is_not_whole(getattr(error, "orig", error)):  # no waiting brings it back
                raise Retryable(
                    "store.queue_lost", "the queue of operations has lost its tables", details=str(error)
                ) from error
            raise Retryable("store.queue", "the queue of operations cannot be used", details=str(error)) from error

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other controller is inside such a block."""
        if self.engine.dialect.name != "postgresql":
            yield
            return
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            # A question that waits has a snapshot. The library makes indexes CONCURRENTLY, which waits for those.
            while not connection.execute(text(f"SELECT pg_try_advisory_lock({_OPENING})")).scalar_one():
                time.sleep(_AGAIN_S)
            try:
                yield
            finally:
                connection.execute(text(f"SELECT pg_advisory_unlock({_OPENING})"))

    def drop(self) -> None:
        """Take away what is left of it, while nobody is connected.

        :raises Retryable: ``store.queue``
        """
        if self.engine.dialect.name == "sqlite":
            for end in ("-wal", "-shm"):
                Path(f"{self.engine.url.database}{end}").unlink(missing_ok=True)
            Path(f"{self.engine.url.database}").write_bytes(b"")  # a file that is made anew has another mode
            return
        with self.errors(), self.engine.begin() as connection:
            connection.execute(text(f"DROP SCHEMA IF EXISTS {_SCHEMA} CASCADE"))

    def close(self) -> None:
        self.engine.dispose()


def _is_not_whole(error: object) -> bool:
    """``error``: of the driver."""
    code = getattr(error, "sqlite_errorcode", None)
    return getattr(error, "sqlstate", None) in _NOT_WHOLE or code in _NOT_A_QUEUE


def _sqlite(url: str) -> Engine:
    engine = create_engine(
        url, module=sqlite, connect_args={"isolation_level": "IMMEDIATE", "check_same_thread": False}
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite.Connection, _record: object) -> None:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")

    return engine


def _postgresql(url: str) -> Engine:
    # A controller that is stopped inside a transaction must not stop the others.
    options = f"-c idle_in_transaction_session_timeout={_PAUSED_MS}"
    return create_engine(url, connect_args={"options": options})
