# SPDX-License-Identifier: Apache-2.0
"""Ports of a VM in OVN's northbound: derived from the database, so that doing it again is the same. When OVN does not
answer, nobody gets a port; what is to be taken away then stays until the next comparison (services/northbound.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from orchestrator.core.errors import Conflict, Retryable
from orchestrator.core.northbound.groups import in_use, members_of, rows_of_groups
from orchestrator.core.northbound.networks import card_rows, cards_of, rows_of_network
from orchestrator.core.northbound.rows import OvnRow, difference, operations_of, removal
from orchestrator.core.security_groups import GroupsOfCards
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.context import Context
from orchestrator.ports.overlay import Northbound


def write_ports(context: Context, vm: Vm, hosts: tuple[str, ...]) -> None:
    """``hosts``: who may carry them, first of all the VM's own.

    :raises Retryable: ``ovn.unreachable``, ``ovn.refused``; :raises Conflict: ``network.no_ovn``"""
    if not vm.ports:
        return
    northbound = context.world.northbound
    if northbound is None:
        raise no_ovn()
    wanted = _rows(context, vm, tuple(dict.fromkeys(hosts)), with_networks=True)
    site = context.world.store.site
    with northbound.open() as session:
        session.change(operations_of(difference(wanted, session.read(wanted), site)))


def remove_ports(context: Context, vm: Vm) -> None:
    """Gone already is fine."""
    northbound = context.world.northbound
    if vm.ports and northbound is not None:
        with warned(context):
            _remove(northbound, _rows(context, vm, (vm.host,), with_networks=False))


def _remove(northbound: Northbound, rows: tuple[OvnRow, ...]) -> None:
    with northbound.open() as session:
        session.change(removal(rows))


@contextmanager
def warned(context: Context) -> Iterator[None]:
    """What is left to the next comparison where OVN does not answer."""
    try:
        yield
    except (Retryable, Conflict) as error:
        context.warnings.append(f"{error.message}: its ports are put right when it does")


def no_ovn() -> Conflict:
    return Conflict(
        "network.no_ovn", "this server knows no OVN, which networks of kind ovn are made in",
        hint="docs/howto/networks-over-all-hosts.md says how it is set up; --kind nat needs none",
    )  # fmt: skip


def _rows(context: Context, vm: Vm, hosts: tuple[str, ...], *, with_networks: bool) -> tuple[OvnRow, ...]:
    cards = cards_of(vm, hosts)
    tenant, site = vm.spec.tenant, context.world.store.site
    with context.world.store.read() as tx:
        networks = [(tx.networks.find(name), card) for name, card in cards]
        groups = tx.security_groups.list(tenant)
    of_cards = GroupsOfCards(groups)
    names = {network: of_cards.of(tenant, vm.id, network) for network, _ in cards}
    used = {(tenant, name) for several in names.values() for name in several}
    rows = [*rows_of_groups(site, in_use(groups, used))] if with_networks else []
    for network, card in networks:
        if network is not None and network.overlay is not None:
            rows += rows_of_network(network) if with_networks else ()
            guarded = replace(card, groups=members_of(site, tenant, names[network.name]))
            rows += card_rows(network, network.overlay, guarded)
    return tuple(rows)
