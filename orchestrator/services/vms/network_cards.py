# SPDX-License-Identifier: Apache-2.0
"""Network cards that a VM gets and loses after it was made, running or stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.hosts.bridges import outside_ovn
from orchestrator.core.overlay import Port
from orchestrator.core.provider_networks import with_mapping
from orchestrator.core.vms.network import Network, short_name
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.steps.network_cards import with_networks
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.services.begin import held_by, new_operation, record, undo_inputs
from orchestrator.services.messages import Started
from orchestrator.services.networks import NetworkService
from orchestrator.services.security_groups import check_no_group
from orchestrator.services.tenancy.quotas import within_quota
from orchestrator.services.vm_checks import check_free_port, check_settled, known_vm
from orchestrator.services.vms.ports import check_mac, free_ports, taking
from orchestrator.services.vms.requirements import check_networks
from orchestrator.services.vms.vm_volumes import check_may_change
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class NetworkCards:
    """The last card comes and goes: a card's hardware address is of its number, and no other card's changes."""

    store: Store
    engine: Engine
    networks: NetworkService
    clock: Clock
    ids: Ids

    def attach(self, tenant: str, vm_name: str, network: str, address: str | None = None) -> Started:
        """A card more, on that network; the tenant's default one is made where it is not yet. ``address``: of one of
        kind ovn, None: a free one, which is the card's from now on.

        :raises NotFound: ``vm.unknown``, ``network.unknown``
        :raises InvalidInput: ``network.too_many_cards``, ``network.address_invalid``
        :raises Conflict: ``vm.busy``, ``vm.adopted``, ``vm.no_port``, ``group.network_kind``, ``network.too_many``,
            ``network.subnets_used_up``, ``network.address_taken``, ``network.mac_taken``,
            ``network.converting``, ``host.no_ovn``, ``host.no_mapping``
        :raises NoCapacity: ``network.full``; :raises QuotaExceeded: ``quota.exceeded``"""
        with self.store.begin() as tx:
            vm = known_vm(tx, tenant, vm_name)
            (wanted,) = self.networks.of(tx, tenant, (network,))
            if wanted.name not in vm.spec.networks and tx.networks.find(wanted.name) is None:
                self.networks.make_default(tx, tenant)
            if wanted.name in vm.spec.networks:
                return Started(operation=None, name=vm_name, existing=True)
            self._check(tx, vm)
            check_no_group(tx, vm, wanted)
            has = (*vm.spec.networks, wanted.name)
            check_networks(tuple(map(short_name, has)))
            check_free_port(tx, vm)
            given = replace(with_networks(vm, has), ports=(*vm.ports, *_taken_ports(tx, vm, wanted, address)))
            within_quota(tx, given, vm)
            started = self._begin(tx, "attach_network", given, vm, has, network)
        return self._submitted(started)

    def detach(self, tenant: str, vm_name: str, network: str) -> Started:
        """Its last card, which is on that network.

        :raises NotFound: ``vm.unknown``, ``network.unknown``
        :raises Conflict: ``network.not_last``, ``network.only_card``, ``address.in_use``, ``vm.busy``,
            ``vm.adopted``"""
        with self.store.begin() as tx:
            vm = known_vm(tx, tenant, vm_name)
            (wanted,) = self.networks.of(tx, tenant, (network,))
            if wanted.name not in vm.spec.networks:
                return Started(operation=None, name=vm_name, existing=True)
            self._check(tx, vm)
            *has, last = vm.spec.networks
            if not has:
                raise Conflict(
                    "network.only_card", f"VM {vm_name} has no other network card", hint="attach another network first"
                )
            if last != wanted.name:
                raise Conflict(
                    "network.not_last",
                    f"VM {vm_name} has a card behind that on {network}, which would get another hardware address",
                    hint=f"'vgpuctl network detach {short_name(last)} {vm_name}' takes the last one",
                )
            for floating in tx.floating_addresses.list(tenant, vm=vm.id):
                if floating.card_network == last:
                    hint = f"'vgpuctl network address detach {floating.address} --tenant {tenant}' takes it away"
                    message = f"floating address {floating.address} leads to VM {vm_name} there"
                    raise Conflict("address.in_use", message, hint=hint)
            started = self._begin(tx, "detach_network", vm, vm, tuple(has), network)
        return self._submitted(started)

    def _check(self, tx: Transaction, vm: Vm) -> None:
        check_may_change(vm)
        check_settled(tx, vm)

    def _begin(self, tx: Transaction, kind: str, given: Vm, vm: Vm, has: tuple[str, ...], network: str) -> Started:
        operation = new_operation(kind, vm, clock=self.clock, ids=self.ids)
        tx.vms.update(held_by(operation, given))
        inputs: dict[str, object] = {
            "vm": vm.spec.name, **undo_inputs(vm), "had": list(vm.spec.networks), "has": list(has),
        }  # fmt: skip
        record(tx, operation, host=vm.host, inputs=inputs, said=network)
        return Started(operation=operation.id, name=vm.spec.name)

    def _submitted(self, started: Started) -> Started:
        self.engine.submit(str(started.operation))
        return started


def _taken_ports(tx: Transaction, vm: Vm, network: Network, address: str | None) -> tuple[Port, ...]:
    """Of the VM's next card, on a network of kind ovn; none on others."""
    if network.overlay is None:
        if address is not None:
            hint = "a card's address is chosen on networks of kind ovn: 'vgpuctl network list' has the kinds"
            raise InvalidInput("network.address_invalid", f"network {network.short} gives addresses itself", hint=hint)
        return ()
    check_in_ovn(tx, vm)
    provider = network.overlay.provider
    if provider is not None and vm.host not in with_mapping(tx.networks.chassis(), provider.physical):
        hint = f"'vgpuctl vm move {vm.spec.name}' takes it to a host that has it: 'vgpuctl network driver show'"
        message = f"host {vm.host}, where VM {vm.spec.name} is, has no bridge for network {network.short}"
        raise Conflict("host.no_mapping", message, hint=hint)
    card = len(vm.spec.networks)
    check_mac(tx, vm, network, card)
    ports = free_ports(tx, vm, card, network, network.overlay, address)
    with taking(" or ".join(port.address for port in ports)):
        tx.networks.take(replace(with_networks(vm, (*vm.spec.networks, network.name)), ports=ports))
    return ports


def check_in_ovn(tx: Transaction, vm: Vm) -> None:
    """That its host is. :raises Conflict: ``host.no_ovn``"""
    snapshot = tx.hosts.snapshot(vm.host)
    why = None if snapshot is None else outside_ovn(snapshot.bridges, vm.host)
    if why is not None:
        hint = "docs/howto/networks-over-all-hosts.md says how a host comes into OVN"
        raise Conflict("host.no_ovn", f"host {vm.host}, where VM {vm.spec.name} is, is not in OVN: {why}", hint=hint)
