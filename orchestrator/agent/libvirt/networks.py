# SPDX-License-Identifier: Apache-2.0
"""libvirt networks: made when missing, taken away again only when we made them."""

from __future__ import annotations

import ipaddress
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt import guard
from orchestrator.agent.libvirt.connection import Libvirt, is_absent
from orchestrator.core.errors import Conflict
from orchestrator.core.host_actions import ActionResult
from orchestrator.core.network import DEFAULT_NAME, Network, check_host_name, network_xml, parse_subnet

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


class LibvirtNetworks:
    def __init__(self, connection: Libvirt, ledger: Ledger) -> None:
        self._libvirt = connection
        self._ledger = ledger

    def active(self) -> tuple[str, ...]:
        """Names of the active networks."""
        names = self._libvirt.call(
            lambda connection: [network.name() for network in connection.listAllNetworks() if network.isActive()]
        )
        return tuple(sorted(names))

    def ensure(self, name: str, subnet: str) -> ActionResult:
        """Make and start it; a network of that name that is there keeps its definition and is started. What we made
        and no VM has any more makes room: the server has deleted it, and given its name or its addresses to another.

        :raises InvalidInput: ``network.name_invalid``, ``network.subnet_invalid``
        :raises Conflict: ``network.foreign``; :raises Fatal: ``network.refused``"""
        wanted = Network(name=check_host_name(name), subnet=parse_subnet(subnet, ()))

        def ensure(connection: Any) -> bool:
            guard.ensure(connection)
            self._make_room(connection, wanted)
            network = _lookup(connection, name)
            if network is None:
                self._ledger.claim(_key(name), _NOBODY, detail=_MADE)
                network = connection.networkDefineXML(network_xml(wanted))
                network.setAutostart(True)
            elif not self._is_known(name):
                _check_like(network, wanted)
                self._ledger.claim(_used_key(name), _NOBODY)
            if network.isActive():
                return False
            if self._ledger.owner(_key(name)) is None:
                self._ledger.claim(_key(name), _NOBODY, detail=_STARTED)
            self._start(name, network)
            return True

        changed = self._libvirt.call(
            ensure, code="network.refused", message=f"libvirt cannot provide the network {name}", hint="see the details"
        )
        return ActionResult(changed=changed)

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

        def addresses(connection: Any) -> tuple[str, ...]:
            network = _lookup(connection, name)
            return () if network is None else tuple(ip.get("address", "") for ip in _read(network).findall("ip[dhcp]"))

        return self._libvirt.call(addresses)

    def _is_known(self, name: str) -> bool:
        return any(self._ledger.owner(key) is not None for key in (_key(name), _used_key(name)))

    def _make_room(self, connection: Any, wanted: Network) -> None:
        for network in connection.listAllNetworks():
            key = _key(network.name())
            owner = self._ledger.owner(key)
            ours = owner is not None and owner.detail == _MADE
            if ours and _is_in_the_way(network, wanted) and not _is_used(connection, network.name()):
                _take_away(network, undefine=True)
                self._ledger.release(key)

    def _start(self, name: str, network: Any) -> None:
        """A network that does not start is left as it was found."""
        try:
            network.create()
        except libvirt.libvirtError:
            owner = self._ledger.owner(_key(name))
            if owner is not None and owner.detail == _MADE:
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


def _is_in_the_way(network: Any, wanted: Network) -> bool:
    subnets = [_subnet(ip) for ip in _read(network).findall("ip")]
    if network.name() == wanted.name:
        return wanted.subnet not in subnets
    subnet = ipaddress.IPv4Network(wanted.subnet)
    return any(subnet.overlaps(ipaddress.IPv4Network(other)) for other in subnets if other is not None)


def _is_used(connection: Any, name: str) -> bool:
    """By any domain, whether it runs or not."""
    definitions = (ET.fromstring(domain.XMLDesc()) for domain in connection.listAllDomains())  # noqa: S314 - libvirt's own
    return any(name == one.get("network") for root in definitions for one in root.findall("devices/interface/source"))


def _read(network: Any) -> ET.Element:
    return ET.fromstring(network.XMLDesc())  # noqa: S314 - libvirt's own


def _check_like(network: Any, wanted: Network) -> None:
    """One that somebody else made is taken when it hides its guests behind the host, as ours do; under any name but
    that of libvirt's own it must be the very subnet.

    :raises Conflict: ``network.foreign``"""
    root = _read(network)
    subnets = [_subnet(ip) for ip in root.findall("ip")]
    if not _is_nat(root) or (wanted.name != DEFAULT_NAME and wanted.subnet not in subnets):
        raise _foreign(wanted.name)


def _is_nat(root: ET.Element) -> bool:
    return root.find("forward[@mode='nat']") is not None


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
