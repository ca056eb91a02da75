# SPDX-License-Identifier: Apache-2.0
"""Opens the database, brings its schema up to date, hands out transactions."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, column, inspect, make_url, select, table

from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.operation import Watched
from orchestrator.core.protocol import restored_epoch
from orchestrator.core.tenancy.audit import audit_key
from orchestrator.store.audit import note_recorded
from orchestrator.store.connections import Connections, Mode
from orchestrator.store.hosts import ParsedSnapshots
from orchestrator.store.meta import SETTLED, SITE, STARTS, Meta, is_unused
from orchestrator.store.secrets import SecretBox, Secrets
from orchestrator.store.sqlite.wal import Checkpoints, Flush
from orchestrator.store.sqlite.writer_lock import WriterLock
from orchestrator.store.statements import Statements
from orchestrator.store.transaction import Transaction

if TYPE_CHECKING:
    from alembic.config import Config

_APPENDED_KEPT: Final = 100_000
Notify = Callable[[Watched | None], None]
"""Given the operation as it was committed; None: it has to be read."""

_MAX_RECENT: Final = 256
"""Changes that are kept: as many as may be committed between somebody's reading and listening."""


class Listeners:
    """Who in this process waits for changes of operations, by operation. Safe to call from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Notify]] = {}
        self._recent: OrderedDict[str, Watched | None] = OrderedDict()

    def add(self, operation_id: str, notify: Notify) -> Callable[[], None]:
        """``notify`` is called on the thread that commits, so it may not wait, and at once with what was committed
        lately: who has just read it has missed nothing. Calling what is returned ends it."""
        with self._lock:
            self._waiting.setdefault(operation_id, []).append(notify)
            changed, as_it_is = operation_id in self._recent, self._recent.get(operation_id)
        if changed:
            notify(as_it_is)

        def leave() -> None:
            with self._lock:
                left = [other for other in self._waiting.get(operation_id, []) if other is not notify]
                if left:
                    self._waiting[operation_id] = left
                else:
                    self._waiting.pop(operation_id, None)

        return leave

    def tell(self, changed: Mapping[str, Watched | None]) -> None:
        """These have changed, and everybody can read it."""
        with self._lock:
            for name, as_it_is in changed.items():
                self._recent[name] = as_it_is
                self._recent.move_to_end(name)
            while len(self._recent) > _MAX_RECENT:
                self._recent.popitem(last=False)
            waiting = [
                (notify, as_it_is) for name, as_it_is in changed.items() for notify in self._waiting.get(name, ())
            ]
        for notify, as_it_is in waiting:
            notify(as_it_is)


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
        self.when_events: Callable[[], None] = lambda: None
        """Called after each commit with events of this process, on the thread that commits; it may not wait."""
        self._parsed = ParsedSnapshots()
        self._listeners = Listeners()
        database = make_url(url)
        is_sqlite = database.get_backend_name() == "sqlite"
        self._writer_lock: AbstractContextManager[None] = (
            WriterLock(self._connections.patience_s) if is_sqlite else nullcontext()
        )
        self._flush: Callable[[], None] = Flush(Path(str(database.database))) if is_sqlite else _flushed_already
        self._checkpoints = Checkpoints(Path(str(database.database)), self._writer_lock) if is_sqlite else None
        self._revision = newest_revision()
        with self._alone() as connection:
            bring_up_to_date(connection)
            Secrets(Statements(connection), self._box).bind()
            meta = Meta(Statements(connection))
            if meta.get(SITE) is None:
                meta.put(SITE, new_site)

    @cached_property
    def site(self) -> str:
        """Id of this database, drawn when it was made."""
        with self._connections.transaction("reading") as connection:
            site = Meta(Statements(connection)).get(SITE)
        if site is None:
            raise Fatal("store.damaged", "the database has lost its site id", hint="restore it from a backup")
        return site

    def rename_unused(self, new_site: str) -> bool:
        """It is of that site from now on, if nobody has put anything into it. Whether it was so."""
        with self._alone() as connection:
            db = Statements(connection)
            if not is_unused(db):
                return False
            Meta(db).put(SITE, new_site)
        self.site = new_site
        return True

    def count(self, known: int) -> int:
        """One more, whoever counts: servers do when they begin, and when something was written since. ``known``: what
        this returned the last time to whoever asks.

        :raises Conflict: ``store.restored``: the database has forgotten some of it
        """
        with self._alone() as connection:
            meta = Meta(Statements(connection))
            counted = meta.number(STARTS)
            if counted < known:
                raise Conflict(
                    "store.restored",
                    "the database was restored: it is older than what this server has seen of it",
                    hint="'vgpuctl server settle-restored' lets the hosts obey it and stops what had not ended",
                    details=f"{known} counted here, {counted} there",
                )
            meta.put(STARTS, str(counted + 1))
        return counted + 1

    def counted(self) -> int:
        """How often servers have counted.

        :raises Conflict: ``store.schema_changed``: one of them was newer than this program
        """
        with self._connections.transaction("reading") as connection:
            check_unchanged(connection, self._revision)
            return Meta(Statements(connection)).number(STARTS)

    def settle(self, known: int, now: float) -> None:
        """A person has said that the restored database is the one to go on with: for every controller, whatever it had
        seen of it before. ``now``: seconds since 1970, which no count that began earlier has reached."""
        with self._alone() as connection:
            meta = Meta(Statements(connection))
            settled = str(restored_epoch(max(meta.number(STARTS), known), now))
            meta.put(STARTS, settled)
            meta.put(SETTLED, settled)

    def settled(self) -> int:
        """What had been counted when a person last said so; 0: nobody ever had to."""
        with self._connections.transaction("reading") as connection:
            return Meta(Statements(connection)).number(SETTLED)

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
        with self._writer_lock, self._connections.transaction(how) as connection:
            tx = Transaction(connection, self._box, self._parsed, self._audited)
            yield tx
            tx.usage.stamp()
            tx.tenant_usage.write(within_limits=how == "beside claims")
            happened = tx.events.write(time.time())
        self._keep()
        self._appended.extend(tx.audit.appended)
        note_recorded(len(tx.audit.appended))
        if tx.audit.appended:
            self.when_recorded(*tx.audit.appended[-1])
        self._listeners.tell(tx.operations.changed)
        if happened:
            self.when_events()

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

    def listen(self, operation_id: str, notify: Notify) -> Callable[[], None]:
        """``notify`` is called after each commit of this process that changes the operation, on the thread that
        commits; it may not wait. Calling what is returned ends it."""
        return self._listeners.add(operation_id, notify)

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


_MIGRATIONS: Final = Path(__file__).with_name("migrations")
_VERSION: Final = select(table("alembic_version", column("version_num")).c.version_num)


def alembic_config(connection: Connection) -> Config:
    """Alembic's settings for this connection; env.py takes it from the attributes."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def check_unchanged(connection: Connection, revision: str) -> None:
    """Another program may have brought the schema on while this one ran with ``revision``; an older one than that is
    that of a database that was restored, which is found out otherwise.

    :raises Conflict: ``store.schema_changed``
    """
    current = connection.execute(_VERSION).scalar_one_or_none()
    if current is not None and current > revision:
        raise Conflict(
            "store.schema_changed",
            f"another server has brought the database from schema {revision} to {current}",
            hint="install its version of vgpuctl here too, then start this server again",
        )


