# SPDX-License-Identifier: Apache-2.0
"""/v1/networks of the site, /v1/tenants/{tenant}/networks of a tenant"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import Field

from orchestrator.api.auth import CallerOf
from orchestrator.api.http_answers import located, started
from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.permissions import may_operate
from orchestrator.api.schemas.base import (
    AboutAnswer,
    AnswerBody,
    DescribeBody,
    LabelsByKey,
    Name,
    NameInPath,
    TenantInPath,
)
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import SelectorOf, ServicesOf, TenantFilter
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.labels import selects
from orchestrator.core.overlay import (
    DHCP_OPTIONS,
    MAX_DNS_SERVERS,
    MAX_DOMAINS,
    MAX_SUBNETS,
    FlowLog,
    NewOvnNetwork,
    OvnNetworkChange,
    PeerState,
)
from orchestrator.core.peering import MAX_PEERS
from orchestrator.core.provider_networks import NewProviderNetwork
from orchestrator.core.vms.network import Network, short_name, tenant_of
from orchestrator.services.network_peers import change_peers
from orchestrator.services.vms.converting import convert


class AddNetworkBody(StrictForm, example={"name": "blue", "subnet": "10.88.1.0/24"}):
    """A network of kind nat, which is made on every host that needs it, or of kind ovn, over all hosts."""

    name: Name
    """What it is called."""
    subnet: str | None = Field(default=None, max_length=64)
    """None: the next free one; of kind ovn it is said."""
    kind: Literal["nat", "ovn"] = "nat"
    """``nat``: of each host. ``ovn``: over all hosts, where the site has OVN."""
    more_subnets: list[Annotated[str, Field(max_length=64)]] = Field(default=[], max_length=MAX_SUBNETS)
    """Of kind ovn: further ones."""
    mtu: int | None = None
    """Of kind ovn, in bytes; null: what 1500 bytes between hosts leave."""
    dns_servers: list[Annotated[str, Field(max_length=64)]] = Field(default=[], max_length=MAX_DNS_SERVERS)
    """Of kind ovn: addresses of servers that guests ask for names outside; none: names of the network alone."""
    out: Name | None = None
    """Of kind ovn: provider network that what its VMs send outside goes through, by NAT; null: nothing leads out."""

    search_domains: list[Annotated[str, Field(max_length=253)]] = Field(default=[], max_length=MAX_DOMAINS)
    """Of kind ovn: domains in which guests look names up, beside the network's own."""
    dhcp_options: dict[str, Annotated[str, Field(max_length=128)]] = Field(default={}, max_length=len(DHCP_OPTIONS))
    """Of kind ovn: further options that guests are told, as ``ntp_server``."""
    flow_log: FlowLog | None = None
    """Of kind ovn: which connections are on record; null: none."""

    def overlay(self) -> NewOvnNetwork | None:
        """None: no network of kind ovn. :raises InvalidInput: ``network.of_ovn``"""
        lists = (self.more_subnets, self.dns_servers, self.search_domains, self.dhcp_options)
        values = (self.mtu, self.out, self.flow_log)
        if self.kind == "nat" and (any(lists) or any(value is not None for value in values)):
            raise InvalidInput(
                "network.of_ovn",
                "more subnets, MTU, DNS, DHCP options, flow logs and a way out are said of networks of kind ovn",
                hint="say --kind ovn, or leave them out",
            )  # fmt: skip
        subnets = tuple(self.more_subnets) if self.subnet is None else (self.subnet, *self.more_subnets)
        new = NewOvnNetwork(
            subnets=subnets, mtu=self.mtu, dns=tuple(self.dns_servers) or None,
            search=tuple(self.search_domains) or None, dhcp=tuple(sorted(self.dhcp_options.items())) or None,
            flow_log=self.flow_log,
        )  # fmt: skip
        return None if self.kind == "nat" else new


