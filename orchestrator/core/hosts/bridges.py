# SPDX-License-Identifier: Apache-2.0
"""Bridges that hosts have by themselves, and what of them a network may be put on."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from orchestrator.core.errors import InvalidInput
from orchestrator.core.overlay import INTEGRATION_BRIDGE

NO_BRIDGE = "host.no_bridge"
OPEN_VSWITCH = "host.openvswitch"
"""Codes of what keeps a VM off a host, in a refusal of placement as in one of the host."""
MAX_DHCP_SERVERS = 4
MAX_VLAN = 4094
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}", re.ASCII)
"""As the kernel bounds them, and no word that begins with a dash or a dot."""


@dataclass(frozen=True, kw_only=True)
class Bridge:
    """One of a host's. ``openvswitch``: libvirt's filters do nothing on its ports, so no VM of ours is put there."""

    name: str
    """What it is called."""
    kind: Literal["linux", "openvswitch"]
    """No VM is put on one of Open vSwitch."""
    chassis: tuple[str, ...] = ()
    """Of the bridge of OVN: what it may call the host, its own name for it first; empty: not told."""
    problem: str | None = None
    """Of the bridge of OVN: why OVN does nothing with VMs' cards there now, for people."""
    silent_tunnels: tuple[str, ...] = ()
    """Of the bridge of OVN: other hosts' encapsulation addresses that nothing reaches, each with why; the first few."""
    slow_tunnels: tuple[str, ...] = ()
    """Of the bridge of OVN: those from where answers come late, or not all of them, each with which."""
    pings_refused: bool = False
    """Of the bridge of OVN: the kernel lets the agent measure no way to other hosts."""
    waiting_ports: tuple[str, ...] = ()
    """Of the bridge of OVN: cards, by their ports' ids, that ovn-controller has not set up."""
    vlans: tuple[str, ...] = ()
    """VLANs that leave the host tagged through it, each as ``BRIDGE.VLAN`` by the bridge that it is a part of."""


@dataclass(frozen=True, kw_only=True)
class Uplink:
    """Where a network leaves its host, on every host alike."""

    bridge: str
    vlan: int | None = None
    """The bridge that is meant has a port with this tag on ``bridge``, or on a port of it; None: ``bridge`` itself."""

    def __str__(self) -> str:
        return self.bridge if self.vlan is None else f"VLAN {self.vlan} of {self.bridge}"


def outside_ovn(bridges: Iterable[Bridge], host: str) -> str | None:
    """Why no card of a VM on that host is in a network of OVN, for people; None: nothing says so."""
    bridge = next((each for each in bridges if each.name == INTEGRATION_BRIDGE and each.kind == "openvswitch"), None)
    if bridge is None:
        return f"it has no {INTEGRATION_BRIDGE} of Open vSwitch"
    if bridge.problem is None and bridge.chassis and host not in bridge.chassis:
        return f"OVN calls it {bridge.chassis[0]}"
    return bridge.problem


def check_uplink(uplink: Uplink, dhcp_servers: tuple[str, ...]) -> None:
    """:raises InvalidInput: ``network.bridge_invalid``, ``network.vlan_invalid``, ``network.dhcp_server_invalid``"""
    if _NAME.fullmatch(uplink.bridge) is None:
        raise InvalidInput(
            "network.bridge_invalid",
            f"{ascii(uplink.bridge)[:60]} cannot be a bridge",
            hint="as 'ip link show type bridge' names it on the host",
        )
    if uplink.vlan is not None and not 1 <= uplink.vlan <= MAX_VLAN:
        raise InvalidInput("network.vlan_invalid", f"there is no VLAN {str(uplink.vlan)[:20]}", hint=f"1 to {MAX_VLAN}")
    if len(dhcp_servers) > MAX_DHCP_SERVERS:
        raise _no_servers(", ".join(dhcp_servers))
    for server in dhcp_servers:
        check_dhcp_server(server)


def check_dhcp_server(address: str) -> None:
    """:raises InvalidInput: ``network.dhcp_server_invalid``"""
    if not is_ipv4(address) or not _of_one_machine(ipaddress.IPv4Address(address)):
        raise _no_servers(address)


def _no_servers(text: str) -> InvalidInput:
    return InvalidInput(
        "network.dhcp_server_invalid",
        f"{ascii(text)[:60]} cannot be DHCP servers",
        hint=f"IPv4 addresses of at most {MAX_DHCP_SERVERS} servers or relays on the network",
    )


def bridge_of(bridges: Iterable[Bridge], uplink: Uplink) -> Bridge | str:
    """What VMs are put on; else the code of why there is none: :data:`NO_BRIDGE`, :data:`OPEN_VSWITCH`."""
    tagged = f"{uplink.bridge}.{uplink.vlan}"
    for bridge in bridges:
        if bridge.name == uplink.bridge and bridge.kind == "openvswitch":
            return OPEN_VSWITCH
    for bridge in bridges:
        if bridge.kind == "linux" and (bridge.name == uplink.bridge if uplink.vlan is None else tagged in bridge.vlans):
            return bridge
    return NO_BRIDGE


def why_not(code: str, uplink: Uplink) -> str:
    """For people; ``code`` as from :func:`bridge_of`."""
    if code == OPEN_VSWITCH:
        return f"the host's {uplink.bridge} is of Open vSwitch, where libvirt filters nothing that a guest sends"
    return f"the host has no Linux bridge for {uplink}"


def is_ipv4(text: str) -> bool:
    """Whether it is an IPv4 address as it is usually written."""
    try:
        return str(ipaddress.IPv4Address(text)) == text
    except ValueError:
        return False


def _of_one_machine(address: ipaddress.IPv4Address) -> bool:
    """Whether a guest may have an answer from there."""
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_reserved)
