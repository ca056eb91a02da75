# SPDX-License-Identifier: Apache-2.0
"""Keeps OVN's northbound as the database says: what somebody changed, or what was lost, is written again row by row, so
that nothing is made anew that carries traffic. Rows without our id, and other sites', are nobody's here."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.core.errors import Retryable
from orchestrator.core.northbound.groups import TABLES as GROUP_TABLES
from orchestrator.core.northbound.groups import (
    GroupUsed,
    in_use,
    members_of,
    memberships,
    ports_by_group,
    rows_of_groups,
)
from orchestrator.core.northbound.joined import rows_joined
from orchestrator.core.northbound.networks import TABLES, Card, card_rows, cards_of, rows_of
from orchestrator.core.northbound.outside import address_rows, rows_out
from orchestrator.core.northbound.rows import Existing, OvnRow, RowChange, astray, difference, left_over, operations_of
from orchestrator.core.peering import subnets_of_peers
from orchestrator.core.security_groups import GroupsOfCards
from orchestrator.ports.clock import Clock
from orchestrator.ports.overlay import Northbound, NorthboundSession, Overlay
from orchestrator.services.provider_networks import read_chassis
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

ACTOR: Final = "northbound"
EVERY_S: Final = 60.0
HELD_BACK: Final = "ovn_addresses_held_back"
"""Where the database keeps which addresses the last comparison could not free, and why, for people; empty: none."""
_AT_ONCE: Final = 1000
"""Rows that one transaction of OVN's database changes: a tenth of a second of its time."""
_HALVED: Final = frozenset({"ovn.outdated", "ovn.refused"})
_REFUSALS: Final = 20
"""One that refuses so many refuses all: asked row by row, tens of thousands would keep it busy for minutes."""
_SHOWN: Final = 5
_SETTLED: Final = frozenset({"running", "stopped", "lost"})
"""States of VMs whose ports no operation is writing."""


@dataclass(frozen=True, kw_only=True)
class NorthboundKeeper:
    """``leads``: whether this controller does it, of several."""

    store: Store
    northbound: Northbound
    clock: Clock
    leads: Callable[[], bool]
    overlay: Overlay | None = None
    """Of the same OVN: which hosts lead outside."""
    _ended: list[float] = field(default_factory=lambda: [0.0])

    def round(self) -> None:
        """At most so often. :raises Retryable: ``ovn.unreachable``, ``ovn.refused``"""
        if self.leads() and self.clock.monotonic() - self._ended[0] >= EVERY_S:
            try:
                self.repair()
            finally:
                self._ended[0] = self.clock.monotonic()

    def repair(self) -> tuple[RowChange, ...]:
        """What differed and was written; what somebody has changed meanwhile is left for the next time. When all of it
        was, addresses that were nobody's any more are free.

        :raises Retryable: ``ovn.unreachable``, ``ovn.refused``"""
        try:
            if self.overlay is not None:
                read_chassis(self.store, self.overlay)
        finally:  # without a southbound, too: gateways are those that were known last
            changes = self._repair()
        return changes

    def _repair(self) -> tuple[RowChange, ...]:
        with self.store.read() as tx:  # before it is compared: OVN has none of these afterwards
            left = _nobodys(tx)
        with self.northbound.open() as session:
            differing = compare(self.store, session)
            changes, refused = _written(session, differing)
        written = set(map(id, changes))  # of tens of thousands
        unwritten = tuple(change for change in differing if id(change) not in written)
        released = frozenset() if unwritten else left
        with self.store.read() as tx:
            noted = tx.meta.get(HELD_BACK)
        held_back = _held_back(left, unwritten) if unwritten and left else ""
        if changes or released or held_back != (noted or ""):
            with self.store.begin() as tx:
                tx.networks.release(released)
                tx.meta.put(HELD_BACK, held_back)
                if changes:
                    tx.audit.append(
                        at=self.clock.now(), actor=ACTOR, action="repair_northbound", subject=f"{len(changes)} rows",
                        outcome=shown(changes),
                    )  # fmt: skip
        if refused is not None:
            raise refused
        return changes


def _nobodys(tx: Transaction) -> frozenset[tuple[str, str]]:
    """(network, address) of those that are kept for nobody but OVN. They come to nobody before they are released."""
    left = tx.networks.without_vm()
    left -= {(floating.network, floating.address) for floating in tx.floating_addresses.list()}
    outs = (network.overlay.out for network in tx.networks.list() if network.overlay is not None)
    left -= {(out.network, out.address) for out in outs if out is not None}
    return left and left - {(port.network, port.address) for vm in tx.vms.list() for port in vm.ports}


