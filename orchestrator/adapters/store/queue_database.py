# SPDX-License-Identifier: Apache-2.0
"""The database of the engine's queue: a file of its own on SQLite, a schema of its own on PostgreSQL.

Nothing in it is the only copy of anything: what has to run is read from the operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pysqlite3 import dbapi2 as sqlite
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.core.errors import Retryable

_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=30000", "foreign_keys=ON")
"""NORMAL: when its machine loses power the queue may forget its last moments, and stays whole. What it forgot is queued
again, and a run of what has ended does nothing."""
_PAUSED_MS = 10_000


class QueueDatabase:
    """Connections as the queue's library needs them: it begins its transactions itself."""

    def __init__(self, url: str) -> None:
        """``url`` as SQLAlchemy writes it."""
        self.url = url
        self.engine = _sqlite(url) if make_url(url).get_backend_name() == "sqlite" else _postgresql(url)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What the database did not do, in our words.

        :raises Retryable: ``store.queue``
        """
        try:
            yield
        except SQLAlchemyError as error:
            raise Retryable("store.queue", "the queue of operations cannot be used", details=str(error)) from error

    def close(self) -> None:
        self.engine.dispose()


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
    return create_engine(url, pool_pre_ping=True, connect_args={"options": options})
