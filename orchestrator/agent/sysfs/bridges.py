# SPDX-License-Identifier: Apache-2.0
"""Bridges of the host's own, where it sends IPv4 packets, and which addresses are its own, as the kernel shows them: a
network for VMs may take none of them. Nothing of them is ever changed."""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from orchestrator.agent.open_vswitch import with_ovn
from orchestrator.agent.paths import Paths
from orchestrator.agent.readings.tunnels import MeasuredTunnels
from orchestrator.agent.sysfs import reading
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.overlay import INTEGRATION_BRIDGE

_ASK_ETHTOOL, _DRIVER_INFO = 0x8946, 3  # SIOCETHTOOL of linux/sockios.h, ETHTOOL_GDRVINFO of linux/ethtool.h
_OPENVSWITCH = "openvswitch"


def driver_of(interface: str) -> str:
    """What ethtool calls the driver; empty: it does not say. Of a bridge of Open vSwitch nothing else tells."""
    info = array.array("B", struct.pack("I", _DRIVER_INFO) + bytes(192))
    request = struct.pack("16sP", interface.encode(), info.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, _ASK_ETHTOOL, request)
        except OSError:
            return ""
    return info.tobytes()[4:36].split(b"\0")[0].decode(errors="replace")


@dataclass(frozen=True)
class HostBridges:
    paths: Paths
    driver: Callable[[str], str] = driver_of
    tunnels: MeasuredTunnels | None = None

    def read(self) -> tuple[Bridge, ...]:
        """By name; libvirt's own are among them."""
        net = self.paths.root / "sys/class/net"
        bridges = [name for name in reading.names(net) if (net / name / "bridge").is_dir()]
        ports = {name: reading.names(net / name / "brif") for name in bridges}
        masters = {port: bridge for bridge, of_it in ports.items() for port in of_it}
        tags = self._tags()
        found = [Bridge(name=name, kind="linux", vlans=_carried(of_it, tags, masters)) for name, of_it in ports.items()]
        switched = self._of_open_vswitch(net, [name for name in reading.names(net) if name not in ports])
        return tuple(sorted((*found, *switched), key=lambda bridge: bridge.name))

    def is_plugged(self, interface: str) -> bool:
        """Whether it is a port of a bridge. One that is not there is not judged."""
        directory = self.paths.root / "sys/class/net" / interface
        return (directory / "master").is_symlink() or not directory.exists()

    def _of_open_vswitch(self, net: Path, others: list[str]) -> list[Bridge]:
        if not (net / "ovs-system").exists():  # without its kernel module nobody needs to be asked
            return []
        switched = [Bridge(name=name, kind="openvswitch") for name in others if self.driver(name) == _OPENVSWITCH]
        troubles = () if self.tunnels is None else (self.tunnels.silent(), self.tunnels.slow())
        refused = self.tunnels is not None and self.tunnels.refused
        return [
            with_ovn(self.paths, bridge, *troubles, refused=refused) if bridge.name == INTEGRATION_BRIDGE else bridge
            for bridge in switched
        ]

    def _tags(self) -> dict[str, tuple[str, str]]:
        """VLAN interface → (tag, what it is a part of): lines of ``name | tag | part of``."""
        lines = (reading.text(self.paths.proc / "net/vlan/config") or "").splitlines()
        rows = ([word.strip() for word in line.split("|")] for line in lines)
        return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3 and row[1].isdigit()}


def _carried(ports: tuple[str, ...], tags: dict[str, tuple[str, str]], masters: dict[str, str]) -> tuple[str, ...]:
    vlans = set()
    for tag, below in (tags[port] for port in ports if port in tags):
        vlans |= {f"{parent}.{tag}" for parent in (below, masters.get(below)) if parent is not None}
    return tuple(sorted(vlans))


_LEAF = re.compile(r"\|-- (?P<address>[0-9.]+)", re.ASCII)
_ROUTE = re.compile(r"/(?P<width>[0-9]{1,2}) \S+ (?:UNICAST|LOCAL)", re.ASCII)
_WIDEST = 8
"""In bits. Wider routes are halves or all of the internet: where everything goes that has no route of its own."""


def host_routes(paths: Paths) -> Iterator[IPv4Network]:
    """Of all routing tables, as the kernel writes them: an address, and below it each route and address there."""
    try:
        lines = (paths.proc / "net/fib_trie").read_text(errors="replace").splitlines()
    except OSError:
        return
    address = ""
    for line in lines:
        leaf, route = _LEAF.search(line), _ROUTE.search(line)
        if leaf is not None:
            address = leaf["address"]
        elif route is not None and int(route["width"]) >= _WIDEST:
            yield IPv4Network(f"{address}/{route['width']}", strict=False)


def in_the_way(paths: Paths, subnet: str) -> IPv4Network | None:
    """A route or an address that overlaps it; None: there is none."""
    wanted = IPv4Network(subnet)
    return next((route for route in host_routes(paths) if route.overlaps(wanted)), None)
