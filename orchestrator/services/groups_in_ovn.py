# SPDX-License-Identifier: Apache-2.0
"""Changes of a tenant's security groups, in OVN's northbound as soon as they are in the database. That is derived from
this one: what is missed here the next comparison finds (services/northbound.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import Lock

from orchestrator.core.errors import Retryable, Unknown
from orchestrator.core.northbound.groups import PORT_GROUP, group_key, in_use, memberships, rows_of_groups
from orchestrator.core.northbound.networks import PORT, cards_of
from orchestrator.core.northbound.rows import OvnRow, difference, operations_of, removal, row_uuid
from orchestrator.core.security_groups import GroupsOfCards
from orchestrator.ports.overlay import Northbound, NorthboundSession
from orchestrator.store.database import Store


@dataclass(frozen=True)
class _Rows:
    """Of one tenant's groups that are in use, and by their keys UUIDs of the ports in them."""

    groups: tuple[OvnRow, ...]
    ports: Mapping[str, AbstractSet[str]]


@dataclass(frozen=True, kw_only=True)
class GroupsInOvn:
    """``northbound`` None: the site has no OVN."""

    store: Store
    northbound: Northbound | None
    _one_after_the_other: Lock = field(default_factory=Lock)
    """Else the older of two states might be written last."""

    @contextmanager
    def changing(self, tenant: str) -> Iterator[None]:
        """What the block commits of the tenant's groups is in OVN when this ends.

        :raises Retryable: ``ovn.unreachable``: the block has not run
        :raises Unknown: ``group.not_in_effect``: it was committed, and OVN did not take it yet"""
        if self.northbound is None:
            yield
            return
        with self._one_after_the_other:
            before = self._read(tenant)
            with self.northbound.open() if before.ports else nullcontext() as session:
                yield
                if session is not None:
                    self._take(session, before, tenant)

    def _take(self, session: NorthboundSession, before: _Rows, tenant: str) -> None:
        """:raises Unknown: ``group.not_in_effect``"""
        try:
            self._write(session, before, self._read(tenant))
        except Retryable as error:
            raise Unknown(
                "group.not_in_effect", f"the change is stored, and OVN has not taken it: {error.message}",
                hint="it is written again within a minute; 'vgpuctl network driver check' tells more",
            ) from error  # fmt: skip

    def _read(self, tenant: str) -> _Rows:
        site, ports = self.store.site, dict[tuple[str, str], set[str]]()
        with self.store.read() as tx:
            groups = tx.security_groups.list(tenant)
            vms = [vm for vm in tx.vms.list(tenant=tenant) if vm.ports]
        of_cards = GroupsOfCards(groups)
        for vm in vms:
            for network, card in cards_of(vm, ()):
                for name in of_cards.of(tenant, vm.id, network):
                    ports.setdefault((tenant, name), set()).add(str(row_uuid(PORT, card.key)))
        rows = rows_of_groups(site, in_use(groups, ports))
        return _Rows(rows, {group_key(site, *name): uuids for name, uuids in ports.items()})

    def _write(self, session: NorthboundSession, before: _Rows, after: _Rows) -> None:
        """Groups that are used no more lose their ports here, and go with the next comparison."""
        kept = {row.uuid for row in after.groups}
        gone = [row for row in before.groups if row.uuid not in kept]
        emptied = [row for row in gone if row.table == PORT_GROUP]
        every = (*after.groups, *emptied)
        existing = session.read(every)
        changes = (
            *difference(after.groups, existing, self.store.site),
            *memberships(every, after.ports, existing, join=True),
        )
        rules = removal(row for row in gone if row.table != PORT_GROUP)
        session.change((*operations_of(changes), *rules))
