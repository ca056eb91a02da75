# SPDX-License-Identifier: Apache-2.0
"""Opens the database, brings its schema up to date, hands out transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path

from sqlalchemy import Connection, insert, make_url, select, update

from orchestrator.core.actions.epoch import restored_epoch
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.operation import Watched
from orchestrator.core.tenancy.audit import audit_key
from orchestrator.store.connections import Connections, Mode
from orchestrator.store.hosts import ParsedSnapshots
from orchestrator.store.listeners import Listeners
from orchestrator.store.request_origin import note_recorded
from orchestrator.store.schema import bring_up_to_date, check_unchanged, newest_revision
from orchestrator.store.secret_box import SecretBox
from orchestrator.store.secrets import Secrets
from orchestrator.store.sqlite.checkpoints import Checkpoints
from orchestrator.store.sqlite.flush import Flush
from orchestrator.store.sqlite.writer_lock import Turn
from orchestrator.store.statements import Statements
from orchestrator.store.tables import meta
from orchestrator.store.transaction import Transaction

_COUNTED = "starts"
_SETTLED = "settled"
_APPENDED_KEPT = 100_000


class Store:
    """Opens the database at ``url``, as SQLAlchemy writes it; ``key``: the ring of core/tenancy/key_ring.py;
    ``new_site`` names a database made now."""

    def __init__(self, url: str, *, key: bytes, new_site: str) -> None:
        self._connections = Connections(url)
        self._box = SecretBox(key)
        self._audited = audit_key(key)
        self._appended: deque[tuple[int, str]] = deque(maxlen=_APPENDED_KEPT)
        self.when_recorded: Callable[[int, str], None] = lambda _sequence, _proof: None
        """Called after each commit with an audit record of this process: number and proof of the last one."""
        self._parsed = ParsedSnapshots()
        self._listeners = Listeners()
        place = make_url(url)
        alone = place.get_backend_name() == "sqlite"
        self._turn: AbstractContextManager[None] = Turn(self._connections.patience_s) if alone else nullcontext()
        self._flush: Callable[[], None] = Flush(Path(str(place.database))) if alone else _flushed_already
        self._checkpoints = Checkpoints(Path(str(place.database)), self._turn) if alone else None
        self._revision = newest_revision()
        with self._alone() as connection:
            bring_up_to_date(connection)
            Secrets(Statements(connection), self._box).bind()
            if _site_of(connection) is None:
                connection.execute(insert(meta).values(key="site", value=new_site))

    @cached_property
    def site(self) -> str:
        """Id of this database, drawn when it was made."""
        with self._connections.transaction("reading") as connection:
            site = _site_of(connection)
        if site is None:
            raise Fatal("store.damaged", "the database has lost its site id", hint="restore it from a backup")
        return site

    def count(self, known: int) -> int:
        """One more, whoever counts: servers do when they begin, and when something was written since. ``known``: what
        this returned the last time to whoever asks.

        :raises Conflict: ``store.restored``: the database has forgotten some of it
        """
        with self._alone() as connection:
            counted = _counted_in(connection)
            if counted < known:
                raise Conflict(
                    "store.restored",
                    "the database was restored: it is older than what this server has seen of it",
                    hint="'vgpuctl server settle-restored' lets the hosts obey it and stops what had not ended",
                    details=f"{known} counted here, {counted} there",
                )
            _put(connection, _COUNTED, counted + 1)
        return counted + 1

    def counted(self) -> int:
        """How often servers have counted.

        :raises Conflict: ``store.schema_changed``: one of them was newer than this program
        """
        with self._connections.transaction("reading") as connection:
            check_unchanged(connection, self._revision)
            return _counted_in(connection)

    def settle(self, known: int, now: float) -> None:
        """A person has said that the restored database is the one to go on with: for every controller, whatever it had
        seen of it before. ``now``: seconds since 1970, which no count that began earlier has reached."""
        with self._alone() as connection:
            settled = restored_epoch(max(_counted_in(connection), known), now)
            _put(connection, _COUNTED, settled)
            _put(connection, _SETTLED, settled)

    def settled(self) -> int:
        """What had been counted when a person last said so; 0: nobody ever had to."""
        with self._connections.transaction("reading") as connection:
            return _number_in(connection, _SETTLED)

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """Commits at the end of the block, rolls back when it raises. Writers come one after the other."""
        with self._writing("alone") as tx:
            yield tx

    @contextmanager
    def claim(self) -> Iterator[Transaction]:
        """Like :meth:`begin`; on PostgreSQL beside other claims, and never beside anything else that writes."""
        with self._writing("beside claims") as tx:
            yield tx

    @contextmanager
    def _writing(self, how: Mode) -> Iterator[Transaction]:
        with self._turn, self._connections.transaction(how) as connection:
            tx = Transaction(connection, self._box, self._parsed, self._audited)
            yield tx
            tx.usage.stamp()
            tx.tenant_usage.write(within_limits=how == "beside claims")
        self._keep()
        self._appended.extend(tx.audit.appended)
        note_recorded(len(tx.audit.appended))
        if tx.audit.appended:
            self.when_recorded(*tx.audit.appended[-1])
        self._listeners.tell(tx.operations.changed)

    @contextmanager
    def _alone(self) -> Iterator[Connection]:
        with self._connections.transaction("alone") as connection:
            yield connection
        self._keep()

    def _keep(self) -> None:
        """What was committed. Others write meanwhile, and theirs is flushed together."""
        self._flush()
        if self._checkpoints is not None:
            self._checkpoints.committed()

    def appended(self) -> tuple[tuple[int, str], ...]:
        """Number and proof of the audit records that this process has committed since it was asked the last time."""
        return tuple(self._appended.popleft() for _ in range(len(self._appended)))

    def listen(self, operation_id: str, told: Callable[[Watched | None], None]) -> Callable[[], None]:
        """``told`` is called after each commit of this process that changes the operation, on the thread that commits;
        it may not wait. It is given the operation as it was committed, or None when that has to be read. Calling what
        is returned ends it."""
        return self._listeners.add(operation_id, told)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """One consistent view, never waiting for writers."""
        with self._connections.transaction("reading") as connection:
            yield Transaction(connection, self._box, self._parsed, self._audited)

    def close(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._connections.close()


def _flushed_already() -> None:
    """PostgreSQL does so itself, several commits at a time."""


def _site_of(connection: Connection) -> str | None:
    return connection.execute(select(meta.c.value).where(meta.c.key == "site")).scalar_one_or_none()


def _counted_in(connection: Connection) -> int:
    return _number_in(connection, _COUNTED)


def _number_in(connection: Connection, key: str) -> int:
    return int(connection.execute(select(meta.c.value).where(meta.c.key == key)).scalar_one_or_none() or 0)


def _put(connection: Connection, key: str, number: int) -> None:
    if connection.execute(update(meta).where(meta.c.key == key).values(value=str(number))).rowcount == 0:
        connection.execute(insert(meta).values(key=key, value=str(number)))
