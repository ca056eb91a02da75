# SPDX-License-Identifier: Apache-2.0
"""Opens the database, brings its schema up to date, hands out transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Final, Literal

from cryptography.fernet import Fernet
from pydantic_core import from_json
from pysqlite3 import dbapi2 as sqlite
from sqlalchemy import Connection, Engine, RootTransaction, create_engine, event, insert, make_url, select, update
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as NoneFree

from orchestrator.adapters.store.audit_rows import SqlAudit
from orchestrator.adapters.store.controller_rows import SqlControllers
from orchestrator.adapters.store.driver_rows import SqlDriverBundles, SqlDriverLocks
from orchestrator.adapters.store.finding_rows import SqlFindings
from orchestrator.adapters.store.fleet_rows import SqlFleet
from orchestrator.adapters.store.host_rows import ParsedSnapshots, SqlHosts
from orchestrator.adapters.store.listeners import Listeners
from orchestrator.adapters.store.look_rows import SqlLooks
from orchestrator.adapters.store.operation_rows import SqlOperations
from orchestrator.adapters.store.schema import bring_up_to_date
from orchestrator.adapters.store.small_rows import SqlImages, SqlNetworks, SqlOfferings, SqlSecrets
from orchestrator.adapters.store.tables import meta
from orchestrator.adapters.store.tenant_rows import SqlPolicies, SqlQuotas, SqlRequestKeys, SqlTenants, SqlTokens
from orchestrator.adapters.store.turn import Turn
from orchestrator.adapters.store.usage_rows import SqlUsage
from orchestrator.adapters.store.vm_rows import SqlClaims, SqlVms
from orchestrator.core.audit import audit_key
from orchestrator.core.errors import Conflict, Fatal, Retryable, WorldError

_BUSY_TIMEOUT_MS = 30_000
_PAUSED_MS = 10_000
_STATEMENT_MS = 60_000
_WRITERS = 0x76677075
"""The advisory lock that lets writers on PostgreSQL come one after the other, as SQLite's do by themselves."""
_STARTS = "starts"
_APPENDED_KEPT = 100_000
_Mode = Literal["reading", "alone", "beside claims"]
_BEGINNINGS: Final[dict[str, str]] = {
    "reading": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "alone": f"SELECT pg_advisory_xact_lock({_WRITERS})",
    "beside claims": f"SELECT pg_advisory_xact_lock_shared({_WRITERS})",
}
_OTHERS_HOLD_IT = frozenset({"40001", "40P01", "55P03", "57014"})
_SERVER_GOES = frozenset({"25P03", "57P01", "57P02", "57P03"})


class SqlTransaction:
    """One connection inside one transaction, as the repositories of ports/store."""

    def __init__(self, connection: Connection, cipher: Fernet, parsed: ParsedSnapshots, audited: bytes) -> None:
        self.connection = connection
        self.usage = SqlUsage(connection)
        self.hosts = SqlHosts(connection, self.usage, parsed)
        self.looks = SqlLooks(connection, parsed)
        self.vms = SqlVms(connection, self.usage)
        self.claims = SqlClaims(connection, self.usage)
        self.fleet = SqlFleet(connection, self.usage, self.claims)
        self.operations = SqlOperations(connection)
        self.controllers = SqlControllers(connection)
        self.images = SqlImages(connection)
        self.networks = SqlNetworks(connection)
        self.offerings = SqlOfferings(connection)
        self.driver_bundles = SqlDriverBundles(connection)
        self.driver_locks = SqlDriverLocks(connection)
        self.secrets = SqlSecrets(connection, cipher)
        self.audit = SqlAudit(connection, audited)
        self.findings = SqlFindings(connection)
        self.tenants = SqlTenants(connection)
        self.tokens = SqlTokens(connection)
        self.quotas = SqlQuotas(connection)
        self.policies = SqlPolicies(connection)
        self.request_keys = SqlRequestKeys(connection)


