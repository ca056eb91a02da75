# SPDX-License-Identifier: Apache-2.0
"""Floating addresses of tenants: taken, given back, and led to one VM after the other. No operation: as security groups
they are rows of our database, and what OVN has follows from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.errors import Conflict
from orchestrator.core.floating_addresses import MAX_OF_TENANT, FloatingAddress, unknown_address
from orchestrator.core.tenancy.quota import FLOATING_AMOUNTS
from orchestrator.core.vms.network import short_name
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.clock import Clock, Ids
from orchestrator.services.acting import actor
from orchestrator.services.changes_in_ovn import ChangesInOvn
from orchestrator.services.tenancy.quotas import more_within_quota
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vm_checks import known_vm
from orchestrator.services.vms.ports import check_converted, taking
from orchestrator.services.ways_out import chosen_or_free, provider_network
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class FloatingInfo:
    """One, and its VM by name."""

    address: str
    """IPv4."""
    network: str
    """The provider network that it is of."""
    tenant: str
    """Whose it is."""
    vm: str | None
    """Name of the VM that it leads to; null: to none."""
    vm_network: str | None
    """What the tenant calls the network of that VM's card."""


@dataclass(frozen=True, kw_only=True)
class FloatingAddressService:
    """A VM that goes leaves its address to its tenant."""

    store: Store
    clock: Clock
    ids: Ids
    in_ovn: ChangesInOvn

    def create(self, tenant: str, network: str | None = None, address: str | None = None) -> FloatingInfo:
        """``network`` None: the only provider network; ``address`` None: a free one. One that the tenant has already is
        answered as it is.

        :raises NotFound: ``tenant.unknown``, ``network.no_provider``
        :raises InvalidInput: ``network.which_provider``, ``network.address_invalid``
        :raises Conflict: ``network.address_taken``, ``network.given_back``, ``address.too_many``
        :raises NoCapacity: ``network.full``
        :raises QuotaExceeded: ``quota.exceeded``"""
        with self.store.begin() as tx:
            known_tenant(tx, tenant)
            its = {each.address: each for each in tx.floating_addresses.list(tenant)}
            if address is not None and address in its:
                return _info(tx, its[address])
            if len(its) >= MAX_OF_TENANT:
                hint = f"give one back: 'vgpuctl network address delete {min(its)} --tenant {tenant}'"
                raise Conflict(
                    "address.too_many", f"tenant {tenant} has {MAX_OF_TENANT} floating addresses, and none has more",
                    hint=hint,
                )  # fmt: skip
            outside, _, provider = provider_network(tx, network)
            more_within_quota(tx, tenant, FLOATING_AMOUNTS)
            chosen = chosen_or_free(tx, outside, provider, address, self.ids.new_uuid(), tenant)
            floating = FloatingAddress(address=chosen, network=outside.name, tenant=tenant)
            with taking(chosen):
                tx.floating_addresses.add(floating)
            self._note(tx, "create_floating_address", floating, outside.name)
            return _info(tx, floating)

    def list(self, tenants: tuple[str, ...] | None) -> tuple[FloatingInfo, ...]:
        """Of these tenants, None: of all, by tenant and address."""
        with self.store.read() as tx:
            only = tenants[0] if tenants is not None and len(tenants) == 1 else None
            known = tx.floating_addresses.list(only)
            return tuple(_info(tx, each) for each in known if tenants is None or each.tenant in tenants)

    def by_vm(self, vm: str | None = None) -> dict[str, tuple[str, ...]]:
        """VM's id → what leads to it, of this VM or of all."""
        with self.store.read() as tx:
            leading = tx.floating_addresses.list(vm=vm)
        led: dict[str, tuple[str, ...]] = {}
        for each in leading:
            if each.vm is not None:
                led[each.vm] = (*led.get(each.vm, ()), each.address)
        return led

    def attach(self, tenant: str, address: str, vm: str, network: str | None = None) -> FloatingInfo:
        """Lead it to a VM of the tenant, from wherever it led; ``network``: to that card of it, None: to the first
        whose network has a way out through the address's own.

        :raises NotFound: ``tenant.unknown``, ``address.unknown``, ``vm.unknown``
        :raises Conflict: ``address.no_card``, ``address.vm_has_one``, ``network.converting``
        :raises Retryable: ``ovn.unreachable``, ``ovn.busy``; :raises Unknown: ``ovn.not_in_effect``"""
        with self.in_ovn.changing(tenant), self.store.begin() as tx:
            floating, wanted = _known(tx, tenant, address), known_vm(tx, tenant, vm)
            card = _card_network(tx, floating, wanted, network)
            for other in tx.floating_addresses.list(tenant, vm=wanted.id):
                if other.card_network == card and other.address != address:
                    hint = f"'vgpuctl network address detach {other.address} --tenant {tenant}' takes that one away"
                    raise Conflict(
                        "address.vm_has_one", f"VM {vm} has {other.address} on network {short_name(card)} already",
                        hint=hint,
                    )  # fmt: skip
            led = replace(floating, vm=wanted.id, card_network=card)
            return self._led(tx, floating, led, "attach_floating_address", vm)

    def detach(self, tenant: str, address: str) -> FloatingInfo:
        """Nobody is reached by it then; it stays the tenant's. Detached already is fine.

        :raises NotFound: ``tenant.unknown``, ``address.unknown``
        :raises Retryable: ``ovn.unreachable``, ``ovn.busy``; :raises Unknown: ``ovn.not_in_effect``"""
        with self.in_ovn.changing(tenant), self.store.begin() as tx:
            floating = _known(tx, tenant, address)
            led = replace(floating, vm=None, card_network=None)
            return self._led(tx, floating, led, "detach_floating_address", "done")

    def delete(self, tenant: str, address: str) -> None:
        """:raises NotFound: ``tenant.unknown``, ``address.unknown``; :raises Conflict: ``address.in_use``"""
        with self.store.begin() as tx:
            floating = _known(tx, tenant, address)
            if floating.vm is not None:
                hint = f"'vgpuctl network address detach {address} --tenant {tenant}' takes it from there"
                raise Conflict("address.in_use", f"{address} leads to VM {_info(tx, floating).vm}", hint=hint)
            tx.floating_addresses.remove(floating)
            self._note(tx, "delete_floating_address", floating, "done")

    def _led(
        self, tx: Transaction, before: FloatingAddress, after: FloatingAddress, action: str, outcome: str
    ) -> FloatingInfo:
        if before != after:
            tx.floating_addresses.update(after)
            self._note(tx, action, after, outcome)
        return _info(tx, after)

    def _note(self, tx: Transaction, action: str, floating: FloatingAddress, outcome: str) -> None:
        subject = f"{floating.tenant}/{floating.address}"
        tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=subject, outcome=outcome)


