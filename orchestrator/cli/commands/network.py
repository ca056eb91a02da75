# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl network …``"""

from __future__ import annotations

import sys
from typing import Annotated, Final, Literal

import typer

from orchestrator.cli.commands import network_cards, network_traffic
from orchestrator.cli.commands.floating_address import app as address_app
from orchestrator.cli.commands.network_driver import app as driver_app
from orchestrator.cli.complete import networks
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import (
    AllTenants,
    Description,
    Label,
    ListTenant,
    Selector,
    Sort,
    Tenant,
    Unlabel,
    listed_tenant,
    tenant_if_named,
)
from orchestrator.cli.said import SAID, need_something, said_by, said_of
from orchestrator.cli.scope import noted_tenant, scoped_name
from orchestrator.cli.session import Format, format_of, session_of
from orchestrator.cli.table import Column, Fit, field, show_list
from orchestrator.cli.tree import new_group
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput
from orchestrator.core.overlay import FlowLog

app = new_group("Networks that VMs are put on: of one tenant, or shared.")
app.add_typer(driver_app, name="driver")
app.add_typer(address_app, name="address")
app.command("attach")(network_cards.attach)
app.command("detach")(network_cards.detach)
app.command("explain")(network_traffic.explain)
app.command("flows")(network_traffic.flows)
app.command("convert")(network_cards.convert)

_SHARED: Final = "shared"
_NOT_SHARED: Final = "site, not shared"
"""Of the site, and no tenant may put more VMs on it."""


def _owner(network: Json) -> str:
    return shown(network["tenant"] or (_SHARED if network["shared"] else _NOT_SHARED))


def _whose(network: Json) -> str:
    return f"of tenant {shown(network['tenant'])}" if network["tenant"] else _owner(network)


def _place(network: Json) -> str:
    """Its subnets, or the bridge of hosts that it is on."""
    if network["bridge"] is None:
        return shown([network["subnet"], *network["more_subnets"]])
    vlan = "" if network["vlan"] is None else f"VLAN {shown(network['vlan'])} of "
    return f"{vlan}{shown(network['bridge'])}"


COLUMNS: Final = (
    field("NAME", "name", Fit.WHOLE),
    Column("WHOSE", _owner, Fit.WHOLE),
    field("KIND", "kind", Fit.WHOLE),
    Column("SUBNET", _place),
    *SAID,
)


def _network_name(ctx: typer.Context, text: str) -> str:
    return scoped_name(ctx, text, "network")


Name = Annotated[
    str, typer.Argument(help="Name of the network, or TENANT/NAME.", autocompletion=networks, callback=_network_name)
]
NewName = Annotated[str, typer.Argument(help="Name of the new network.", callback=_network_name)]
Subnet = Annotated[str | None, typer.Option("--subnet", help="For example 10.88.1.0/24; a free one otherwise.")]
Subnets = Annotated[
    list[str] | None,
    typer.Option("--subnet", help="For example 10.88.1.0/24; a free one otherwise. Kind ovn needs one, or more."),
]
DhcpOptions = Annotated[
    list[str] | None,
    typer.Option("--dhcp-option", help="Of kind ovn: NAME=VALUE like ntp_server=192.0.2.7; may be repeated."),
]
FlowLogged = Annotated[
    FlowLog | None, typer.Option("--flow-log", help="Of kind ovn: connections that 'network flows' shows.")
]
OfSite = Annotated[bool, typer.Option("--shared", help="The site's own, for the VMs of every tenant (operators).")]


def _tenant_of(ctx: typer.Context, tenant: str, *, of_site: bool) -> str | None:
    """None: the site's. :raises InvalidInput: ``cli.usage``: both were named"""
    if of_site and noted_tenant(ctx) is not None:
        raise InvalidInput(
            "cli.usage", "a network is a tenant's own or --shared", hint="leave --shared or the tenant out"
        )
    return None if of_site else tenant


def _show(network: Json, output: Format) -> None:
    show(network, output, lambda: [f"{shown(network['name'])}: {_place(network)}, {_whose(network)}"])


@app.command("create")
def create(
    ctx: typer.Context,
    name: NewName,
    subnet: Subnets = None,
    kind: Annotated[
        Literal["nat", "ovn"], typer.Option("--kind", help="nat: of each host; ovn: over all hosts (OVN).")
    ] = "nat",
    mtu: Annotated[int | None, typer.Option("--mtu", help="Of kind ovn: bytes of a packet; 1442 otherwise.")] = None,
    dns_server: Annotated[
        list[str] | None,
        typer.Option("--dns-server", help="Of kind ovn: address that guests ask for names; may be repeated."),
    ] = None,
    search_domain: Annotated[
        list[str] | None,
        typer.Option("--search-domain", help="Of kind ovn: where guests look names up too; may be repeated."),
    ] = None,
    dhcp_option: DhcpOptions = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            help="Of kind ovn: provider network that leads outside, by NAT; none otherwise.",
            autocompletion=networks,
        ),
    ] = None,
    flow_log: FlowLogged = None,
    tenant: Tenant = "default",
    of_site: OfSite = False,
) -> None:
    """Create a network of a tenant, where its VMs reach each other. Hosts get it when a VM needs it."""
    given = subnet or []
    wanted = {
        "name": name, "subnet": next(iter(given), None), "kind": kind, "more_subnets": given[1:], "mtu": mtu,
        "dns_servers": dns_server or [], "search_domains": search_domain or [], "dhcp_options": _options(dhcp_option),
        "out": out, "flow_log": flow_log,
    }  # fmt: skip
    _show(session_of(ctx).client.add_network(wanted, _tenant_of(ctx, tenant, of_site=of_site)), format_of(ctx))