class AddSiteNetworkBody(AddNetworkBody, example={"name": "office", "bridge": "br0", "vlan": 120}):
    """The same; a network on a bridge that hosts have, of the site or of one tenant; or a provider network of OVN's."""

    bridge: str | None = Field(default=None, max_length=64)
    """Linux bridge of hosts; null: a NAT network."""
    vlan: int | None = None
    """The bridge that hosts have for this VLAN of it; of a provider network its tag."""
    dhcp_servers: list[Annotated[str, Field(max_length=64)]] = Field(default=[], max_length=16)
    """IPv4 addresses whose answers give VMs theirs; none: any that is no VM."""
    tenant: Name | None = None
    """Of one with a bridge: whose alone it is; null: the site's."""
    provider: str | None = Field(default=None, max_length=64)
    """Physical network that ``ovn-bridge-mappings`` of hosts name; with it subnet, gateway and addresses are said."""
    gateway: str | None = Field(default=None, max_length=64)
    """Of a provider network: IPv4 address of the site's router there."""
    addresses: str | None = Field(default=None, max_length=64)
    """Of a provider network: the IPv4 addresses that OVN may give away, ``FIRST-LAST``."""

    def provider_network(self) -> NewProviderNetwork | None:
        """None: it is none. :raises InvalidInput: ``network.provider_incomplete``"""
        if self.provider is None and self.gateway is None and self.addresses is None:
            return None
        if None in {self.provider, self.subnet, self.gateway, self.addresses} or self.bridge or self.tenant or self.out:
            raise InvalidInput(
                "network.provider_incomplete", "a provider network is said by a mapping and what of it is OVN's",
                hint="--provider physnet1 --subnet 192.0.2.0/24 --gateway 192.0.2.1 --range 192.0.2.100-192.0.2.199",
            )  # fmt: skip
        return NewProviderNetwork(
            physical=self.provider or "", vlan=self.vlan, subnet=self.subnet or "", gateway=self.gateway or "",
            addresses=self.addresses or "", mtu=self.mtu,
            dns=tuple(self.dns_servers),
        )  # fmt: skip

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
        if self.subnet is not None or self.kind == "ovn":
            raise InvalidInput(
                "network.bridge_or_subnet",
                "a network on a bridge of hosts has its addresses from there",
                hint="leave --subnet out, or --bridge",
            )
        return Uplink(bridge=self.bridge, vlan=self.vlan)


class ChangeNetworkBody(DescribeBody, example={"mtu": 1400, "more_subnets": ["10.0.1.0/24"]}):
    """What is said of a network; what is not named stays. All but description and labels is of kind ovn."""

    more_subnets: list[Annotated[str, Field(max_length=64)]] = Field(default=[], max_length=MAX_SUBNETS)
    """Which it gets; none goes."""
    mtu: int | None = None
    """In bytes; VMs that run have the one before until they are started again."""
    dns_servers: list[Annotated[str, Field(max_length=64)]] | None = Field(default=None, max_length=MAX_DNS_SERVERS)
    """All of them; null: as they are."""
    search_domains: list[Annotated[str, Field(max_length=253)]] | None = Field(default=None, max_length=MAX_DOMAINS)
    """All of them; null: as they are."""
    dhcp_options: dict[str, Annotated[str, Field(max_length=128)] | None] = Field(default={}, max_length=64)
    """By name; null takes one away."""
    flow_log: FlowLog | None = None
    """Which connections are on record; null: as it is."""
    join: list[Annotated[str, Field(max_length=127)]] = Field(default=[], max_length=MAX_PEERS)
    """Networks whose routers it shall lead to, ``NAME`` or ``TENANT/NAME``; another tenant has to say so, too."""
    leave: list[Annotated[str, Field(max_length=127)]] = Field(default=[], max_length=MAX_PEERS)
    """Those that it leads to no more."""

    def change(self) -> OvnNetworkChange:
        lists = (self.dns_servers, self.search_domains)
        dns, search = (None if several is None else tuple(several) for several in lists)
        return OvnNetworkChange(
            more_subnets=tuple(self.more_subnets), mtu=self.mtu, dns=dns, search=search,
            dhcp=tuple(self.dhcp_options.items()), flow_log=self.flow_log,
        )  # fmt: skip


class NetworkPeerAnswer(AnswerBody):
    """A network that it leads to, or shall."""

    name: str
    """What it is called."""
    tenant: str | None
    """Whose it is."""
    state: PeerState
    """``asked``: by this network's tenant alone; ``offered``: by the other's; ``joined``: by both."""


