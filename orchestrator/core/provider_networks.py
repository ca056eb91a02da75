# SPDX-License-Identifier: Apache-2.0
"""Provider networks: what of the site's own networks OVN may use, to lead out of networks of tenants or to put VMs on.
Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_network
from typing import Final

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.hosts.bridges import MAX_VLAN
from orchestrator.core.overlay import NewOvnNetwork, OvnNetwork, ProviderPlace, of_family

DEFAULT_MTU: Final = 1500
"""Frames of a provider network go between hosts as they are."""
MAX_GATEWAYS: Final = 5
"""Hosts that may carry what goes out of one network, as OpenStack has it; one at a time does."""
_PHYSICAL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class NewProviderNetwork:
    """As an operator asks for it, unchecked."""

    physical: str
    vlan: int | None
    subnet: str
    gateway: str
    addresses: str
    """``FIRST-LAST``, or one."""
    mtu: int | None = None
    """None: 1500."""
    dns: tuple[str, ...] = ()

    def checked(self, new_id: str) -> OvnNetwork:
        """:raises InvalidInput: ``network.mapping_invalid``, ``network.vlan_invalid``, ``network.subnet_invalid``,
        ``network.gateway_invalid``, ``network.range_invalid``, ``network.mtu_invalid``, ``network.dns_invalid``"""
        made = NewOvnNetwork(subnets=(self.subnet,), mtu=self.mtu or DEFAULT_MTU, dns=self.dns).checked(new_id)
        if _PHYSICAL.fullmatch(self.physical) is None:
            hint = "as vgpuctl_host_ovn_mappings of the inventory calls it: physnet1"
            raise InvalidInput("network.mapping_invalid", f"{ascii(self.physical)[:70]} is no mapping", hint=hint)
        if self.vlan is not None and not 1 <= self.vlan <= MAX_VLAN:
            message = f"there is no VLAN {str(self.vlan)[:20]}"
            raise InvalidInput("network.vlan_invalid", message, hint=f"1 to {MAX_VLAN}")
        if of_family(6, made.subnets):
            hint = "IPv6 does not lead outside so far: take an IPv4 network of the site"
            raise InvalidInput("network.subnet_invalid", f"{made.subnets[0]} can be no provider network", hint=hint)
        subnet = IPv4Network(made.subnets[0])
        gateway, (first, last) = _machine_of(self.gateway, subnet), _range_of(self.addresses, subnet)
        if gateway is None or first <= gateway <= last:
            hint = f"an address in {subnet} and outside --range, of the router that leads out"
            raise InvalidInput("network.gateway_invalid", f"{ascii(self.gateway)[:40]} cannot be its", hint=hint)
        provider = ProviderPlace(
            physical=self.physical, vlan=self.vlan, gateway=str(gateway), first=str(first), last=str(last)
        )  # fmt: skip
        return OvnNetwork(id=new_id, subnets=made.subnets, mtu=made.mtu, dns=made.dns, provider=provider)


def _machine_of(text: str, subnet: IPv4Network) -> IPv4Address | None:
    try:
        address = IPv4Address(text.strip())
    except ValueError:
        return None
    return address if address in subnet and address not in {subnet[0], subnet[-1]} else None


def _range_of(text: str, subnet: IPv4Network) -> tuple[IPv4Address, IPv4Address]:
    """:raises InvalidInput: ``network.range_invalid``"""
    ends = [_machine_of(part, subnet) for part in text.split("-")]
    first, last = ends[0], ends[-1]
    if len(ends) > 2 or first is None or last is None or first > last:
        hint = f"addresses in {subnet} that nobody else has, like {subnet[2]}-{subnet[-2]}"
        raise InvalidInput("network.range_invalid", f"{ascii(text)[:60]} is no range of it", hint=hint)
    return first, last


def check_apart(network: OvnNetwork, others: Iterable[OvnNetwork]) -> None:
    """A site's provider networks have no address in common: one is told from another by it, and each tag of a mapping
    is one network.

    :raises Conflict: ``network.subnet_overlaps``, ``network.bridge_taken``"""
    provider = network.provider
    for other in others:
        if other.provider is None or provider is None:
            continue
        if overlapping((network.subnets[0],), other.subnets):
            hint = "two provider networks have no address in common; 'vgpuctl network list' has them"
            message = f"{network.subnets[0]} overlaps that of another provider network"
            raise Conflict("network.subnet_overlaps", message, hint=hint)
        if (other.provider.physical, other.provider.vlan) == (provider.physical, provider.vlan):
            hint = "take another VLAN of it, or remove that network first"
            raise Conflict("network.bridge_taken", f"{provider.place} is another network already", hint=hint)


def overlapping(some: Iterable[str], others: Iterable[str]) -> tuple[str, str] | None:
    """The first two subnets that have addresses in common; of two families none have."""
    theirs = [ip_network(other) for other in others]
    pairs = ((mine, other) for mine in map(ip_network, some) for other in theirs)
    return next(((str(mine), str(other)) for mine, other in pairs if mine.overlaps(other)), None)


def addresses_of(provider: ProviderPlace, seed: str) -> Iterator[str]:
    """Each that OVN may give away, from where the seed falls: two that are taken at once hardly meet."""
    first = IPv4Address(provider.first)
    size = int(IPv4Address(provider.last)) - int(first) + 1
    offset = int(hashlib.sha256(seed.encode()).hexdigest(), 16)
    return (str(first + (offset + number) % size) for number in range(size))


@dataclass(frozen=True, kw_only=True)
class KnownChassis:
    """A host of OVN, as its southbound last had it."""

    name: str
    mappings: tuple[str, ...]
    """Physical networks that it has a bridge for."""
    gateway: bool
    """It may carry what others send out (``enable-chassis-as-gw``)."""


def with_mapping(chassis: Iterable[KnownChassis], physical: str) -> frozenset[str]:
    """Names of those that have it."""
    return frozenset(known.name for known in chassis if physical in known.mappings)


def gateways_of(chassis: Iterable[KnownChassis], physical: str, seed: str) -> Mapping[str, int]:
    """Which carry what goes out of a network, the highest number first of those that are up. Where none is meant for
    it, each that has the mapping is. Networks differ in their order, so that no gateway has all of them."""
    able = [known for known in chassis if physical in known.mappings]
    meant = [known.name for known in able if known.gateway] or [known.name for known in able]
    ranked = sorted(meant, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:MAX_GATEWAYS]
    return {name: MAX_GATEWAYS - rank for rank, name in enumerate(ranked)}