def _known(tx: Transaction, tenant: str, address: str) -> FloatingAddress:
    known_tenant(tx, tenant)
    its = {each.address: each for each in tx.floating_addresses.list(tenant)}
    if address not in its:
        raise unknown_address(address, its)
    return its[address]


def _card_network(tx: Transaction, floating: FloatingAddress, vm: Vm, name: str | None) -> str:
    """Name on hosts of the network by whose card it is reached.

    :raises Conflict: ``address.no_card``, ``network.converting``"""
    for port in vm.ports:
        network = tx.networks.find(port.network)
        out = None if network is None or network.overlay is None else network.overlay.out
        if out is not None and out.network == floating.network and name in {None, short_name(port.network)}:
            check_converted(tx, tx.networks.get(port.network))
            return port.network
    where = "no card" if name is None else f"no card on network {name[:63]}"
    hint = f"it needs one on a network that was created with --out {floating.network}"
    raise Conflict("address.no_card", f"VM {vm.spec.name} has {where} that {floating.network} leads to", hint=hint)


def _info(tx: Transaction, floating: FloatingAddress) -> FloatingInfo:
    vm = None if floating.vm is None else tx.vms.find_id(floating.vm)
    return FloatingInfo(
        address=floating.address, network=floating.network, tenant=floating.tenant,
        vm=None if vm is None else vm.spec.name,
        vm_network=None if floating.card_network is None else short_name(floating.card_network),
    )  # fmt: skip
