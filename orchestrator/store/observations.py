# SPDX-License-Identifier: Apache-2.0
"""The last look at every host, read and written for many hosts at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Text, bindparam, cast, or_, select, update

from orchestrator.core.hosts.host import Host
from orchestrator.core.operation import UNFINISHED
from orchestrator.core.vms.lease import ends_soon
from orchestrator.store.hosts import ParsedSnapshots
from orchestrator.store.records import SeenAgain, Standing
from orchestrator.store.rows import AnyRow, host_of
from orchestrator.store.statements import Statements, kept
from orchestrator.store.tables import findings, hosts, looks, operations, snapshots, vms

_AT_ONCE: Final = 100
"""Documents in one question: they are large."""
_PAGE: Final = 500
_ITS_OWN: Final = tuple(column for column in hosts.c if column is not hosts.c.last_seen_at)
_STANDING: Final = kept(
    select(*_ITS_OWN, hosts.c.last_seen_at, looks.c.digest, looks.c.judged, looks.c.storage_free_bytes)
    .join_from(hosts, looks, looks.c.host == hosts.c.name, isouter=True)
    .where(hosts.c.name > bindparam("after"))
    .order_by(hosts.c.name)
    .limit(_PAGE)
)
_READY: Final = select(hosts).where(hosts.c.state == "ready").order_by(hosts.c.name)
_DOCUMENTS: Final = select(snapshots.c.host, cast(snapshots.c.document, Text).label("text")).where(
    snapshots.c.host.in_(bindparam("names", expanding=True))
)
_AT_WORK: Final = select(operations.c.host).where(operations.c.state.in_([*UNFINISHED, "stuck"])).distinct()
_WORKED: Final = select(operations.c.host).where(operations.c.ended_turn > bindparam("since")).distinct()
_WORKED_SINCE_SEEN: Final = (
    select(operations.c.host)
    .join(looks, looks.c.host == operations.c.host)
    .where(operations.c.ended_turn > looks.c.turn)
    .distinct()
)
_FOUND: Final = select(findings.c.host).where(findings.c.cleared_at.is_(None)).distinct()
_LEASES: Final = select(vms.c.host, vms.c.created_at, vms.c.lease_end).where(
    vms.c.lease_end.is_not(None), vms.c.deallocated.is_(None)
)
_OF: Final = looks.c.host == bindparam("of_host")
_SHOWS: Final = kept(
    select(looks.c.host).where(_OF, or_(looks.c.facts.is_(None), looks.c.facts.contains(bindparam("its_vm"))))
)
_IS_JUDGED: Final = kept(select(looks.c.host).where(_OF, looks.c.judged == looks.c.digest))
_JUDGE: Final = kept(update(looks).where(_OF).values(judged=looks.c.digest))
_JUDGE_ANEW: Final = kept(update(looks).where(_OF).values(judged=None))
_SEEN: Final = kept(
    update(hosts)
    .where(hosts.c.name == bindparam("of_host"), hosts.c.state == "ready")
    .values(last_seen_at=bindparam("at"))
)


class Observations:
    """The last look at every host in brief: whether the next one has anything to add."""

    def __init__(self, connection: Statements, parsed: ParsedSnapshots) -> None:
        self._db = connection
        self._parsed = parsed

    def standing(self) -> Iterator[tuple[Standing, ...]]:
        """Of all hosts by name, a few hundred at a time."""
        after, before, now = "", self._parsed.standing, dict[str, tuple[tuple[Any, ...], Host]]()
        while rows := self._db.execute(_STANDING, {"after": after}).all():
            after = rows[-1].name
            whole = self._whole({row.name: row.digest for row in rows if row.digest and row.judged == row.digest})
            now |= {row.name: _as_before(row, before.get(row.name)) for row in rows}
            yield tuple(_standing(row, now[row.name][1], row.digest if row.name in whole else None) for row in rows)
        self._parsed.standing = now

    def ready(self) -> tuple[Host, ...]:
        """Hosts that may be worked on, by name, without their managed GPUs."""
        return tuple(host_of(row, ()) for row in self._db.execute(_READY))

    def _whole(self, digests: dict[str, str]) -> frozenset[str]:
        """Those whose document is stored as it was seen; each is read once by each process."""
        known = self._parsed.whole
        unread = [name for name, digest in digests.items() if known.get(name) != digest]
        for at in range(0, len(unread), _AT_ONCE):
            for row in self._db.execute(_DOCUMENTS, {"names": unread[at : at + _AT_ONCE]}):
                if sha256(row.text.encode()).hexdigest() == digests[row.host]:
                    known[row.host] = digests[row.host]
        return frozenset(name for name, digest in digests.items() if known.get(name) == digest)

    def changed_since(self, *, since: int | None, now: float) -> frozenset[str]:
        """Of those that something is to be said of even though they look as before."""
        worked = self._db.execute(_WORKED_SINCE_SEEN) if since is None else self._db.execute(_WORKED, {"since": since})
        named = [
            *self._db.execute(_AT_WORK).scalars(),
            *worked.scalars(),
            *self._db.execute(_FOUND).scalars(),
        ]
        ending = (row.host for row in self._db.execute(_LEASES) if ends_soon(row.created_at, row.lease_end, now))
        return frozenset([*named, *ending])

    def shows(self, host: str, vm_id: str) -> bool:
        """Whether placement's picture of the host has devices of the VM."""
        return self._db.execute(_SHOWS, {"of_host": host, "its_vm": vm_id}).one_or_none() is not None

    def judge_host_anew(self, host: str) -> None:
        """What is wanted there has changed."""
        self._db.execute(_JUDGE_ANEW, {"of_host": host})

    def is_judged(self, host: str) -> bool:
        """Whether what was last seen there has been compared with what is wanted."""
        return self._db.execute(_IS_JUDGED, {"of_host": host}).one_or_none() is not None

    def judge(self, host: str) -> None:
        """It is now, in this transaction."""
        self._db.execute(_JUDGE, {"of_host": host})

    def seen_again(self, seen: Sequence[SeenAgain]) -> None:
        """Only the host's own row: that of its look is large, and says nothing new."""
        if seen:
            self._db.execute(_SEEN, [{"of_host": one.host, "at": one.at} for one in seen])


def _as_before(row: AnyRow, before: tuple[tuple[Any, ...], Host] | None) -> tuple[tuple[Any, ...], Host]:
    """To make a host of its row takes longer than to read it, and few rows of a large fleet change."""
    own = tuple(row[: len(_ITS_OWN)])
    if before is not None and before[0] == own:
        return before
    return own, replace(host_of(row, ()), last_seen_at=None)


def _standing(row: AnyRow, host: Host, digest: str | None) -> Standing:
    return Standing(
        host=host, last_seen_at=row.last_seen_at, digest=digest, storage_free_bytes=row.storage_free_bytes or 0
    )
