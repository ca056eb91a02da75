# SPDX-License-Identifier: Apache-2.0
"""libvirt networks, with NAT or on a bridge of the host: made when missing, taken away only when we made them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt import guard
from orchestrator.agent.libvirt.addresses import cards_of, cards_there, name_of, reserve
from orchestrator.agent.libvirt.connection import Libvirt, is_absent
from orchestrator.agent.libvirt.domain_devices import read_domain_xml
from orchestrator.agent.libvirt.domains import domain_key
from orchestrator.agent.nic_links import plug
from orchestrator.agent.sysfs.bridges import HostBridges, in_the_way
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.hosts.bridges import Bridge, Uplink, bridge_of, check_uplink, why_not
from orchestrator.core.vms.network import (
    DEFAULT_NAME,
    bridged_xml,
    check_host_name,
    dns_domain,
    network_xml,
    parse_subnet,
)

_MADE, _STARTED = "made", "started"
_NOBODY = "host"
"""Owner of what belongs to no single VM."""


def _key(name: str) -> str:
    return f"network:{name}"


def _used_key(name: str) -> str:
    """Of a network that was there before us and that VMs of ours are on: it is never changed."""
    return f"used-network:{name}"


def _lookup(connection: Any, name: str) -> Any:
    try:
        return connection.networkLookupByName(name)
    except libvirt.libvirtError as error:
        if is_absent(error):
            return None
        raise


def _servers_key(name: str) -> str:
    """Of a network on a bridge: its detail are the DHCP servers there."""
    return f"dhcp-servers:{name}"


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """A network as libvirt shall have it: on a ``bridge`` of the host, or with a ``subnet`` behind NAT."""

    name: str
    subnet: str | None = None
    bridge: str | None = None

    @property
    def xml(self) -> str:
        return bridged_xml(self.name, self.bridge) if self.bridge else network_xml(self.name, self.subnet or "")

    def is_like(self, root: ET.Element) -> bool:
        """Whether a network that somebody else made serves as well: one that hides its guests behind the host, as ours
        do. Under any name but that of libvirt's own it must be the very subnet; a bridge is always the very bridge."""
        if self.bridge:
            return _is_bridged(root) and _bridge(root) == self.bridge
        return _is_nat(root) and (self.name == DEFAULT_NAME or self.subnet in map(_subnet, root.findall("ip")))

    def may_be(self, root: ET.Element, *, known: bool) -> bool:
        """Whether VMs of it may be on what is there. One of ours that VMs are on keeps its subnet, and its bridge."""
        return self.is_like(root) or (known and self.bridge is None and not _is_bridged(root))

    def is_same(self, root: ET.Element) -> bool:
        """Of ours: with the same subnet and DNS domain, or on the same bridge."""
        return self._is_there(root) and (self.bridge is not None or dns_domain(self.name) == _domain(root))

    def _is_there(self, root: ET.Element) -> bool:
        if self.bridge:
            return self.is_like(root)
        return self.subnet in map(_subnet, root.findall("ip"))

    def is_ours(self, root: ET.Element) -> bool:
        """Whether it is one that we made before the ledger was lost: nobody else names networks ``TENANT.NETWORK``."""
        return "." in self.name and self._is_there(root)

    def overlaps(self, root: ET.Element) -> bool:
        """Under another name."""
        if self.bridge:
            return self.is_like(root)
        mine = ipaddress.IPv4Network(self.subnet or "")
        others = (_subnet(ip) for ip in root.findall("ip"))
        return any(mine.overlaps(ipaddress.IPv4Network(other)) for other in others if other is not None)


@dataclass(frozen=True, kw_only=True)
class FoundNetworks:
    active: tuple[str, ...] = ()
    """Names of libvirt's networks."""
    bridges: tuple[Bridge, ...] = ()
    """The host's own: those that libvirt made for its networks are none."""


