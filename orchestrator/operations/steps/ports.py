# SPDX-License-Identifier: Apache-2.0
"""Ports of a VM in OVN's northbound: derived from the database, so that doing it again is the same. When OVN does not
answer, nobody gets a port; what is to be taken away then stays until the next comparison (services/northbound.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from orchestrator.core.errors import Conflict, Retryable, VgpuctlError
from orchestrator.core.northbound.groups import in_use, members_of, rows_of_groups
from orchestrator.core.northbound.joined import rows_joined
from orchestrator.core.northbound.networks import card_rows, cards_of, network_rows
from orchestrator.core.northbound.outside import address_rows, rows_out
from orchestrator.core.northbound.rows import Operation, OvnRow, difference, inserted, operations_of, removal
from orchestrator.core.peering import subnets_of_peers
from orchestrator.core.security_groups import GroupsOfCards
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.context import Context
from orchestrator.ports.overlay import NorthboundSession
from orchestrator.store.transaction import Transaction


def write_ports(context: Context, vm: Vm, hosts: tuple[str, ...]) -> None:
    """``hosts``: who may carry them, first of all the VM's own.

    :raises Retryable: ``ovn.unreachable``, ``ovn.refused``; :raises Conflict: ``network.no_ovn``"""
    if not vm.ports:
        return
    northbound = context.world.northbound
    if northbound is None:
        raise no_ovn()
    site = context.world.store.site
    with northbound.open() as session:
        beneath, own = _rows(context, vm, tuple(dict.fromkeys(hosts)), owned=session.owns_names)
        if vm.state == "creating" and _inserted(session, inserted(own, beneath, site)):
            return
        wanted = (*beneath, *own)
        session.change(operations_of(difference(wanted, session.read(wanted), site)))


def _inserted(session: NorthboundSession, operations: tuple[Operation, ...]) -> bool:
    """Whether all of it was new and what is beneath was as it should be; else nothing was written."""
    try:
        session.change(operations)
    except Retryable as error:
        if error.code != "ovn.outdated":
            raise
        return False
    return True


def remove_ports(context: Context, vm: Vm) -> None:
    """Gone already is fine. Where OVN does not answer, their addresses come to nobody before it has let go."""
    northbound = context.world.northbound
    if not vm.ports or northbound is None:
        return
    try:
        with northbound.open() as session:
            session.change(removal(_rows(context, vm, (vm.host,))[1]))
    except Retryable as error:
        _warn(context, error)
        with context.begin() as tx:
            tx.networks.keep(vm)


@contextmanager
def warned(context: Context) -> Iterator[None]:
    """What is left to the next comparison where OVN does not answer."""
    try:
        yield
    except (Retryable, Conflict) as error:
        _warn(context, error)


def _warn(context: Context, error: VgpuctlError) -> None:
    context.warnings.append(f"{error.message}: its ports are put right when it does")


def no_ovn() -> Conflict:
    return Conflict(
        "network.no_ovn", "this server knows no OVN, which networks of kind ovn are made in",
        hint="docs/howto/networks-over-all-hosts.md says how it is set up; --kind nat needs none",
    )  # fmt: skip


def networks_in_ovn(tx: Transaction, networks: Iterable[Network]) -> tuple[OvnRow, ...]:
    """Rows of these, of what leads out of them, and of the provider networks that this goes through; each comes after
    those that it is in."""
    known = {network.name: (network, network.overlay) for network in networks if network.overlay is not None}
    ways = {overlay.out.network for _, overlay in known.values() if overlay.out is not None}
    provided = {name: tx.networks.find(name) for name in sorted(ways)}
    first = {name: (outer, outer.overlay) for name, outer in provided.items() if outer and outer.overlay}
    find = tx.networks.find
    far = {name: subnets_of_peers(network, find) for name, (network, _) in {**first, **known}.items()}
    rows = [row for name, each in {**first, **known}.items() for row in network_rows(*each, far[name])]
    rows += [row for network, _ in known.values() for row in rows_joined(network, find)]
    chassis = tx.networks.chassis() if ways else ()
    for network, overlay in known.values():
        if overlay.out is not None:
            rows += rows_out(overlay, provided[overlay.out.network], chassis, far[network.name])
    return tuple(rows)


def _rows(
    context: Context, vm: Vm, hosts: tuple[str, ...], *, owned: bool = False
) -> tuple[tuple[OvnRow, ...], tuple[OvnRow, ...]]:
    """What its cards stand on, and their own."""
    cards = cards_of(vm, hosts)
    tenant, site = vm.spec.tenant, context.world.store.site
    with context.world.store.read() as tx:
        networks = [(tx.networks.find(name), card) for name, card in cards]
        groups = tx.security_groups.list(tenant)
        floating = tx.floating_addresses.list(tenant, vm=vm.id)
        beneath = networks_in_ovn(tx, [network for network, _ in networks if network])
        of_cards = GroupsOfCards(groups)
        names = {network: of_cards.of(tenant, vm.id, network) for network, _ in cards}
        used = {(tenant, name, network) for network, several in names.items() for name in several}
        guarding = in_use(groups, used, tx.networks.find)
    rows = [*rows_of_groups(site, guarding), *beneath]
    own = [*address_rows(floating, {vm.id: vm}, {each.name: each for each, _ in networks if each})]
    for network, card in networks:
        if network is not None and network.overlay is not None:
            its = members_of(site, tenant, names[network.name], network.overlay.id)
            guarded = replace(card, groups=its, owned=owned)
            own += card_rows(network, network.overlay, guarded)
    return tuple(rows), tuple(own)