def _held_back(addresses: frozenset[tuple[str, str]], unwritten: tuple[RowChange, ...]) -> str:
    """Which stay taken because of these, for people."""
    words = [f"{address} of {network}" for network, address in sorted(addresses)]
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return f"{', '.join(words[:_SHOWN])}{more} stay taken: OVN has not taken {shown(unwritten)}"


COMPARED: Final = {**TABLES, **GROUP_TABLES}
"""Where rows of ours are, and what of them is compared."""


def compare(store: Store, session: NorthboundSession, existing: Existing | None = None) -> tuple[RowChange, ...]:
    """The whole of it. ``existing``: as it was read just now, :data:`COMPARED` at least; None: it is read.

    :raises Retryable: ``ovn.unreachable``, ``ovn.refused``"""
    existing = session.read_all(store.site, COMPARED) if existing is None else existing
    with store.read() as tx:  # after it: of what an operation has written meanwhile the VM is known by now
        settled, moving = _rows(tx, store.site, session.owns_names)
    every = (*settled, *moving)
    return (
        *difference(settled, existing, store.site),
        *astray(settled, existing),
        *left_over(every, existing, store.site, moving),
        *memberships(every, ports_by_group(every), existing, join=False),
    )


def _written(
    session: NorthboundSession, changes: tuple[RowChange, ...]
) -> tuple[tuple[RowChange, ...], Retryable | None]:
    """Those that were, and what OVN says of the first that it refuses. One that is refused or out of date takes no
    other with it: its transaction is halved until it is alone.

    :raises Retryable: ``ovn.unreachable``"""
    written: list[RowChange] = []
    refused: list[Retryable] = []
    left = deque(changes[start : start + _AT_ONCE] for start in range(0, len(changes), _AT_ONCE))
    while left and len(refused) < _REFUSALS:
        some = left.popleft()
        try:
            session.change(operations_of(some))
        except Retryable as error:
            if error.code not in _HALVED:
                raise
            middle = len(some) // 2
            left.extendleft((some[middle:], some[:middle]) if middle else ())
            if not middle and error.code == "ovn.refused":
                refused.append(_refusal(some[0], error))
        else:
            written += some
    return tuple(written), refused[0] if refused else None


def _refusal(change: RowChange, why: Retryable) -> Retryable:
    hint = "OVN's words name what is in its way; 'ovn-nbctl' shows and removes rows of others"
    return Retryable("ovn.refused", f"OVN refuses this: {change.words}", hint=hint, details=why.details)


def shown(changes: tuple[RowChange, ...]) -> str:
    """The first few, for people."""
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return "; ".join(change.words for change in changes[:_SHOWN]) + more


def _rows(tx: Transaction, site: str, owned: bool) -> tuple[tuple[OvnRow, ...], tuple[OvnRow, ...]]:
    """Of all networks of kind ovn and the VMs there; and of those VMs that an operation is at."""
    known = sorted(tx.networks.list(), key=lambda network: network.tenant is not None)  # others go through the site's
    overlays = {network.name: (network, network.overlay) for network in known if network.overlay is not None}
    settled, busy = (defaultdict[str, list[Card]](list) for _ in range(2))
    groups = tx.security_groups.list() if overlays else ()
    of_cards, used = GroupsOfCards(groups), set[GroupUsed]()
    vms = {vm.id: vm for vm in tx.vms.list() if vm.ports} if overlays else {}
    for vm in vms.values():
        for name, card in cards_of(vm, (vm.host,)):
            if name in overlays:
                its, tenant = of_cards.of(vm.spec.tenant, vm.id, name), vm.spec.tenant
                used.update((tenant, group, name) for group in its)
                guarded = replace(card, groups=members_of(site, tenant, its, overlays[name][1].id), owned=owned)
                (settled if vm.state in _SETTLED else busy)[name].append(guarded)
    networks, chassis = {name: network for name, (network, _) in overlays.items()}, tx.networks.chassis()
    far = {name: subnets_of_peers(network, networks.get) for name, network in networks.items()}
    first = rows_of(((*network, settled[name]) for name, network in overlays.items()), far)
    second = [row for name, cards in busy.items() for card in cards for row in card_rows(*overlays[name], card)]
    joined = [row for network in networks.values() for row in rows_joined(network, networks.get)]
    out = [
        row for network, overlay in overlays.values() if overlay.out is not None
        for row in rows_out(overlay, networks.get(overlay.out.network), chassis, far[network.name])
    ]  # fmt: skip
    floating = address_rows(tx.floating_addresses.list(), vms, networks)
    of_groups = rows_of_groups(site, in_use(groups, used, networks.get))
    return (*of_groups, *first, *joined, *out, *floating), tuple(second)