def bring_up_to_date(connection: Connection) -> None:
    """Upgrade to this program's schema inside the connection's transaction: all of it or nothing.

    The library is slow to import, and most servers start on a database that needs nothing of it.

    :raises Conflict: ``store.newer_schema``, ``store.older_schema``
    """
    exists = inspect(connection).has_table("alembic_version")
    current = connection.execute(_VERSION).scalar_one_or_none() if exists else None
    known = _revisions()
    if current == known[-1]:
        return
    if current is not None and current < known[0]:
        raise Conflict(
            "store.older_schema",
            f"the database has schema {current}, older than {known[0]}, the first that can be brought up to date",
            hint="use the vgpuctl that wrote it, or move the database away and start with an empty one",
        )
    if current is not None and current not in known:
        raise Conflict(
            "store.newer_schema",
            f"the database has schema {current}, which this version of vgpuctl does not know",
            hint="use the newer vgpuctl that wrote it, or restore a backup made before the upgrade",
        )
    if connection.dialect.name == "postgresql":  # to move large tables takes as long as it takes
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        # So does reading the migrations on a busy machine. Who waits for one that was stopped ends it: connections.py.
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
    from alembic import command

    command.upgrade(alembic_config(connection), "head")


def newest_revision() -> str:
    """The schema of this program."""
    return _revisions()[-1]


def _revisions() -> list[str]:
    """Oldest first. The name of a migration's file begins with its revision."""
    return sorted(file.name.partition("_")[0] for file in _MIGRATIONS.glob("versions/[0-9]*.py"))