@app.command("add")
def add(
    ctx: typer.Context,
    name: NewName,
    subnet: Subnet = None,
    bridge: Annotated[str | None, typer.Option("--bridge", help="Linux bridge that hosts have by themselves.")] = None,
    vlan: Annotated[
        int | None,
        typer.Option(
            "--vlan", min=1, max=4094, help="The bridge that hosts have for this VLAN of it; the tag of --provider."
        ),
    ] = None,
    dhcp_server: Annotated[
        list[str] | None,
        typer.Option("--dhcp-server", help="IPv4 address of a DHCP server there that is believed; may be repeated."),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", help="Whose alone the bridge is; shared otherwise.", callback=tenant_if_named),
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", help="Provider network: the mapping of hosts that it is on (OVN).")
    ] = None,
    gateway: Annotated[str | None, typer.Option("--gateway", help="Of --provider: the site's router there.")] = None,
    addresses: Annotated[
        str | None, typer.Option("--range", help="Of --provider: what OVN may give away, like 192.0.2.100-192.0.2.199.")
    ] = None,
) -> None:
    """Add a bridge of hosts or a provider network as a network (operators).

    With neither --bridge nor --provider it is the same as create --shared."""
    wanted = {
        "name": name,
        "subnet": subnet,
        "bridge": bridge,
        "vlan": vlan,
        "dhcp_servers": dhcp_server or [],
        "tenant": tenant,
        "provider": provider,
        "gateway": gateway,
        "addresses": addresses,
    }
    _show(session_of(ctx).client.add_network(wanted), format_of(ctx))


@app.command("list")
def list_networks(
    ctx: typer.Context,
    tenant: ListTenant = None,
    all_tenants: AllTenants = False,
    selector: Selector = None,
    sort: Sort = None,
) -> None:
    """List networks that VMs can be put on. A tenant's default one comes with its first VM."""
    only = listed_tenant(ctx, tenant, all_tenants=all_tenants)
    show_list(session_of(ctx).client.networks(only, selector), COLUMNS, format_of(ctx), "no networks", sort)


@app.command("show")
def show_network(ctx: typer.Context, name: Name, tenant: Tenant = "default", of_site: OfSite = False) -> None:
    """Show one network and the VMs on it that you may know of."""
    client = session_of(ctx).client
    network = client.network(name, _tenant_of(ctx, tenant, of_site=of_site))
    wanted = (name, network["tenant"])
    members = [vm for vm in client.vms(network["tenant"]) for card in vm["cards"] if _network_of(card) == wanted]
    vms = [f"{vm['tenant']}/{vm['name']}" for vm in members]
    traffic = None if network["tenant"] is None else client.network_traffic(name, network["tenant"])
    lines = [("VMs", shown(vms)), *([] if traffic is None else network_traffic.totals(traffic))]
    show({**network, "vms": vms, "traffic": traffic}, format_of(ctx), lambda: _details(network, *lines))


def _details(network: Json, *more: tuple[str, str]) -> list[str]:
    return render_details(
        [
            ("name", shown(network["name"])),
            ("whose", _owner(network)),
            ("kind", shown(network["kind"])),
            ("subnet" if network["bridge"] is None else "bridge", _place(network)),
            *([] if network["mtu"] is None else [("MTU", shown(network["mtu"]))]),
            *_outside(network),
            ("DHCP servers", shown(network["dhcp_servers"] or ("any" if network["bridge"] else "its own"))),
            ("DNS servers", shown(network["dns_servers"] or "as its DHCP server says")),
            ("DNS domain", shown(network["dns_domain"])),
            *([("search domains", shown(network["search_domains"]))] if network["search_domains"] else []),
            *(("leads to", shown(f"{peer['tenant']}/{peer['name']} ({peer['state']})")) for peer in network["peers"]),
            *(("DHCP option", shown(f"{name}={value}")) for name, value in sorted(network["dhcp_options"].items())),
            *([("flow log", shown(network["flow_log"]))] if network["kind"] == "ovn" else []),
            *more,
            *said_of(network),
        ]
    )


def _outside(network: Json) -> list[tuple[str, str]]:
    """What a provider network is of, and the way out of others."""
    if network["kind"] == "provider":
        vlan = "" if network["vlan"] is None else f"VLAN {shown(network['vlan'])} of "
        own = [("provider", f"{vlan}{shown(network['provider'])}"), ("gateway", shown(network["gateway"]))]
        return [*own, ("addresses", shown(network["addresses"]))]
    if network["kind"] != "ovn":
        return []
    through = f"NAT through {shown(network['out'])}, as {shown(network['out_address'])}"
    return [("way out", "none" if network["out"] is None else through)]


