# SPDX-License-Identifier: Apache-2.0
"""Connections to the database: how they begin transactions, how many there are, what their errors mean to us."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from psycopg.types.numeric import Int8Dumper
from pydantic_core import from_json
from pysqlite3 import dbapi2 as sqlite
from sqlalchemy import Connection, Engine, NullPool, RootTransaction, create_engine, event, make_url
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, OperationalError

from orchestrator.core.errors import Fatal, Retryable, WorldError
from orchestrator.store.sqlite.wal import MAX_PAGES
from orchestrator.store.statements import execute_text

BUSY_TIMEOUT_MS = 30_000
_PAUSED_MS = 10_000
_LOCK_MS = BUSY_TIMEOUT_MS // 2
"""Longer than a paused holder is left alone: whoever waits in vain ends it, and asks once more."""
_STATEMENT_MS = 60_000
_WRITERS = 0x76677075
"""The advisory lock that lets writers on PostgreSQL come one after the other, as SQLite's do by themselves."""
_MOST: Final = 15
_MAX_PREPARED: Final = 500
"""Statements that a connection to PostgreSQL has prepared; each takes the database some memory."""
Mode = Literal["reading", "alone", "beside claims"]
_BEGINNINGS: Final[dict[str, str]] = {
    "reading": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "alone": f"BEGIN; SELECT pg_advisory_xact_lock({_WRITERS})",
    "beside claims": f"BEGIN; SELECT pg_advisory_xact_lock_shared({_WRITERS})",
}
"""On PostgreSQL. Each is one question to it."""
_WAITED_IN_VAIN = "55P03"
_END_PAUSED: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
AND state LIKE 'idle in transaction%%' AND state_change < clock_timestamp() - %s * interval '1 ms'
"""
_OTHERS_HOLD_IT = frozenset({"40001", "40P01", "55P03", "57014"})
_SERVER_GOES = frozenset({"25P03", "57P01", "57P02", "57P03"})
_READ_ONLY = frozenset({"25006"})
_DAMAGED = frozenset({"XX001", "XX002"})
_CANNOT = frozenset({"53", "58"})
"""Classes (PostgreSQL, appendix A): it has no disk, memory or connections left; its disk fails."""
_SOON: Final = "ask again in a moment"


class Connections:
    """Those of one process. They stay open between transactions: the library's own pool takes three times as long to
    hand one out and to take it back as a transaction takes to begin and to end."""

    def __init__(self, url: str) -> None:
        """``url`` as SQLAlchemy writes it."""
        self.engine = _engine(url)
        self.patience_s = BUSY_TIMEOUT_MS / 1000
        self._free = threading.BoundedSemaphore(_MOST)
        self._idle: list[Connection] = []

    @contextmanager
    def transaction(self, how: Mode) -> Iterator[Connection]:
        """Commits at the end of the block, rolls back when it raises.

        :raises Retryable: ``store.busy``, ``store.connection_lost``, ``store.unavailable``
        :raises Fatal: ``store.damaged``
        """
        if not self._free.acquire(timeout=self.patience_s):
            raise busy(f"{_MOST} connections are in use")
        try:
            with self._begun(how) as connection:
                yield connection
        except DBAPIError as error:
            self._ended_paused(error)
            raise _our_error(error) or error from error
        finally:
            self._free.release()

    @contextmanager
    def _begun(self, how: Mode) -> Iterator[Connection]:
        try:
            connection, transaction = self._begin(how)
        except DBAPIError as error:
            if not self._ended_paused(error):
                raise
            connection, transaction = self._begin(how)
        try:
            with transaction:
                yield connection
        finally:
            if connection.invalidated or transaction.is_active:
                connection.close()
            else:
                self._idle.append(connection)

    def _begin(self, how: Mode) -> tuple[Connection, RootTransaction]:
        """A kept connection that died is found out here, not by a question before each use. Those that are as old are
        closed with it, so the second one is new."""
        connection = self._kept() or self.engine.connect()
        try:
            return connection, connection.execution_options(how=how).begin()
        except DBAPIError as error:
            connection.close()
            if not error.connection_invalidated:
                raise
        self._close_idle()
        connection = self.engine.connect()
        return connection, connection.execution_options(how=how).begin()

    def _ended_paused(self, error: DBAPIError) -> bool:
        """Whether ``error`` was a wait for nothing, and transactions that have been idle for too long were ended.

        The database's own limit does not see all of them: PostgreSQL stops its clock at whatever comes after an
        answer, and the driver sends a Flush after the end of a pipeline (as executemany is run), which nothing
        follows."""
        if getattr(error.orig, "sqlstate", None) != _WAITED_IN_VAIN:
            return False
        with self.engine.connect().execution_options(how="reading") as connection:
            ended = connection.exec_driver_sql(_END_PAUSED, (_PAUSED_MS,)).rowcount
        return ended > 0

    def _kept(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:  # others were faster, or there is none
            return None

    def _close_idle(self) -> None:
        while (connection := self._kept()) is not None:
            connection.close()

    def close(self) -> None:
        self._close_idle()
        self.engine.dispose()


def _our_error(error: DBAPIError) -> WorldError | None:
    """What the database did not do; None for mistakes of ours, which must show as they are."""
    text = str(error.orig)
    state = getattr(error.orig, "sqlstate", None) or ""
    closed = isinstance(error, InterfaceError) and "closed" in text  # found out before anything was sent
    if error.connection_invalidated or closed or state in _SERVER_GOES or state.startswith("08"):
        return Retryable("store.connection_lost", "the connection to the database was lost", details=text, hint=_SOON)
    if state in _OTHERS_HOLD_IT or (isinstance(error, OperationalError) and ("locked" in text or "busy" in text)):
        return busy(text)
    if state in _DAMAGED or type(error) is DatabaseError:
        hint = "stop the server and restore the newest backup: docs/howto/back-up.md"
        return Fatal("store.damaged", "the database is damaged", details=text, hint=hint)
    if state in _READ_ONLY or state[:2] in _CANNOT or isinstance(error, OperationalError):
        return Retryable(
            "store.unavailable",
            "the database cannot be used",
            details=text,
            hint="is its disk full or read-only, does its server run?",
        )
    return None


def busy(details: str) -> Retryable:
    return Retryable("store.busy", "the database is busy", details=details, hint=_SOON)


def _engine(url: str) -> Engine:
    if make_url(url).get_backend_name() == "sqlite":
        return _sqlite(url)
    return _postgresql(url)


def _postgresql(url: str) -> Engine:
    settings = {
        "lock_timeout": _LOCK_MS,
        # One that is stopped while it reads an answer holds what it has locked, and is not idle to the database.
        "statement_timeout": _STATEMENT_MS,
        # A controller that is stopped inside a transaction must not stop the others.
        "idle_in_transaction_session_timeout": _PAUSED_MS,
    }
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    engine = create_engine(url, connect_args={"options": options}, json_deserializer=from_json, poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.autocommit = True  # the driver would ask for each beginning by itself, and wait for its answer
        connection.adapters.register_dumper(int, Int8Dumper)  # one plan for numbers of all sizes
        connection.prepare_threshold = 1
        connection.prepared_max = _MAX_PREPARED

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        execute_text(connection, _BEGINNINGS[connection.get_execution_options().get("how", "alone")], prepare=False)

    @event.listens_for(engine, "commit")
    def commit(connection: Connection) -> None:
        execute_text(connection, "COMMIT", prepare=False)  # the driver then finds nothing to commit

    return engine


def _sqlite(url: str) -> Engine:
    engine = create_engine(
        url,
        module=sqlite,
        json_deserializer=from_json,  # thrice as fast as the standard library's
        poolclass=NullPool,
        connect_args={"check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite.Connection, _record: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        for pragma in (
            "journal_mode=WAL",
            "synchronous=NORMAL",  # a commit is on disk once it was flushed (store/sqlite/wal.py)
            f"wal_autocheckpoint={MAX_PAGES}",
            f"busy_timeout={BUSY_TIMEOUT_MS}",
            "foreign_keys=ON",
            "secure_delete=ON",  # a key that was destroyed is in no free page; some builds of SQLite leave it there
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A deferred transaction that turns into a writer fails at once when another one is writing.
        how = connection.get_execution_options().get("how", "alone")
        execute_text(connection, "BEGIN" if how == "reading" else "BEGIN IMMEDIATE")

    return engine
