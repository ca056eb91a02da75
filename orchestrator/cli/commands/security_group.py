# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl security-group …``"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from orchestrator.cli.complete import networks, security_groups, vms
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
    vm_name_if_any,
)
from orchestrator.cli.said import SAID, said_of, something_said
from orchestrator.cli.scope import scoped_name
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, field, show_list
from orchestrator.cli.tree import new_group
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.security_groups import Direction, Protocol, SecurityRule, check_rule, parse_ports

app = new_group("Who may reach VMs, and whom they may reach: rules of a tenant.")
rule_app = new_group("Rules of a security group: what may pass, and what may not.")
app.add_typer(rule_app, name="rule")

_SHOWN: Final = 5
"""Of what a group is on, in a hint."""


def _text(rule: Json) -> str:
    return shown(str(SecurityRule(**rule)))


def _place(use: Json) -> str:
    words = [*([f"VM {use['vm']}"] if use["vm"] else []), *([f"network {use['network']}"] if use["network"] else [])]
    return shown(" on ".join(words))


COLUMNS: Final = (
    field("NAME", "name", Fit.WHOLE),
    field("TENANT", "tenant", spare=True),
    Column("RULES", lambda group: "; ".join(map(_text, group["rules"])) or "none", Fit.WRAP),
    Column("ON", lambda group: "; ".join(map(_place, group["uses"])) or "nothing", Fit.WRAP),
    *SAID,
)


def _group_name(ctx: typer.Context, text: str) -> str:
    return scoped_name(ctx, text, "group")


def _network_if_any(ctx: typer.Context, text: str | None) -> str | None:
    return None if text is None else scoped_name(ctx, text, "network")


Name = Annotated[
    str,
    typer.Argument(
        help="Name of the security group, or TENANT/NAME.", autocompletion=security_groups, callback=_group_name
    ),
]
NewName = Annotated[str, typer.Argument(help="Name of the new security group.", callback=_group_name)]
InOrOut = Annotated[Direction, typer.Argument(help="in: to the VM; out: from it.")]
OfProtocol = Annotated[Protocol, typer.Argument(help="any, tcp, udp or icmp.")]
Ports = Annotated[
    str | None, typer.Option("--port", help="Port of the receiver, or a range like 8000-8080; else every one.")
]
Remote = Annotated[str | None, typer.Option("--range", help="The other side's addresses, like 10.0.0.0/8.")]
Other = Annotated[
    str | None,
    typer.Option("--group", help="The other side is a card of this group.", autocompletion=security_groups),
]
Refuse = Annotated[bool, typer.Option("--refuse", help="It refuses, whatever other rules of the card's groups allow.")]
OfVm = Annotated[
    str | None, typer.Option("--vm", help="A VM of the tenant.", autocompletion=vms, callback=vm_name_if_any)
]
OnNetwork = Annotated[
    str | None,
    typer.Option(
        "--network", help="All its VMs on this network; with --vm, that VM's card there.", autocompletion=networks,
        callback=_network_if_any,
    ),
]  # fmt: skip


def _details(group: Json) -> list[str]:
    return render_details(
        [
            ("name", shown(group["name"])),
            ("tenant", shown(group["tenant"])),
            *(("rule", _text(rule)) for rule in group["rules"]),
            *(("on", _place(use)) for use in group["uses"]),
            *said_of(group),
        ]
    )


def _show(ctx: typer.Context, group: Json) -> None:
    show(group, format_of(ctx), lambda: _details(group))


@app.command("create")
def create(ctx: typer.Context, name: NewName, tenant: Tenant = "default") -> None:
    """Create a security group. It lets everything out and nothing in, until it has other rules."""
    _show(ctx, session_of(ctx).client.create_security_group({"name": name, "tenant": tenant}))


@app.command("list")
def list_groups(
    ctx: typer.Context,
    tenant: ListTenant = None,
    all_tenants: AllTenants = False,
    selector: Selector = None,
    sort: Sort = None,
) -> None:
    """List security groups, their rules and what they are on. Cards without any are in the one called default."""
    only = listed_tenant(ctx, tenant, all_tenants=all_tenants)
    groups = session_of(ctx).client.security_groups(only, selector)
    show_list(groups, COLUMNS, format_of(ctx), "no security groups", sort)


@app.command("show")
def show_group(ctx: typer.Context, name: Name, tenant: Tenant = "default") -> None:
    """Show one security group."""
    _show(ctx, session_of(ctx).client.security_group(name, tenant))


