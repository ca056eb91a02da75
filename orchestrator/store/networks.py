# SPDX-License-Identifier: Apache-2.0
"""Networks of tenants and of the site."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.overlay import OvnNetwork
from orchestrator.core.provider_networks import KnownChassis
from orchestrator.core.tenancy.quota import network_amounts
from orchestrator.core.vms.network import Network, short_name, tenant_of, unknown_network
from orchestrator.core.vms.vm import Vm
from orchestrator.store.events import Events
from orchestrator.store.meta import Meta
from orchestrator.store.records import ClaimLost
from orchestrator.store.rows import about_of, about_values
from orchestrator.store.statements import AnyRow, Precompiled, Statements
from orchestrator.store.tables import networks, port_addresses
from orchestrator.store.usage import TenantUsage

_OVERLAY: Final = TypeAdapter(OvnNetwork)
_CHASSIS: Final = TypeAdapter(tuple[KnownChassis, ...])
_CHASSIS_KEY: Final = "ovn_chassis"
_NETWORK: Final = Precompiled(select(networks).where(networks.c.name == bindparam("its_name")))


class Networks:
    """Networks that VMs are put on, by their names on hosts (core/vms/network.py)."""

    def __init__(self, connection: Statements, tenants: TenantUsage, events: Events) -> None:
        self._db = connection
        self._meta = Meta(connection)
        self._tenants = tenants
        self._events = events

    def add(self, network: Network) -> None:
        """:raises Conflict: ``network.exists``"""
        if self.find(network.name) is not None:
            raise Conflict("network.exists", f"there is already a network {network.name}", hint="choose another name")
        self._db.execute(insert(networks).values(_network_values(network)))
        if network.tenant is not None:
            self._tenants.change(network.tenant, {}, network_amounts(network))
        self._note(network.name, "created")

    def find(self, name: str) -> Network | None:
        row = self._db.execute(_NETWORK, {"its_name": name}).one_or_none()
        return None if row is None else _network_of(row)

    def get(self, name: str) -> Network:
        """:raises NotFound: ``network.unknown``"""
        network = self.find(name)
        if network is None:
            raise unknown_network(name, [known.short for known in self.list()])
        return network

    def list(self) -> tuple[Network, ...]:
        return tuple(_network_of(row) for row in self._db.execute(select(networks).order_by(networks.c.name)))

    def taken(self, name: str, addresses: Iterable[str]) -> frozenset[str]:
        """Of these addresses on a network of kind ovn those that are somebody's, or that OVN may still have."""
        wanted = port_addresses.c.network == name, port_addresses.c.address.in_(tuple(addresses))
        return frozenset(self._db.execute(select(port_addresses.c.address).where(*wanted)).scalars())

    def has_mac(self, name: str, mac: str) -> bool:
        """Whether a card on a network of kind ovn has that hardware address."""
        at = port_addresses.c
        return self._db.execute(select(at.vm).where(at.network == name, at.mac == mac)).first() is not None

    def take(self, vm: Vm) -> None:
        """The addresses of its ports and the hardware addresses of their cards, until the VM is gone.

        :raises ClaimLost: another has one"""
        macs = {name: mac_address(vm.id, vm.spec.networks.index(name)) for name in {port.network for port in vm.ports}}
        try:
            for port in vm.ports:
                row = {**asdict(port), "vm": vm.id, "mac": macs.pop(port.network, None)}
                self._db.execute(insert(port_addresses), [row])
        except IntegrityError as error:
            raise ClaimLost(f"an address of VM {vm.spec.name}: {error.orig}") from error

    def claim(self, name: str, address: str) -> None:
        """One that is no VM's. :raises ClaimLost: it is taken"""
        try:
            self._db.execute(insert(port_addresses), [{"network": name, "address": address, "vm": None}])
        except IntegrityError as error:
            raise ClaimLost(f"address {address}: {error.orig}") from error

    def holder(self, name: str, address: str) -> str | None:
        """Id of the VM that has it; None: none has."""
        at = port_addresses.c
        query = select(at.vm).where(at.network == name, at.address == address)
        holder: str | None = self._db.execute(query).scalar_one_or_none()
        return holder

    def given_back(self, name: str, tenant: str) -> int:
        """How many addresses there were the tenant's, and are nobody's before OVN has let go."""
        its = port_addresses.c.network == name, port_addresses.c.gave_back == tenant
        return int(self._db.execute(select(func.count()).select_from(port_addresses).where(*its)).scalar_one())

    def leave(self, name: str, address: str, tenant: str | None) -> None:
        """It is the tenant's no more, and nobody else's before OVN has let go (:meth:`release`)."""
        at = port_addresses.c
        its = at.network == name, at.address == address
        self._db.execute(update(port_addresses).where(*its).values(gave_back=tenant))

    def keep(self, vm: Vm) -> None:
        """The addresses of its ports are its no more, and nobody else's before OVN has let go (:meth:`release`). Its
        hardware addresses are free: nothing is left that sends from them."""
        at = port_addresses.c
        for port in vm.ports:
            its = at.network == port.network, at.vm == vm.id
            self._db.execute(update(port_addresses).where(*its).values(vm=None, mac=None, gave_back=vm.spec.tenant))

    def without_vm(self) -> frozenset[tuple[str, str]]:
        """(network, address) of those that are no VM's."""
        at = port_addresses.c
        rows = self._db.execute(select(at.network, at.address).where(at.vm.is_(None)))
        return frozenset((row.network, row.address) for row in rows)

    def release(self, addresses: Iterable[tuple[str, str]]) -> None:
        """They are free. Gone already is fine."""
        at = port_addresses.c
        for name, address in addresses:
            its = at.network == name, at.address == address, at.vm.is_(None)
            self._db.execute(delete(port_addresses).where(*its))

    def chassis(self) -> tuple[KnownChassis, ...]:
        """Hosts of OVN as they were last put here."""
        return _CHASSIS.validate_json(self._meta.get(_CHASSIS_KEY) or "[]")

    def put_chassis(self, chassis: tuple[KnownChassis, ...]) -> None:
        self._meta.put(_CHASSIS_KEY, _CHASSIS.dump_json(chassis).decode())

    def give(self, vm: Vm) -> None:
        """The addresses of its ports back. Gone already is fine."""
        at = port_addresses.c
        for port in vm.ports:
            self._db.execute(delete(port_addresses).where(at.network == port.network, at.vm == vm.id))

    def update(self, network: Network) -> None:
        """By its name."""
        if network.tenant is not None:
            self._tenants.change(network.tenant, network_amounts(self.get(network.name)), network_amounts(network))
        self._db.execute(update(networks).where(networks.c.name == network.name).values(_network_values(network)))
        self._note(network.name, "changed")

    def remove(self, name: str) -> None:
        """Gone already is fine."""
        network = self.find(name)
        if network is not None and self._db.execute(delete(networks).where(networks.c.name == name)).rowcount:
            if network.tenant is not None:
                self._tenants.change(network.tenant, network_amounts(network), {})
            if network.overlay is not None and network.overlay.out is not None:
                self.leave(network.overlay.out.network, network.overlay.out.address, network.tenant)
            self._note(name, "removed")

    def _note(self, name: str, change: str) -> None:
        self._events.note("network", short_name(name), change, tenant=tenant_of(name))


def _network_of(row: AnyRow) -> Network:
    about = about_of(row.about)
    if row.uplink is None:
        overlay = None if row.overlay is None else _OVERLAY.validate_python(row.overlay)
        return Network(name=row.name, subnet=row.subnet, shared=row.shared, overlay=overlay, about=about)
    uplink = Uplink(bridge=row.uplink["bridge"], vlan=row.uplink["vlan"])
    servers = tuple(row.uplink["dhcp_servers"])
    return Network(name=row.name, shared=row.shared, uplink=uplink, dhcp_servers=servers, about=about)


def _network_values(network: Network) -> dict[str, object]:
    """The row of :func:`_network_of`."""
    bridge = network.uplink
    uplink = bridge and {"bridge": bridge.bridge, "vlan": bridge.vlan, "dhcp_servers": network.dhcp_servers}
    overlay = None if network.overlay is None else asdict(network.overlay)
    own = {"name": network.name, "subnet": network.subnet, "shared": network.shared, "uplink": uplink}
    return {**own, "overlay": overlay, "about": about_values(network.about)}
