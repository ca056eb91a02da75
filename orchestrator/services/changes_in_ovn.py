# SPDX-License-Identifier: Apache-2.0
"""Changes of a tenant's networks, security groups and floating addresses, in OVN's northbound as soon as they are in
the database. That is derived from this one: what is missed here the next comparison finds (services/northbound.py)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import BoundedSemaphore, Condition
from typing import Final

from orchestrator.core.errors import Retryable, Unknown
from orchestrator.core.northbound.groups import (
    PORT_GROUP,
    GroupUsed,
    in_use,
    members_of,
    memberships,
    rows_of_groups,
)
from orchestrator.core.northbound.networks import PORT, cards_of
from orchestrator.core.northbound.outside import address_rows
from orchestrator.core.northbound.rows import OvnRow, difference, operations_of, removal, row_uuid
from orchestrator.core.security_groups import GroupsOfCards
from orchestrator.operations.steps.ports import networks_in_ovn
from orchestrator.ports.overlay import Northbound, NorthboundSession
from orchestrator.store.database import Store

_AT_ONCE: Final = 16
"""Changes of all tenants, those that wait included: each has a thread of the server's few dozen."""
_OF_TENANT: Final = 10
"""Of one tenant, of which all but one wait: more would be refused to all others."""
_WAIT_S: Final = 2.0
"""For another change of the same tenant."""
_LATER: Final = "try again in some seconds"


@dataclass(frozen=True)
class _Rows:
    """Of one tenant's networks and groups that cards are in, of its floating addresses, and by keys of groups UUIDs of
    the ports in them."""

    rows: tuple[OvnRow, ...]
    ports: Mapping[str, AbstractSet[str]]
    networks: AbstractSet[str]
    """Names on hosts of those that the rows are of."""


@dataclass(frozen=True, kw_only=True)
class ChangesInOvn:
    """``northbound`` None: the site has no OVN."""

    store: Store
    northbound: Northbound | None
    _places: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(_AT_ONCE))
    _changing: set[str] = field(default_factory=set)
    """Tenants: of one only one change at a time, else the older of two states might be written last."""
    _ended: Condition = field(default_factory=Condition)
    _here: Counter[str] = field(default_factory=Counter)
    """By tenant, how many are changing or wait."""

    @contextmanager
    def changing(self, *tenants: str) -> Iterator[None]:
        """What the block commits of these tenants' networks, groups and floating addresses is in OVN when this ends.

        :raises Retryable: ``ovn.unreachable``, ``ovn.busy``: the block has not run
        :raises Unknown: ``ovn.not_in_effect``: it was committed, and OVN did not take it yet"""
        if self.northbound is None:
            yield
            return
        with self._in_turn(tenants):
            known = {tenant: self._read(tenant) for tenant in tenants}
            before = {tenant: rows for tenant, rows in known.items() if rows.ports}
            with self.northbound.open() if before else nullcontext() as session:
                yield
                for tenant, rows in before.items():
                    if session is not None:
                        self._take(session, rows, tenant)

    @contextmanager
    def _in_turn(self, tenants: tuple[str, ...]) -> Iterator[None]:
        """However long OVN is silent, most threads of the server stay free. :raises Retryable: ``ovn.busy``"""
        with self._ended:
            if any(self._here[tenant] >= _OF_TENANT for tenant in tenants):
                message = f"{_OF_TENANT} changes of tenant {tenants[0]}, or of peers, are being written to OVN"
                raise Retryable("ovn.busy", message, hint=_LATER)
            if not self._places.acquire(blocking=False):
                raise Retryable("ovn.busy", f"{_AT_ONCE} changes are being written to OVN", hint=_LATER)
            self._here.update(tenants)
        try:
            with self._ended:
                if not self._ended.wait_for(lambda: self._changing.isdisjoint(tenants), _WAIT_S):
                    message = f"another change of tenant {tenants[0]}'s networks, or of peers, is being written to OVN"
                    raise Retryable("ovn.busy", message, hint=_LATER)
                self._changing.update(tenants)
            try:
                yield
            finally:
                with self._ended:
                    self._changing.difference_update(tenants)
                    self._ended.notify_all()
        finally:
            with self._ended:
                self._here.subtract(tenants)
            self._places.release()

    def _take(self, session: NorthboundSession, before: _Rows, tenant: str) -> None:
        """:raises Unknown: ``ovn.not_in_effect``"""
        try:
            self._write(session, before, self._read(tenant, before.networks))
        except Retryable as error:
            raise Unknown(
                "ovn.not_in_effect", f"the change is stored, and OVN has not taken it: {error.message}",
                hint="it is written when OVN is back; an operator sees more with 'vgpuctl network driver check'",
            ) from error  # fmt: skip

    def _read(self, tenant: str, also: AbstractSet[str] = frozenset()) -> _Rows:
        """``also``: networks whose rows stay as long as those are there. The tenant's last VM may go meanwhile: a
        provider network is others' way out as well."""
        site, ports, used = self.store.site, defaultdict[str, set[str]](set), set[GroupUsed]()
        with self.store.read() as tx:
            groups = tx.security_groups.list(tenant)
            vms = {vm.id: vm for vm in tx.vms.list(tenant=tenant) if vm.ports}
            names = also | {port.network for vm in vms.values() for port in vm.ports}
            known = map(tx.networks.find, sorted(names))
            networks = {network.name: network for network in known if network is not None}
            of_networks = networks_in_ovn(tx, networks.values())
            floating = tx.floating_addresses.list(tenant)
            of_cards = GroupsOfCards(groups)
            for vm in vms.values():
                for on, card in cards_of(vm, ()):
                    network = networks.get(on)
                    if network is not None and network.overlay is not None:
                        its = of_cards.of(tenant, vm.id, on)
                        used.update((tenant, name, on) for name in its)
                        for member in members_of(site, tenant, its, network.overlay.id):
                            ports[member.key].add(str(row_uuid(PORT, card.key)))
            guarding = in_use(groups, used, tx.networks.find)
        rows = (*of_networks, *address_rows(floating, vms, networks), *rows_of_groups(site, guarding))
        return _Rows(rows, ports, names)

    def _write(self, session: NorthboundSession, before: _Rows, after: _Rows) -> None:
        """Groups that are used no more lose their ports here, and go with the next comparison."""
        kept = {row.uuid for row in after.rows}
        gone = [row for row in before.rows if row.uuid not in kept]
        emptied = [row for row in gone if row.table == PORT_GROUP]
        every = (*after.rows, *emptied)
        existing = session.read(every)
        changes = (
            *difference(after.rows, existing, self.store.site),
            *memberships(every, after.ports, existing, join=True),
        )
        taken = removal(row for row in gone if row.table != PORT_GROUP)
        session.change((*taken, *operations_of(changes)))