def _network_of(card: Json) -> tuple[str, str | None]:
    return (card["network"], card["network_tenant"])


@app.command("set")
def set_network(
    ctx: typer.Context,
    name: Name,
    tenant: Tenant = "default",
    of_site: OfSite = False,
    description: Description = None,
    label: Label = None,
    unlabel: Unlabel = None,
    mtu: Annotated[int | None, typer.Option("--mtu", help="Of kind ovn: bytes of a packet.")] = None,
    dns_server: Annotated[
        list[str] | None,
        typer.Option("--dns-server", help="Of kind ovn: all that guests ask for names; none: no other than OVN."),
    ] = None,
    search_domain: Annotated[
        list[str] | None, typer.Option("--search-domain", help="Of kind ovn: all where names are looked up; or none.")
    ] = None,
    dhcp_option: DhcpOptions = None,
    flow_log: FlowLogged = None,
    more_subnet: Annotated[
        list[str] | None, typer.Option("--add-subnet", help="Of kind ovn: a further subnet; may be repeated.")
    ] = None,
    join: Annotated[
        list[str] | None, typer.Option("--join", help="Of kind ovn: NAME or TENANT/NAME that it shall lead to.")
    ] = None,
    leave: Annotated[
        list[str] | None, typer.Option("--leave", help="Of kind ovn: NAME or TENANT/NAME that it leads to no more.")
    ] = None,
) -> None:
    """Set what is said of a network, and what guests are told (kind ovn)."""
    lists = {"dns_servers": dns_server, "search_domains": search_domain}
    of_ovn: dict[str, object] = {name: _all_or_none(several) for name, several in lists.items() if several is not None}
    of_ovn |= {name: value for name, value in {"mtu": mtu, "flow_log": flow_log}.items() if value is not None}
    of_ovn |= {"dhcp_options": _options(dhcp_option)} if dhcp_option else {}
    peers = {"more_subnets": more_subnet, "join": join, "leave": leave}
    of_ovn |= {name: several for name, several in peers.items() if several}
    changes = said_by(description, label, unlabel) | of_ovn
    need_something(changes)
    place = _tenant_of(ctx, tenant, of_site=of_site)
    client = session_of(ctx).client
    before = client.network(name, place) if mtu is not None else None
    network = client.describe_network(name, changes, place)
    show(network, format_of(ctx), lambda: _details(network))
    if before is not None and before["mtu"] != network["mtu"]:
        running = [vm["name"] for vm in client.vms(tenant) if vm["state"] == "running" and _is_on(vm, name, tenant)]
        if running:
            names = shown(", ".join(running))
            print(f"VMs that run keep an MTU of {before['mtu']} until they restart: {names}", file=sys.stderr)


def _is_on(vm: Json, network: str, tenant: str) -> bool:
    return (network, tenant) in [_network_of(card) for card in vm["cards"]]


def _all_or_none(several: list[str]) -> list[str]:
    return [] if several == ["none"] else several


def _options(words: list[str] | None) -> dict[str, str | None]:
    """``NAME=VALUE``, and ``NAME=`` for one that goes. :raises InvalidInput: ``cli.usage``"""
    pairs = [word.partition("=") for word in words or ()]
    for word, sign, _ in pairs:
        if not sign:
            hint = "write it as NAME=VALUE: ntp_server=192.0.2.7"
            raise InvalidInput("cli.usage", f"--dhcp-option {ascii(word)[:60]} has no value", hint=hint)
    return {name: value or None for name, _, value in pairs}


@app.command("share")
def share(ctx: typer.Context, name: Name) -> None:
    """Let every tenant put VMs on a network of the site. They do not reach each other there."""
    _show(session_of(ctx).client.share_network(name, shared=True), format_of(ctx))


@app.command("unshare")
def unshare(ctx: typer.Context, name: Name) -> None:
    """Let no tenant put more VMs on a network of the site. Those that are there stay."""
    _show(session_of(ctx).client.share_network(name, shared=False), format_of(ctx))


@app.command("delete")
def delete(
    ctx: typer.Context, name: Name, tenant: Tenant = "default", of_site: OfSite = False, yes: Yes = False
) -> None:
    """Delete a network that no VM is on."""
    place = _tenant_of(ctx, tenant, of_site=of_site)
    confirm("delete network", [name], yes=yes)
    session_of(ctx).client.delete_network(name, place)
    show({"name": name, "deleted": True}, format_of(ctx), lambda: [f"{name} is deleted"])


@app.command("remove")
def remove(
    ctx: typer.Context,
    name: Name,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Whose it is; the site's otherwise.", callback=tenant_if_named)
    ] = None,
    yes: Yes = False,
) -> None:
    """Remove what add added, when no VM is on it (operators). Bridges of hosts stay as they are."""
    confirm("remove network", [name], yes=yes)
    session_of(ctx).client.delete_network(name, tenant)
    show({"name": name, "deleted": True}, format_of(ctx), lambda: [f"{name} is removed"])
