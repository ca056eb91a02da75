# SPDX-License-Identifier: Apache-2.0
"""What is claimed of each host together, and the stamp of its last change.

The stamp is of the transaction that last changed anything there that placement sees, and is written with it. On SQLite
writers come one after the other, and stamps are numbers that grow. On PostgreSQL a stamp is the transaction's id:
transactions end in another order than they begin in, so a reader goes on from the oldest one that was still running
when it read, and what it is told twice it knows by the stamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, bindparam, func, insert, select, update
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from orchestrator.core.vms.claim import Claim, HostCapacity
from orchestrator.store.statements import Statements, kept
from orchestrator.store.tables import host_claims, host_usage


class _Stamp(FunctionElement[int]):
    """Of the transaction that evaluates it."""

    type = BigInteger()
    inherit_cache = True


class _Oldest(FunctionElement[int]):
    """Every change with a lower stamp is seen by who evaluates it."""

    type = BigInteger()
    inherit_cache = True


@compiles(_Stamp, "sqlite")
def _next_number(_element: _Stamp, _compiler: SQLCompiler, **_: Any) -> str:
    return "(SELECT coalesce(max(changed), 0) + 1 FROM host_usage)"


@compiles(_Stamp, "postgresql")
def _own_id(_element: _Stamp, _compiler: SQLCompiler, **_: Any) -> str:
    return "CAST(CAST(pg_current_xact_id() AS text) AS bigint)"


@compiles(_Oldest, "sqlite")
def _unused_number(_element: _Oldest, _compiler: SQLCompiler, **_: Any) -> str:
    return "(SELECT coalesce(max(changed), 0) + 1 FROM host_usage)"


@compiles(_Oldest, "postgresql")
def _oldest_running(_element: _Oldest, _compiler: SQLCompiler, **_: Any) -> str:
    return "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)"


_HOST: Final = host_usage.c.host == bindparam("of_host")
_TOUCH: Final = kept(update(host_usage).where(_HOST).values(changed=_Stamp()))
_NAMES: Final = ("vcpus", "memory_mib", "disk_bytes")
_MORE: Final = {name: host_usage.c[name] + bindparam(f"more_{name}", type_=BigInteger) for name in _NAMES}
_RAISE: Final = kept(update(host_usage).where(_HOST).values(changed=_Stamp(), **_MORE))


def _with_own(name: str) -> ColumnElement[int]:
    """With what is asked for in the place of what the VM holds there already."""
    own = select(host_claims.c[name]).where(host_claims.c.vm == bindparam("of_vm"), host_claims.c.host == _HOST.right)
    return _MORE[name] - func.coalesce(own.scalar_subquery(), 0)


_RAISED: Final = {name: _with_own(name) for name in _NAMES}
_RAISE_WITHIN: Final = kept(
    update(host_usage)
    .where(_HOST, *(raised <= bindparam(f"most_{name}", type_=BigInteger) for name, raised in _RAISED.items()))
    .values(changed=_Stamp(), **_RAISED)
)
_SINCE: Final = kept(select(host_usage.c.host, host_usage.c.changed).where(host_usage.c.changed >= bindparam("since")))
_NOW: Final = kept(select(_Oldest()))


class Usage:
    """Of one transaction. What it has touched is stamped at its end: rows are locked for as short as can be."""

    def __init__(self, connection: Statements) -> None:
        self._db = connection
        self._touched: set[str] = set()
        self._stamped: set[str] = set()

    def touch(self, host: str) -> None:
        """Something was changed there that placement sees."""
        self._touched.add(host)

    def begin(self, host: str) -> None:
        """A host that is new, or comes back under its name."""
        if self._db.execute(_TOUCH, {"of_host": host}).rowcount == 0:
            nothing = {"vcpus": 0, "memory_mib": 0, "disk_bytes": 0}
            self._db.execute(insert(host_usage).values(host=host, changed=_Stamp(), **nothing))
        self._stamped.add(host)

    def begin_many(self, new: Sequence[str]) -> None:
        """Hosts that are new, or come back under their names; most have never been there."""
        known = frozenset(self._db.execute(select(host_usage.c.host).where(host_usage.c.host.in_(new))).scalars())
        for host in sorted(known):
            self.begin(host)
        new = [host for host in new if host not in known]
        if not new:
            return
        row = {"vcpus": 0, "memory_mib": 0, "disk_bytes": 0, "changed": self._db.execute(select(_Stamp())).scalar_one()}
        self._db.execute(insert(host_usage), [{"host": host, **row} for host in new])
        self._stamped.update(new)

    def take(self, claim: Claim, capacity: HostCapacity) -> bool:
        """Whether the host has so much left of ``capacity``; then it is the VM's instead of what it held there.

        The row stays locked until the end."""
        asked = {f"more_{name}": getattr(claim, name) for name in _NAMES}
        most = {f"most_{name}": getattr(capacity, name) for name in _NAMES}
        taken = self._db.execute(_RAISE_WITHIN, {"of_host": claim.host, "of_vm": claim.vm, **asked, **most}).rowcount
        if taken:
            self._stamped.add(claim.host)
        return bool(taken)

    def give(self, host: str, *, vcpus: int, memory_mib: int, disk_bytes: int) -> None:
        """Back what was taken."""
        given = {"more_vcpus": -vcpus, "more_memory_mib": -memory_mib, "more_disk_bytes": -disk_bytes}
        self._db.execute(_RAISE, {"of_host": host, **given})
        self._stamped.add(host)

    def stamp(self) -> None:
        """Call last. In the order of names, so that two who touch the same hosts never wait for each other."""
        for host in sorted(self._touched - self._stamped):
            self._db.execute(_TOUCH, {"of_host": host})

    def changed(self, since: int) -> tuple[int, dict[str, int]]:
        """Where to go on, and the stamps of the hosts that were changed from there on; some may be known already."""
        position = self._db.execute(_NOW).scalar_one()
        return position, {row.host: row.changed for row in self._db.execute(_SINCE, {"since": since})}