class NetworkAnswer(AboutAnswer):
    """A network that VMs can be put on."""

    copied_from = (Network,)

    name: str
    """What it is called."""
    kind: Literal["nat", "bridge", "ovn", "provider"]
    """``ovn``: over all hosts. ``provider``: of the site, which leads out of those."""
    subnet: str | None
    """null: it is on a bridge of hosts."""
    more_subnets: tuple[str, ...]
    """Of kind ovn: further ones."""
    mtu: int | None
    """Of kind ovn, in bytes; null: that of its hosts."""
    bridge: str | None
    """Of the hosts' own; null: a NAT network of ours."""
    vlan: int | None
    """The VLAN that the bridge carries; null: none."""
    dhcp_servers: tuple[str, ...]
    dns_servers: tuple[str, ...]
    """Which its VMs are told; none: those of the bridge's DHCP server."""
    search_domains: tuple[str, ...]
    """Of kind ovn: in which guests look names up beside ``dns_domain``."""
    dhcp_options: LabelsByKey
    """Of kind ovn: what else guests are told, by name."""
    out: str | None
    """Provider network that leads out of it; null: none does."""
    out_address: str | None
    """As which its VMs are seen there."""
    provider: str | None
    """Physical network that a provider network is on."""
    gateway: str | None
    """Of a provider network: the site's router there."""
    addresses: str | None
    """Of a provider network: what OVN may give away of it."""
    peers: tuple[NetworkPeerAnswer, ...]
    """Of kind ovn: networks that it leads to, or shall."""
    flow_log: FlowLog
    """Which connections are on record; off of other kinds than ovn."""
    dns_domain: str | None
    """In which its VMs on one host find each other by name; null: of the site, or on a bridge of hosts."""
    tenant: str | None
    """Whose it is; null: the site's."""
    shared: bool

    @classmethod
    def of(cls, network: Network) -> NetworkAnswer:
        uplink = network.uplink
        bridge, vlan = (None, None) if uplink is None else (uplink.bridge, uplink.vlan)
        overlay = network.overlay
        out, provider = (None, None) if overlay is None else (overlay.out, overlay.provider)
        subnets = (network.subnet,) if overlay is None else overlay.subnets
        return cls.copied_about(
            network, network.about, name=network.short, kind=network.kind, subnet=subnets[0], more_subnets=subnets[1:],
            mtu=None if overlay is None else overlay.mtu, bridge=bridge,
            vlan=vlan if provider is None else provider.vlan,
            search_domains=() if overlay is None else overlay.search,
            dhcp_options=() if overlay is None else overlay.dhcp,
            out=out and out.network, out_address=out and out.address, provider=provider and provider.physical,
            gateway=provider and provider.gateway, addresses=provider and f"{provider.first}-{provider.last}",
            flow_log="off" if overlay is None else overlay.flow_log,
            peers=tuple(
                NetworkPeerAnswer(name=short_name(peer.network), tenant=tenant_of(peer.network), state=peer.state)
                for peer in (() if overlay is None else overlay.peers)
            ),
        )  # fmt: skip


router = APIRouter(prefix="/networks", tags=["networks"])
of_tenant = APIRouter(prefix="/tenants/{tenant}/networks", tags=["networks"])


@router.post("", status_code=201)
def add(response: Response, body: AddSiteNetworkBody, services: ServicesOf) -> NetworkAnswer:
    """Add a network. Create a NAT network of the site, shared with every tenant; or take a bridge of hosts, shared
    or for one tenant; or let OVN have addresses of a network of the site.

    Hosts get a NAT network when a VM needs it. A bridge is theirs: a host without it takes no VM of that network.
    """
    located(response, "networks", body.name)
    provided = body.provider_network()
    if provided is not None:
        return NetworkAnswer.of(services.provider_networks.add(body.name, provided))
    uplink = body.uplink()
    if body.overlay() is not None:
        raise InvalidInput(
            "network.ovn_shared", "a network of kind ovn is one tenant's: VMs on it reach each other",
            hint="leave --shared out and name whose it is: --tenant TENANT",
        )  # fmt: skip
    if uplink is None:
        return NetworkAnswer.of(services.networks.add(body.name, body.subnet))
    return NetworkAnswer.of(services.networks.add_bridged(body.name, uplink, tuple(body.dhcp_servers), body.tenant))


@router.get("")
def list_all(
    services: ServicesOf, caller: CallerOf, paging: SortedPagingOf, selector: SelectorOf, tenant: TenantFilter = None
) -> list[NetworkAnswer]:
    """List networks. Those that the caller may put VMs on: the shared ones by name, then by tenant."""
    usable = services.networks.list(caller.visible(tenant))
    selected = (network for network in usable if selects(selector, network.about.labels))
    return paging.answers(
        NetworkAnswer, selected, lambda network: (network.tenant or "", network.short), NetworkAnswer.of
    )


