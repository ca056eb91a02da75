# SPDX-License-Identifier: Apache-2.0
"""Many hosts at once: as placement needs them, and the last observation of each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Select, Text, bindparam, cast, func, insert, or_, select, update

from orchestrator.core.attachments import observed_on
from orchestrator.core.attachments.host_facts import HostFacts, facts_of
from orchestrator.core.gpu.fabric import FabricSnapshot
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.operation import UNFINISHED
from orchestrator.core.tenancy.access import Tenants
from orchestrator.core.vms.lease import ends_soon
from orchestrator.core.vms.vm import VmState
from orchestrator.store.cleanings import OPEN_HOSTS, Cleanings
from orchestrator.store.hosts import PUT_DOCUMENT, ParsedSnapshots, observation_values
from orchestrator.store.power import power_seen, power_values
from orchestrator.store.records import FleetChanges, HostRecord, LastObservation, UnchangedObservation
from orchestrator.store.rows import IS_PLACE, VM_COLUMNS, host_of, host_values, vm_of
from orchestrator.store.snapshots import facts_from_text, facts_text, snapshot_from_text
from orchestrator.store.statements import AnyRow, InClause, Precompiled, Statements
from orchestrator.store.tables import findings, gpus, hosts, observations, operations, snapshots, vms, volumes
from orchestrator.store.usage import Usage
from orchestrator.store.vms import Claims
from orchestrator.store.volumes import OF_HOSTS

T = TypeVar("T")
log = logging.getLogger(__name__)

_MAX_NAMES: Final = 500
"""In one statement."""


def _of_hosts(query: Select[Any], column: ColumnElement[str]) -> tuple[Select[Any], InClause]:
    """Of all hosts, and of those that are named; put together once, as that takes longer than asking."""
    return query, InClause(lambda names: query.where(column.in_(names)))


_HOSTS: Final = _of_hosts(select(hosts), hosts.c.name)
_GPUS: Final = _of_hosts(
    select(gpus.c.host, gpus.c.address, gpus.c.mig_layout, gpus.c.health).order_by(gpus.c.host, gpus.c.address),
    gpus.c.host,
)
_FACTS: Final = _of_hosts(
    select(observations.c.host, observations.c.facts, observations.c.disk_bytes), observations.c.host
)
_VMS: Final = _of_hosts(select(*VM_COLUMNS).order_by(vms.c.host, vms.c.id), vms.c.host)
_VOLUMES: Final = _of_hosts(OF_HOSTS, volumes.c.host)
_DOCUMENT: Final = select(cast(snapshots.c.document, Text)).where(snapshots.c.host == bindparam("host"))


_VM_KIND: Final = (vms.c.tenant, vms.c.state)
_COUNTED: Final = select(*_VM_KIND, func.count().label("stored")).group_by(*_VM_KIND)
_VM_COUNTS: Final = Precompiled(_COUNTED)
_PLACE_COUNTS: Final = Precompiled(_COUNTED.where(IS_PLACE))
"""By themselves: an index alone does not tell them from VMs."""


class Fleet:
    """Many hosts at once: read, and written when they are enrolled."""

    def __init__(self, connection: Statements, usage: Usage, claims: Claims) -> None:
        self._db = connection
        self._usage = usage
        self._claims = claims

    def changes(self, since: int) -> FleetChanges:
        """``since``: the position of an earlier answer; 0: from the beginning. No change is ever left out."""
        position, stamps = self._usage.changed(since)
        return FleetChanges(position=position, stamps=stamps)

    def hosts(self, names: Collection[str] | None) -> Iterator[HostRecord]:
        """Those of them that are there; None: all."""
        if names is None:
            yield from self._hosts(None)
            return
        ordered = sorted(names)
        for at in range(0, len(ordered), _MAX_NAMES):
            yield from self._hosts(ordered[at : at + _MAX_NAMES])

    def vm_counts(self, tenants: Tenants) -> dict[tuple[str, VmState], int]:
        """How many VMs these tenants have, by tenant and state."""
        counts = Counter({(row.tenant, row.state): row.stored for row in self._db.execute(_VM_COUNTS)})
        counts.subtract({(row.tenant, row.state): row.stored for row in self._db.execute(_PLACE_COUNTS)})
        return {kind: number for kind, number in counts.items() if number and (tenants is None or kind[0] in tenants)}

    def add_enrolled(self, seen: Sequence[tuple[Host, HostSnapshot]], turn: int) -> None:
        """New hosts as ``host add`` leaves them; all of their GPUs' virtual functions were switched on by us.
        ``turn``: the newest at their observation."""
        if not seen:
            return
        documents, of_looks = list[dict[str, Any]](), list[dict[str, Any]]()
        for host, snapshot in seen:
            text, observation = observation_values(host.name, snapshot, turn)
            documents.append({"host": host.name, "document": text})
            judged = observation["digest"] if _is_empty(snapshot) else None
            of_looks.append({**observation, "judged": judged, "facts": facts_text(facts_of(snapshot))})
        managed = [
            {
                "host": host.name,
                "address": gpu.address,
                "functions_by_us": True,
                "uuid": gpu.uuid,
                "serial": gpu.serial,
                "model": gpu.model,
                "power": power_values(power_seen(gpu)),
            }
            for host, snapshot in seen
            for gpu in snapshot.gpus
            if gpu.address in host.managed_gpus
        ]
        self._db.execute(insert(hosts), [host_values(host) for host, _ in seen])
        if managed:
            self._db.execute(insert(gpus), managed)
        self._db.execute(PUT_DOCUMENT, documents)
        self._db.execute(insert(observations), of_looks)
        self._usage.begin_many([host.name for host, _ in seen])

    def _hosts(self, names: Sequence[str] | None) -> Iterator[HostRecord]:
        managed = _by_host((row.host, (row.address, row.mig_layout, row.health)) for row in self._rows(_GPUS, names))
        facts = {row.host: self._facts(row) for row in self._rows(_FACTS, names)}
        claims = _by_host((claim.host, claim) for claim in self._claims.of_hosts(names))
        host_vms = _by_host((vm.host, vm) for vm in map(vm_of, self._rows(_VMS, names)))
        volume_bytes = {row.host: int(row.size_bytes) for row in self._rows(_VOLUMES, names)}
        unclean = Cleanings(self._db, self._usage).open_on(names)
        sanitising = _by_host((cleaning.host, cleaning.gpu) for cleaning in unclean)
        for row in self._rows(_HOSTS, names):
            name = row.name
            yield HostRecord(
                host=host_of(row, tuple(managed.get(name, ()))),
                facts=facts.get(name),
                claims=tuple(claims.get(name, ())),
                vms=tuple(host_vms.get(name, ())),
                volume_bytes=volume_bytes.get(name, 0),
                sanitising=frozenset(sanitising.get(name, ())),
            )

    def _rows(self, queries: tuple[Select[Any], InClause], names: Sequence[str] | None) -> Iterable[AnyRow]:
        """All at once: one by one takes several times as long."""
        if names is None:
            return self._db.execute(queries[0]).all()
        return self._db.execute(*queries[1](names)).all()

    def _facts(self, row: AnyRow) -> HostFacts | None:
        """None: what is stored cannot be read, so its host is as one that was never observed."""
        try:
            if row.facts is not None:
                return facts_from_text(row.facts, row.disk_bytes)
            return facts_of(snapshot_from_text(self._db.execute(_DOCUMENT, {"host": row.host}).scalar_one()))
        except ValueError:
            log.exception("the stored facts of %s cannot be read", row.host)
            return None


def _by_host(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    grouped: dict[str, list[T]] = {}
    for host, value in pairs:
        grouped.setdefault(host, []).append(value)
    return grouped


_MAX_DOCUMENTS: Final = 100
"""In one statement: they are large."""
_PAGE: Final = 500
_ITS_OWN: Final = tuple(column for column in hosts.c if column is not hosts.c.last_seen_at)
_LAST: Final = Precompiled(
    select(
        *_ITS_OWN, hosts.c.last_seen_at, observations.c.digest, observations.c.judged, observations.c.storage_free_bytes
    )
    .join_from(hosts, observations, observations.c.host == hosts.c.name, isouter=True)
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
    .join(observations, observations.c.host == operations.c.host)
    .where(operations.c.ended_turn > observations.c.turn)
    .distinct()
)
_FOUND: Final = select(findings.c.host).where(findings.c.cleared_at.is_(None)).distinct()
_LEASES: Final = select(vms.c.host, vms.c.created_at, vms.c.lease_end).where(
    vms.c.lease_end.is_not(None), vms.c.deallocated.is_(None)
)
_OF: Final = observations.c.host == bindparam("of_host")
_SHOWS: Final = Precompiled(
    select(observations.c.host).where(
        _OF, or_(observations.c.facts.is_(None), observations.c.facts.contains(bindparam("its_vm")))
    )
)
_IS_JUDGED: Final = Precompiled(select(observations.c.host).where(_OF, observations.c.judged == observations.c.digest))
_JUDGE: Final = Precompiled(update(observations).where(_OF).values(judged=observations.c.digest))
_JUDGE_ANEW: Final = Precompiled(update(observations).where(_OF).values(judged=None))
_SEEN: Final = Precompiled(
    update(hosts)
    .where(hosts.c.name == bindparam("of_host"), hosts.c.state == "ready")
    .values(last_seen_at=bindparam("at"))
)


class Observations:
    """The last look at every host in brief: whether the next one has anything to add."""

    def __init__(self, connection: Statements, parsed: ParsedSnapshots) -> None:
        self._db = connection
        self._parsed = parsed

    def last(self) -> Iterator[tuple[LastObservation, ...]]:
        """Of all hosts by name, a few hundred at a time."""
        after, before, now = "", self._parsed.host_rows, dict[str, tuple[tuple[Any, ...], Host]]()
        while rows := self._db.execute(_LAST, {"after": after}).all():
            after = rows[-1].name
            whole = self._whole({row.name: row.digest for row in rows if row.digest and row.judged == row.digest})
            now |= {row.name: _as_before(row, before.get(row.name)) for row in rows}
            yield tuple(_last(row, now[row.name][1], row.digest if row.name in whole else None) for row in rows)
        self._parsed.host_rows = now

    def ready(self) -> tuple[Host, ...]:
        """Hosts that may be worked on, by name, without their managed GPUs."""
        return tuple(host_of(row, ()) for row in self._db.execute(_READY))

    def _whole(self, digests: dict[str, str]) -> frozenset[str]:
        """Those whose document is stored as it was seen; each is read once by each process."""
        known = self._parsed.whole
        unread = [name for name, digest in digests.items() if known.get(name) != digest]
        for at in range(0, len(unread), _MAX_DOCUMENTS):
            for row in self._db.execute(_DOCUMENTS, {"names": unread[at : at + _MAX_DOCUMENTS]}):
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
            *self._db.execute(OPEN_HOSTS).scalars(),
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

    def put_unchanged(self, seen: Sequence[UnchangedObservation]) -> None:
        """Only the host's own row: that of its look is large, and says nothing new."""
        if seen:
            self._db.execute(_SEEN, [{"of_host": observation.host, "at": observation.at} for observation in seen])


