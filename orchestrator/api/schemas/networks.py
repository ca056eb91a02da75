# SPDX-License-Identifier: Apache-2.0
"""Bodies about networks."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AboutAnswer, Name
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.vms.network import Network


class AddNetworkBody(StrictForm):
    """A NAT network to make on every host that needs it."""

    model_config = ConfigDict(
        title="AddNetwork", json_schema_extra={"examples": [{"name": "blue", "subnet": "10.88.1.0/24"}]}
    )

    name: Name
    """What it is called."""
    subnet: str | None = Field(default=None, max_length=64)
    """None: the next free one."""


class AddSiteNetworkBody(AddNetworkBody):
    """The same, or a network on a bridge that hosts have: of the site or of one tenant."""

    model_config = ConfigDict(
        title="AddSiteNetwork", json_schema_extra={"examples": [{"name": "office", "bridge": "br0", "vlan": 120}]}
    )

    bridge: str | None = Field(default=None, max_length=64)
    """Linux bridge of hosts; null: a NAT network."""
    vlan: int | None = None
    """The bridge that hosts have for this VLAN of it."""
    dhcp_servers: list[Annotated[str, Field(max_length=64)]] = Field(default=[], max_length=16)
    """IPv4 addresses whose answers give VMs theirs; none: any that is no VM."""
    tenant: Name | None = None
    """Of one with a bridge: whose alone it is; null: the site's."""

    def uplink(self) -> Uplink | None:
        """None: a NAT network.

        :raises InvalidInput: ``network.bridge_missing``, ``network.bridge_or_subnet``"""
        if self.bridge is None and (self.vlan is not None or self.dhcp_servers or self.tenant is not None):
            raise InvalidInput(
                "network.bridge_missing",
                "a VLAN, DHCP servers and a tenant are given with a bridge",
                hint="name the bridge: vgpuctl network add NAME --bridge br0",
            )
        if self.bridge is None:
            return None
        if self.subnet is not None:
            raise InvalidInput(
                "network.bridge_or_subnet",
                "a network on a bridge of hosts has its addresses from there",
                hint="leave --subnet out, or --bridge",
            )
        return Uplink(bridge=self.bridge, vlan=self.vlan)


class NetworkAnswer(AboutAnswer):
    """A network that VMs can be put on."""

    copied_from = (Network,)

    name: str
    """What it is called."""
    subnet: str | None
    """null: it is on a bridge of hosts."""
    bridge: str | None
    """Of the hosts' own; null: a NAT network of ours."""
    vlan: int | None
    """The VLAN that the bridge carries; null: none."""
    dhcp_servers: tuple[str, ...]
    dns_servers: tuple[str, ...]
    """Which its VMs are told; none: those of the bridge's DHCP server."""
    dns_domain: str | None
    """In which its VMs on one host find each other by name; null: of the site, or on a bridge of hosts."""
    tenant: str | None
    """Whose it is; null: the site's."""
    shared: bool

    @classmethod
    def of(cls, network: Network) -> NetworkAnswer:
        uplink = network.uplink
        bridge, vlan = (None, None) if uplink is None else (uplink.bridge, uplink.vlan)
        return cls.copied_about(network, network.about, name=network.short, bridge=bridge, vlan=vlan)