@app.command("set")
def set_group(
    ctx: typer.Context,
    name: Name,
    tenant: Tenant = "default",
    description: Description = None,
    label: Label = None,
    unlabel: Unlabel = None,
) -> None:
    """Set a security group's description and labels."""
    changes = something_said(description, label, unlabel)
    _show(ctx, session_of(ctx).client.describe_security_group(name, changes, tenant))


@app.command("apply")
def apply_group(
    ctx: typer.Context, name: Name, vm: OfVm = None, network: OnNetwork = None, tenant: Tenant = "default"
) -> None:
    """Put a security group on a VM, on its card there, or on a network."""
    _change_uses(ctx, name, tenant, {"add": [_use(vm, network)]})


@app.command("withdraw")
def withdraw_group(
    ctx: typer.Context, name: Name, vm: OfVm = None, network: OnNetwork = None, tenant: Tenant = "default"
) -> None:
    """Take a security group from where it was put. It is named by the words of apply."""
    use = _use(vm, network)
    check_on(session_of(ctx).client.security_group(name, tenant), use)
    _change_uses(ctx, name, tenant, {"remove": [use]})


def check_on(group: Json, use: Json) -> None:
    """Who closes an access must not believe that this did it. :raises NotFound: ``group.not_there``"""
    if use not in group["uses"]:
        name, on = shown(group["name"]), "; ".join(map(_place, group["uses"][:_SHOWN])) or "nothing"
        hint = f"it is on {on}; 'vgpuctl security-group show {name}' has all of it"
        raise NotFound("group.not_there", f"group {name} is not on {_place(use)}", hint=hint)


def _use(vm: str | None, network: str | None) -> dict[str, str | None]:
    """:raises InvalidInput: ``cli.usage``"""
    if vm is None and network is None:
        raise InvalidInput("cli.usage", "a security group is on a VM, a network or both", hint="--vm, --network")
    return {"vm": vm, "network": network}


def _change_uses(ctx: typer.Context, name: str, tenant: str, changes: dict[str, object]) -> None:
    _show(ctx, session_of(ctx).client.change_group_uses(name, changes, tenant))


@app.command("delete")
def delete(ctx: typer.Context, name: Name, tenant: Tenant = "default", yes: Yes = False) -> None:
    """Delete a security group that is on nothing and that no rule names."""
    client = session_of(ctx).client
    confirm("delete security group", [name], yes=yes)
    client.delete_security_group(name, tenant)
    show({"name": name, "deleted": True}, format_of(ctx), lambda: [f"{name} is deleted"])


@rule_app.command("add")
def add_rule(
    ctx: typer.Context,
    name: Name,
    direction: InOrOut,
    protocol: OfProtocol,
    port: Ports = None,
    remote: Remote = None,
    group: Other = None,
    refuse: Refuse = False,
    tenant: Tenant = "default",
) -> None:
    """Let something pass, or refuse it. From or to anywhere, unless a range or a group is named."""
    _change_rules(ctx, name, tenant, {"add": [_rule(direction, protocol, port, remote, group, refuse=refuse)]})


@rule_app.command("remove")
def remove_rule(
    ctx: typer.Context,
    name: Name,
    direction: InOrOut,
    protocol: OfProtocol,
    port: Ports = None,
    remote: Remote = None,
    group: Other = None,
    refuse: Refuse = False,
    tenant: Tenant = "default",
) -> None:
    """Take a rule away. It is named by the same words as rule add has."""
    _change_rules(ctx, name, tenant, {"remove": [_rule(direction, protocol, port, remote, group, refuse=refuse)]})


def _rule(
    direction: Direction, protocol: Protocol, port: str | None, remote: str | None, group: str | None, *, refuse: bool
) -> dict[str, object]:
    """:raises InvalidInput: ``group.rule_invalid``"""
    first, last = parse_ports(port)
    rule = check_rule(
        SecurityRule(
            direction=direction, protocol=protocol, first_port=first, last_port=last, remote=remote, group=group,
            refuse=refuse,
        )
    )  # fmt: skip
    return {name: getattr(rule, name) for name in rule.__slots__}


def _change_rules(ctx: typer.Context, name: str, tenant: str, changes: dict[str, object]) -> None:
    _show(ctx, session_of(ctx).client.change_group_rules(name, changes, tenant))