class SqlStore:
    """Implements ports/store.Store. ``url`` as SQLAlchemy writes it; ``new_site`` names a database made now."""

    def __init__(self, url: str, *, key: bytes, new_site: str) -> None:
        self._engine = _engine(url)
        self._cipher = Fernet(key)
        self._audited = audit_key(key)
        self._appended: deque[tuple[int, str]] = deque(maxlen=_APPENDED_KEPT)
        self._parsed = ParsedSnapshots()
        self._listeners = Listeners()
        alone = make_url(url).get_backend_name() == "sqlite"
        self._turn: AbstractContextManager[None] = Turn(_BUSY_TIMEOUT_MS / 1000) if alone else nullcontext()
        with self._connect("alone") as connection:
            bring_up_to_date(connection)
            if _site_of(connection) is None:
                connection.execute(insert(meta).values(key="site", value=new_site))

    @cached_property
    def site(self) -> str:
        """Id of this database, drawn when it was made."""
        with self._connect("reading") as connection:
            site = _site_of(connection)
        if site is None:
            raise Fatal("store.damaged", "the database has lost its site id", hint="restore it from a backup")
        return site

    def count_start(self, known: int) -> int:
        """A server begins; how many have. ``known``: what this returned the last time to whoever asks.

        :raises Conflict: ``store.restored``: the database has forgotten some of them
        """
        with self._connect("alone") as connection:
            starts = _starts_of(connection)
            if starts < known:
                raise Conflict(
                    "store.restored",
                    "the database was restored: it is older than what this server has seen of it",
                    hint="'vgpuctl server settle-restored' lets the hosts obey it and stops what had not ended",
                    details=f"{known} starts seen, {starts} stored",
                )
            _put_starts(connection, starts + 1)
        return starts + 1

    def starts(self) -> int:
        """How many servers have begun on it."""
        with self._connect("reading") as connection:
            return _starts_of(connection)

    def settle_starts(self, known: int) -> None:
        """A person has said that the restored database is the one to go on with."""
        with self._connect("alone") as connection:
            _put_starts(connection, max(_starts_of(connection), known) + 1)

    @contextmanager
    def begin(self) -> Iterator[SqlTransaction]:
        """Commits at the end of the block, rolls back when it raises. Writers come one after the other."""
        with self._writing("alone") as tx:
            yield tx

    @contextmanager
    def claim(self) -> Iterator[SqlTransaction]:
        """Like :meth:`begin`; on PostgreSQL beside other claims, and never beside anything else that writes."""
        with self._writing("beside claims") as tx:
            yield tx

    @contextmanager
    def _writing(self, how: _Mode) -> Iterator[SqlTransaction]:
        with self._turn, self._connect(how) as connection:
            tx = SqlTransaction(connection, self._cipher, self._parsed, self._audited)
            yield tx
            tx.usage.stamp()
        self._appended.extend(tx.audit.appended)
        self._listeners.tell(tx.operations.changed)

    def appended(self) -> tuple[tuple[int, str], ...]:
        """Number and proof of the audit records that this process has committed since it was asked the last time."""
        return tuple(self._appended.popleft() for _ in range(len(self._appended)))

    def listen(self, operation_id: str, told: Callable[[], None]) -> Callable[[], None]:
        """``told`` is called after each commit of this process that changes the operation, on the thread that commits;
        it may not wait. Calling what is returned ends it."""
        return self._listeners.add(operation_id, told)

    @contextmanager
    def read(self) -> Iterator[SqlTransaction]:
        """One consistent view, never waiting for writers."""
        with self._connect("reading") as connection:
            yield SqlTransaction(connection, self._cipher, self._parsed, self._audited)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _connect(self, how: _Mode) -> Iterator[Connection]:
        try:
            connection, transaction = self._begun(how)
            with connection, transaction:
                yield connection
        except DBAPIError as error:
            raise _our_error(error) or error from error
        except NoneFree as error:  # all connections of the pool were in use for too long
            raise _busy(str(error)) from error

    def _begun(self, how: _Mode) -> tuple[Connection, RootTransaction]:
        """A kept connection that died is found out here, not by a question before each use. The pool drops all that
        are as old with it, so the second one is new."""
        connection = self._engine.connect().execution_options(how=how)
        try:
            return connection, connection.begin()
        except DBAPIError as error:
            connection.close()
            if not error.connection_invalidated:
                raise
        connection = self._engine.connect().execution_options(how=how)
        return connection, connection.begin()


def _our_error(error: DBAPIError) -> WorldError | None:
    """What the database did not do; None for mistakes of ours, which must show as they are."""
    text = str(error.orig)
    state = getattr(error.orig, "sqlstate", None) or ""
    if error.connection_invalidated or state in _SERVER_GOES or state.startswith("08"):
        return Retryable("store.connection_lost", "the connection to the database was lost", details=text)
    if state in _OTHERS_HOLD_IT or (isinstance(error, OperationalError) and ("locked" in text or "busy" in text)):
        return _busy(text)
    if isinstance(error, OperationalError) or type(error) is DatabaseError:
        return Fatal(
            "store.unavailable",
            "the database cannot be used",
            details=text,
            hint="is its disk full or read-only, is the file damaged, does the server run?",
        )
    return None


def _busy(details: str) -> Retryable:
    return Retryable("store.busy", "the database is busy", details=details)


def _site_of(connection: Connection) -> str | None:
    return connection.execute(select(meta.c.value).where(meta.c.key == "site")).scalar_one_or_none()


def _starts_of(connection: Connection) -> int:
    return int(connection.execute(select(meta.c.value).where(meta.c.key == _STARTS)).scalar_one_or_none() or 0)


def _put_starts(connection: Connection, starts: int) -> None:
    if connection.execute(update(meta).where(meta.c.key == _STARTS).values(value=str(starts))).rowcount == 0:
        connection.execute(insert(meta).values(key=_STARTS, value=str(starts)))


def _engine(url: str) -> Engine:
    if make_url(url).get_backend_name() == "sqlite":
        return _sqlite(url)
    return _postgresql(url)


def _postgresql(url: str) -> Engine:
    settings = {
        "lock_timeout": _BUSY_TIMEOUT_MS,
        # One that is stopped while it reads an answer holds what it has locked, and is not idle to the database.
        "statement_timeout": _STATEMENT_MS,
        # A controller that is stopped inside a transaction must not stop the others.
        "idle_in_transaction_session_timeout": _PAUSED_MS,
    }
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    engine = create_engine(url, connect_args={"options": options}, json_deserializer=from_json)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(_BEGINNINGS[connection.get_execution_options().get("how", "alone")])

    return engine


def _sqlite(url: str) -> Engine:
    engine = create_engine(url, module=sqlite, json_deserializer=from_json)  # thrice as fast as the standard library's

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite.Connection, _record: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            f"busy_timeout={_BUSY_TIMEOUT_MS}",
            "foreign_keys=ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A deferred transaction that turns into a writer fails at once when another one is writing.
        how = connection.get_execution_options().get("how", "alone")
        connection.exec_driver_sql("BEGIN" if how == "reading" else "BEGIN IMMEDIATE")

    return engine