class LibvirtNetworks:
    def __init__(
        self, connection: Libvirt, ledger: Ledger, bridges: HostBridges, plug: Callable[..., str | None] = plug
    ) -> None:
        """``plug``: makes an interface a port of a bridge, or says what is against it."""
        self._libvirt = connection
        self._ledger = ledger
        self._bridges = bridges
        self._plug = plug

    def find(self) -> FoundNetworks:
        """:raises WorldError: libvirt does not answer"""

        def find(connection: Any) -> tuple[list[str], set[str | None]]:
            networks = connection.listAllNetworks()
            roots = (_read(network) for network in networks)
            active = [network.name() for network in networks if network.isActive()]
            return active, {_bridge(root) for root in roots if not _is_bridged(root)}

        active, made = self._libvirt.call(find)
        own = tuple(bridge for bridge in self._bridges.read() if bridge.name not in made)
        return FoundNetworks(active=tuple(sorted(active)), bridges=own)

    def ensure(self, name: str, subnet: str) -> ActionResult:
        """Make and start it; a network of that name that is there keeps its definition and is started. What we made
        and no VM has any more makes room: the server has deleted it, and given its name or its addresses to another.

        :raises InvalidInput: ``network.name_invalid``, ``network.subnet_invalid``
        :raises Conflict: ``network.foreign``, ``network.overlaps_host``; :raises Fatal: ``network.refused``"""
        return self._ensure(_Wanted(name=check_host_name(name), subnet=parse_subnet(subnet, ())))

    def ensure_bridged(self, name: str, uplink: Uplink, dhcp_servers: tuple[str, ...]) -> ActionResult:
        """The same on a bridge that the host has.

        :raises InvalidInput: ``network.name_invalid``, ``network.bridge_invalid``, ``network.vlan_invalid``,
            ``network.dhcp_server_invalid``
        :raises Conflict: ``host.no_bridge``, ``host.openvswitch``, ``network.foreign``
        :raises Fatal: ``network.refused``
        """
        check_host_name(name)
        check_uplink(uplink, dhcp_servers)
        bridge = bridge_of(self.find().bridges, uplink)
        if isinstance(bridge, str):
            raise Conflict(bridge, why_not(bridge, uplink), hint="make the bridge on the host, or use another network")
        result = self._ensure(_Wanted(name=name, bridge=bridge.name))
        self._ledger.claim(_servers_key(name), _NOBODY, detail=",".join(dhcp_servers))
        return result

    def _ensure(self, wanted: _Wanted) -> ActionResult:
        name = wanted.name

        def ensure(connection: Any) -> bool:
            guard.ensure(connection)
            self._make_room(connection, wanted)
            network = _lookup(connection, name)
            if wanted.subnet and (network is None or (not network.isActive() and self._is_made(name))):
                self._check_no_route(wanted.subnet)
            if network is None:
                self._ledger.claim(_key(name), _NOBODY, detail=_MADE)
                network = connection.networkDefineXML(wanted.xml)
                network.setAutostart(True)
            elif not wanted.may_be(_read(network), known=self._is_known(name)):
                raise _foreign(name)
            elif not self._is_known(name) and wanted.is_ours(_read(network)):
                self._ledger.claim(_key(name), _NOBODY, detail=_MADE)
            elif not self._is_known(name):
                self._ledger.claim(_used_key(name), _NOBODY)
            started = not network.isActive()
            if started:
                if self._ledger.owner(_key(name)) is None:
                    self._ledger.claim(_key(name), _NOBODY, detail=_STARTED)
                self._start(name, network)
            return self._plug_in(connection, network) or started

        changed = self._libvirt.call(
            ensure, code="network.refused", message=f"libvirt cannot provide the network {name}", hint="see the details"
        )
        return ActionResult(changed=changed)

    def _is_made(self, name: str) -> bool:
        owner = self._ledger.owner(_key(name))
        return owner is not None and owner.detail == _MADE

    def _check_no_route(self, subnet: str) -> None:
        """Before it is started: a network that runs has a route itself."""
        obstacle = in_the_way(self._bridges.paths, subnet)
        if obstacle is not None:
            raise Conflict(
                "network.overlaps_host",
                f"the host has a route or an address in {obstacle}, which {subnet} would take from it",
                hint="make the network with another --subnet; an operator sets 'tenant_subnets' to a range that no "
                "host uses",
            )

    def _plug_in(self, connection: Any, network: Any) -> bool:
        """VMs of ours that ran on when the network was taken away: libvirt plugs in only those that start.

        :raises Fatal: ``network.not_plugged``"""
        bridge = _bridge(_read(network))
        ours = [
            domain
            for domain in connection.listAllDomains()
            if self._ledger.owner(domain_key(domain.UUIDString().lower()))
        ]
        plugs = [plug for domain in ours for plug in read_domain_xml(domain.XMLDesc()).plugs]
        loose = [
            plug for plug in plugs if plug.network == network.name() and not self._bridges.is_plugged(plug.interface)
        ]
        for card in loose if bridge else ():
            refused = self._plug(card.interface, bridge, isolated=card.isolated)
            if refused is not None:
                raise Fatal(
                    "network.not_plugged",
                    f"interface {card.interface} of a VM did not become a port of {bridge}",
                    hint="stop the VM and start it again",
                    details=refused,
                )
        return bool(loose)

    def check_known(self, name: str) -> None:
        """That it was made here, or taken up when a VM came.

        :raises Conflict: ``network.foreign``"""
        if not self._is_known(name):
            raise _foreign(name)

    def check_usable(self, name: str) -> None:
        """The same, or a NAT network: definitions from before agents wrote down which they took up.

        :raises Conflict: ``network.foreign``"""

        def is_nat(connection: Any) -> bool:
            network = _lookup(connection, name)
            return network is not None and _is_nat(_read(network))

        if not self._is_known(name) and not self._libvirt.call(is_nat):
            raise _foreign(name)

    def dhcp_servers(self, name: str) -> tuple[str, ...]:
        """Addresses that DHCP answers come from on a network; none: it is not there, or they are not known."""
        of_bridge = self._ledger.owner(_servers_key(name))
        if of_bridge is not None:
            return tuple(filter(None, of_bridge.detail.split(",")))

        def addresses(connection: Any) -> tuple[str, ...]:
            network = _lookup(connection, name)
            return () if network is None else tuple(ip.get("address", "") for ip in _read(network).findall("ip[dhcp]"))

        return self._libvirt.call(addresses)

    def reserve(self, definition: str) -> None:
        """An address for each card of a domain, and a name, on the networks that were made here; others keep their
        definition."""
        name = name_of(definition)

        def reserve_all(connection: Any) -> None:
            cards = [(_lookup(connection, name), mac) for name, mac in cards_of(definition) if self._is_made(name)]
            macs_in_use = cards_there(connection) if cards else frozenset()
            for network, mac in cards:
                if network is not None:
                    reserve(network, mac, macs_in_use, name)

        self._libvirt.call(reserve_all)

    def _is_known(self, name: str) -> bool:
        return any(self._ledger.owner(key) is not None for key in (_key(name), _used_key(name)))

    def _make_room(self, connection: Any, wanted: _Wanted) -> None:
        for network in connection.listAllNetworks():
            key = _key(network.name())
            if (
                self._is_made(network.name())
                and _is_in_the_way(network, wanted)
                and not _is_used(connection, network.name())
            ):
                _take_away(network, undefine=True)
                self._ledger.release(key)
                self._ledger.release(_servers_key(network.name()))

    def _start(self, name: str, network: Any) -> None:
        """A network that does not start is left as it was found."""
        try:
            network.create()
        except libvirt.libvirtError:
            if self._is_made(name):
                network.undefine()
            self._ledger.release(_key(name))
            raise

    def remove(self, name: str) -> ActionResult:
        """Leave the network as it was before :meth:`ensure`."""
        owner = self._ledger.owner(_key(name))

        def remove(connection: Any) -> bool:
            network = None if owner is None else _lookup(connection, name)
            if network is not None and owner is not None:
                _take_away(network, undefine=owner.detail == _MADE)
            self._ledger.release(_used_key(name))
            self._ledger.release(_key(name))
            self._ledger.release(_servers_key(name))
            if not any(self._is_known(other.name()) for other in connection.listAllNetworks()):
                guard.remove(connection)
            return network is not None

        changed = self._libvirt.call(remove, code="network.remove_failed", message=f"network {name} was not removed")
        return ActionResult(changed=changed, message="not made here" if owner is None else "")


