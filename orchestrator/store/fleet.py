# SPDX-License-Identifier: Apache-2.0
"""Hosts as placement needs them, many at once."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Select, Text, bindparam, cast, select

from orchestrator.core.attachments.host_facts import HostFacts, facts_of
from orchestrator.store.facts_text import facts_from_text
from orchestrator.store.records import FleetChanges, HostRecord
from orchestrator.store.rows import VM_COLUMNS, AnyRow, host_of, vm_of
from orchestrator.store.snapshots import snapshot_from_text
from orchestrator.store.statements import OfFew, Statements
from orchestrator.store.tables import gpus, hosts, looks, snapshots, vms, volumes
from orchestrator.store.usage import Usage
from orchestrator.store.vms import Claims
from orchestrator.store.volumes import OF_HOSTS

T = TypeVar("T")
log = logging.getLogger(__name__)

_AT_ONCE: Final = 500
"""Names in one question."""


def _of_hosts(query: Select[Any], column: ColumnElement[str]) -> tuple[Select[Any], OfFew]:
    """Of all hosts, and of those that are named; put together once, as that takes longer than asking."""
    return query, OfFew(lambda names: query.where(column.in_(names)))


_HOSTS: Final = _of_hosts(select(hosts), hosts.c.name)
_GPUS: Final = _of_hosts(
    select(gpus.c.host, gpus.c.address, gpus.c.mig_layout).order_by(gpus.c.host, gpus.c.address), gpus.c.host
)
_FACTS: Final = _of_hosts(select(looks.c.host, looks.c.facts, looks.c.disk_bytes), looks.c.host)
_VMS: Final = _of_hosts(select(*VM_COLUMNS).order_by(vms.c.host, vms.c.id), vms.c.host)
_VOLUMES: Final = _of_hosts(OF_HOSTS, volumes.c.host)
_DOCUMENT: Final = select(cast(snapshots.c.document, Text)).where(snapshots.c.host == bindparam("host"))


class Fleet:
    """Reads only."""

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
        for at in range(0, len(ordered), _AT_ONCE):
            yield from self._hosts(ordered[at : at + _AT_ONCE])

    def _hosts(self, names: Sequence[str] | None) -> Iterator[HostRecord]:
        managed = _by_host((row.host, (row.address, row.mig_layout)) for row in self._rows(_GPUS, names))
        facts = {row.host: self._facts(row) for row in self._rows(_FACTS, names)}
        claims = _by_host((claim.host, claim) for claim in self._claims.of_hosts(names))
        there = _by_host((vm.host, vm) for vm in map(vm_of, self._rows(_VMS, names)))
        volume_bytes = {row.host: int(row.size_bytes) for row in self._rows(_VOLUMES, names)}
        for row in self._rows(_HOSTS, names):
            name = row.name
            yield HostRecord(
                host=host_of(row, tuple(managed.get(name, ()))),
                facts=facts.get(name),
                claims=tuple(claims.get(name, ())),
                vms=tuple(there.get(name, ())),
                volume_bytes=volume_bytes.get(name, 0),
            )

    def _rows(self, queries: tuple[Select[Any], OfFew], names: Sequence[str] | None) -> Iterable[AnyRow]:
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
    found: dict[str, list[T]] = {}
    for host, one in pairs:
        found.setdefault(host, []).append(one)
    return found
