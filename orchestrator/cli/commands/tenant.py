# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl tenant …``"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.commands import tenant_key
from orchestrator.cli.complete import tenants
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import (
    Description,
    Label,
    Selector,
    Sort,
    Unlabel,
    tenant_name,
    tenant_or_everywhere,
)
from orchestrator.cli.said import SAID, need_something, said_by, said_of
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Fit, age, field, show_list
from orchestrator.cli.tree import new_group
from orchestrator.core.tenancy.access import Role
from orchestrator.core.vms.isolation import Isolation

app = new_group("Tenants and who belongs to them.")

COLUMNS: Final = (field("NAME", "name", Fit.WHOLE), age(), *SAID)
MEMBER_COLUMNS: Final = (field("MEMBER", "subject", Fit.WHOLE), field("ROLE", "role"))


Name = Annotated[str, typer.Argument(help="Name of the tenant.", autocompletion=tenants, callback=tenant_name)]
Place = Annotated[
    str,
    typer.Argument(
        help="Name of the tenant; '*' for roles that hold everywhere.",
        autocompletion=tenants,
        callback=tenant_or_everywhere,
    ),
]
Subject = Annotated[
    str,
    typer.Argument(
        metavar="WHO",
        help="uid:1000: a user of the server's machine. oidc:ADDRESS, oidc:@GROUP or oidc:sub:ID: who logs in.",
    ),
]


def _lines(tenant: Mapping[str, Any]) -> list[str]:
    pairs = [("name", shown(tenant["name"])), ("created", show_time(tenant["created_at"]))]
    return render_details([*pairs, *said_of(tenant)])


@app.command("create")
def create(
    ctx: typer.Context, name: Annotated[str, typer.Argument(help="Name of the new tenant.", callback=tenant_name)]
) -> None:
    """Create a tenant: VMs, members and tokens of its own."""
    tenant = session_of(ctx).client.create_tenant(name)
    show(tenant, format_of(ctx), lambda: _lines(tenant))


@app.command("list")
def list_tenants(ctx: typer.Context, selector: Selector = None, sort: Sort = None) -> None:
    """List the tenants that you may know of."""
    show_list(session_of(ctx).client.tenants(selector), COLUMNS, format_of(ctx), "no tenants", sort)


@app.command("show")
def show_tenant(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of the tenant; yours otherwise.",
            autocompletion=tenants,
            callback=lambda text: None if text is None else tenant_name(text),
        ),
    ] = None,
) -> None:
    """Show one tenant."""
    session = session_of(ctx)
    tenant = session.client.tenant(name or session.own_tenant)
    show(tenant, session.format, lambda: _lines(tenant))


@app.command("set")
def set_tenant(
    ctx: typer.Context,
    name: Name,
    isolation: Annotated[
        Isolation | None, typer.Option("--isolation", help="What is shared with other tenants, at most.")
    ] = None,
    description: Description = None,
    label: Label = None,
    unlabel: Unlabel = None,
) -> None:
    """Set a tenant's isolation, description and labels.

    Isolation: instance: only GPUs with GPU instances of their own (MIG); gpu: no GPU; host: no host; none: any GPU.
    Between two tenants the stricter one holds. VMs that are placed already stay; doctor names them.
    """
    client, changes = session_of(ctx).client, said_by(description, label, unlabel)
    if isolation is None or changes:
        need_something(changes)
        tenant = client.describe_tenant(name, changes)
        if isolation is None:
            show(tenant, format_of(ctx), lambda: _lines(tenant))
            return
    policy = client.change_policy(name, {"isolation": isolation})
    answer = {"name": name, "isolation": policy["isolation"]}
    show(answer, format_of(ctx), lambda: render_details([(key, shown(value)) for key, value in answer.items()]))


@app.command("delete")
def delete(ctx: typer.Context, name: Name, yes: Yes = False) -> None:
    """Delete a tenant that has no VMs. Its members and tokens go with it."""
    confirm("delete tenant", [name], yes=yes)
    session_of(ctx).client.delete_tenant(name)
    show({"name": name, "deleted": True}, format_of(ctx), lambda: [f"tenant {name} is deleted"])


@app.command("members")
def members(ctx: typer.Context, tenant: Place, sort: Sort = None) -> None:
    """Who has a role in a tenant."""
    show_list(session_of(ctx).client.members(tenant), MEMBER_COLUMNS, format_of(ctx), "no members", sort)


@app.command("add-member")
def add_member(
    ctx: typer.Context,
    tenant: Place,
    who: Subject,
    role: Annotated[Role, typer.Option("--role", help="What they may do.")] = "tenant-user",
) -> None:
    """Give somebody a role in a tenant. It replaces the one they had."""
    session_of(ctx).client.put_member(tenant, who, role)
    member = {"tenant": tenant, "subject": who, "role": role}
    show(member, format_of(ctx), lambda: [f"{shown(who)} is {role} in {tenant}"])


@app.command("remove-member")
def remove_member(ctx: typer.Context, tenant: Place, who: Subject) -> None:
    """Take somebody's role in a tenant away."""
    session_of(ctx).client.remove_member(tenant, who)
    show(
        {"tenant": tenant, "subject": who, "removed": True},
        format_of(ctx),
        lambda: [f"{shown(who)} is not in {tenant}"],
    )


app.add_typer(tenant_key.app, name="key")