def _as_before(row: AnyRow, before: tuple[tuple[Any, ...], Host] | None) -> tuple[tuple[Any, ...], Host]:
    """To make a host of its row takes longer than to read it, and few rows of a large fleet change."""
    own = tuple(row[: len(_ITS_OWN)])
    if before is not None and before[0] == own:
        return before
    return own, replace(host_of(row, ()), last_seen_at=None)


def _last(row: AnyRow, host: Host, digest: str | None) -> LastObservation:
    return LastObservation(
        host=host, last_seen_at=row.last_seen_at, digest=digest, storage_free_bytes=row.storage_free_bytes or 0
    )


def _is_empty(snapshot: HostSnapshot) -> bool:
    """Nothing is there that could be somebody's: nothing is to be said of it."""
    return not (
        snapshot.domains
        or snapshot.volumes
        or snapshot.seeds
        or snapshot.problems
        or _fabric_speaks(snapshot.fabric)
        or any(function.owner is not None for nic in snapshot.nics for function in nic.functions)
        or any(gpu.instances or any(observed_on(gpu)) for gpu in snapshot.gpus)
    )


def _fabric_speaks(fabric: FabricSnapshot | None) -> bool:
    return fabric is not None and (
        fabric.problem is not None or any(partition.active for partition in fabric.partitions)
    )