@router.get("/{name}")
def get(name: NameInPath, services: ServicesOf, caller: CallerOf) -> NetworkAnswer:
    """Get a network."""
    return NetworkAnswer.of(services.networks.get(name, everybody=caller.tenants is None))


@router.patch("/{name}")
def describe(name: NameInPath, body: DescribeBody, services: ServicesOf) -> NetworkAnswer:
    """Describe a network. Set description and labels of a network of the site; those not named stay."""
    return NetworkAnswer.of(services.networks.change(name, None, body.description, body.labels))


@router.delete("/{name}", status_code=204)
def delete(name: NameInPath, services: ServicesOf) -> None:
    """Delete a network of the site that no VM is on."""
    services.networks.delete(name)


@router.post("/{name}/share")
def share(name: NameInPath, services: ServicesOf) -> NetworkAnswer:
    """Share a network. Let tenants put VMs on a network of the site."""
    return NetworkAnswer.of(services.networks.share(name, shared=True))


@router.post("/{name}/unshare")
def unshare(name: NameInPath, services: ServicesOf) -> NetworkAnswer:
    """Unshare a network. Let no tenant put more VMs on a network of the site; those that are there stay."""
    return NetworkAnswer.of(services.networks.share(name, shared=False))


@of_tenant.post("", status_code=201)
def create(
    response: Response, tenant: TenantInPath, body: AddNetworkBody, services: ServicesOf, caller: CallerOf
) -> NetworkAnswer:
    """Create a tenant's network. One of its own, whose VMs reach each other there: on each host, or over all of them.
    Operators alone choose a subnet outside the site's range for tenants."""
    located(response, "tenants", tenant, "networks", body.name)
    overlay = body.overlay()
    if overlay is not None:
        return NetworkAnswer.of(services.networks.add_overlay(body.name, overlay, tenant, body.out))
    return NetworkAnswer.of(services.networks.add(body.name, body.subnet, tenant, operator=may_operate(caller)))


@of_tenant.get("/{name}")
def get_of_tenant(tenant: TenantInPath, name: NameInPath, services: ServicesOf) -> NetworkAnswer:
    """Get a tenant's network. What the tenant calls so: of its own, or shared."""
    return NetworkAnswer.of(services.networks.usable(tenant, name))


@of_tenant.patch("/{name}")
def change_of_tenant(
    tenant: TenantInPath, name: NameInPath, body: ChangeNetworkBody, services: ServicesOf, caller: CallerOf
) -> NetworkAnswer:
    """Change a tenant's network. Set description and labels of a network of the tenant's own, and what guests on one
    of kind ovn are told; what is not named stays. Networks that it joins and leaves are named alone."""
    if body.join or body.leave:
        if body.model_fields_set - {"join", "leave"}:
            raise InvalidInput(
                "network.peers_alone", "networks are joined and left alone", hint="say the rest in another request"
            )
        words = (services.networks, name, tenant, body.join, body.leave)
        return NetworkAnswer.of(change_peers(*words, operator=may_operate(caller)))
    changed = services.networks.change(name, tenant, body.description, body.labels, body.change())
    return NetworkAnswer.of(changed)


class ConvertNetworkBody(StrictForm, example={"out": "office"}):
    """How a network of kind ovn comes to be of one of hosts."""

    out: Name | None = None
    """Provider network that what its VMs send outside goes through, by NAT; null: nothing leads out any more."""


@of_tenant.post("/{name}/convert", status_code=202)
def convert_of_tenant(
    response: Response, tenant: TenantInPath, name: NameInPath, body: ConvertNetworkBody, services: ServicesOf,
    caller: CallerOf,
) -> StartedAnswer:  # fmt: skip
    """Convert a tenant's NAT network. It becomes one of kind ovn, over all hosts, while all its VMs are stopped; its
    range and their addresses stay."""
    return started(response, convert(services.network_cards, name, tenant, body.out), caller.tenants)


@of_tenant.delete("/{name}", status_code=204)
def delete_of_tenant(tenant: TenantInPath, name: NameInPath, services: ServicesOf, caller: CallerOf) -> None:
    """Delete a tenant's network that no VM is on. One on a bridge of hosts is
    an operator's to take."""
    services.networks.delete(name, tenant, operator=may_operate(caller))
