# SPDX-License-Identifier: Apache-2.0
"""Bodies about networks."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, Name, RequestBody
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.vms.network import Network


class AddNetworkBody(RequestBody):
    """A NAT network to make on every host that needs it."""

    model_config = ConfigDict(
        title="AddNetwork", json_schema_extra={"examples": [{"name": "blue", "subnet": "10.88.1.0/24"}]}
    )

    name: Name
    subnet: str | None = Field(default=None, max_length=64, description="None: the next free one")


class AddSiteNetworkBody(AddNetworkBody):
    """The same, or a network on a bridge that hosts have: of the site or of one tenant."""

    model_config = ConfigDict(
        title="AddSiteNetwork", json_schema_extra={"examples": [{"name": "office", "bridge": "br0", "vlan": 120}]}
    )

    bridge: str | None = Field(default=None, max_length=64, description="Linux bridge of hosts; null: a NAT network")
    vlan: int | None = Field(default=None, description="The bridge that hosts have for this VLAN of it")
    dhcp_servers: list[Annotated[str, Field(max_length=64)]] = Field(
        default=[], max_length=16, description="IPv4 addresses whose answers give VMs theirs; none: any that is no VM"
    )
    tenant: Name | None = Field(default=None, description="Of one with a bridge: whose alone it is; null: the site's")

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


class NetworkAnswer(AnswerBody):
    """A network that VMs can be put on."""

    name: str
    subnet: str | None = Field(description="null: it is on a bridge of hosts")
    bridge: str | None = Field(description="Of the hosts' own; null: a NAT network of ours")
    vlan: int | None = Field(description="The VLAN that the bridge carries; null: none")
    dhcp_servers: tuple[str, ...] = Field(description="Whose answers give VMs their addresses; none: any that is no VM")
    dns_servers: tuple[str, ...] = Field(description="Which its VMs are told; none: those of the bridge's DHCP server")
    dns_domain: str | None = Field(
        description="In which its VMs on one host find each other by name; null: of the site, or on a bridge of hosts"
    )
    tenant: str | None = Field(description="Whose it is; null: the site's")
    shared: bool = Field(description="Every tenant may put VMs on it, which do not reach each other there")
    description: str = Field(description="What people say of it")
    labels: dict[str, str]

    @classmethod
    def of(cls, network: Network) -> NetworkAnswer:
        return cls(
            name=network.short,
            subnet=network.subnet,
            bridge=None if network.uplink is None else network.uplink.bridge,
            vlan=None if network.uplink is None else network.uplink.vlan,
            dhcp_servers=network.dhcp_servers,
            dns_servers=network.dns_servers,
            dns_domain=network.dns_domain,
            tenant=network.tenant,
            shared=network.shared,
            description=network.about.description,
            labels=dict(network.about.labels),
        )