def _take_away(network: Any, *, undefine: bool) -> None:
    if network.isActive():
        network.destroy()
    if undefine and network.isPersistent():
        network.undefine()


def _is_in_the_way(network: Any, wanted: _Wanted) -> bool:
    root = _read(network)
    return not wanted.is_same(root) if network.name() == wanted.name else wanted.overlaps(root)


def _is_used(connection: Any, name: str) -> bool:
    """By any domain, whether it runs or not."""
    definitions = (ET.fromstring(domain.XMLDesc()) for domain in connection.listAllDomains())  # noqa: S314 - libvirt's own
    return any(
        name == source.get("network") for root in definitions for source in root.findall("devices/interface/source")
    )


def _read(network: Any) -> ET.Element:
    return ET.fromstring(network.XMLDesc())  # noqa: S314 - libvirt's own


def _is_nat(root: ET.Element) -> bool:
    return root.find("forward[@mode='nat']") is not None


def _is_bridged(root: ET.Element) -> bool:
    return root.find("forward[@mode='bridge']") is not None


def _bridge(root: ET.Element) -> str | None:
    element = root.find("bridge")
    return None if element is None else element.get("name")


def _domain(root: ET.Element) -> str | None:
    element = root.find("domain")
    return None if element is None else element.get("name")


def _subnet(ip: ET.Element) -> str | None:
    """Of an IPv4 address and its prefix or netmask."""
    try:
        width = ip.get("prefix") or ip.get("netmask")
        return str(ipaddress.IPv4Network(f"{ip.get('address')}/{width}", strict=False))
    except ValueError:
        return None


def _foreign(name: str) -> Conflict:
    return Conflict(
        "network.foreign",
        f"the host has a network {name} that is not ours, and another than is wanted",
        hint="give the pool's network another name, or remove the host's",
    )
