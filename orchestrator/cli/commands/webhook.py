# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl webhook …``"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import Sort, own_tenant_or_everywhere
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, age, field, show_list
from orchestrator.cli.tree import new_group
from orchestrator.core.event import NOUNS
from orchestrator.core.units import times

app = new_group("Addresses that are told what happens.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the webhook.")]
Whose = Annotated[
    str, typer.Option("--tenant", help="Whose events; '*': everybody's.", callback=own_tenant_or_everywhere)
]


def _state(webhook: Mapping[str, Any]) -> str:
    if webhook["dead"]:
        return "dead"
    return "no failure" if webhook["why"] is None else f"failed {times(webhook['failed'])}"


def _about(webhook: Mapping[str, Any]) -> str:
    return shown(webhook["nouns"]) if webhook["nouns"] else "everything"


COLUMNS: Final = (
    field("NAME", "name", Fit.WHOLE),
    field("TENANT", "tenant", Fit.WHOLE),
    Column("STATE", _state, Fit.WHOLE),
    Column("ABOUT", _about, Fit.WRAP),
    field("URL", "url"),
    age(),
    field("WHY", "why", wide=True),
)


@app.command("create")
def create(
    ctx: typer.Context,
    name: Name,
    url: Annotated[str, typer.Option("--url", help="https:// address that takes POST requests.")],
    tenant: Whose = "default",
    noun: Annotated[
        list[str] | None, typer.Option("--noun", metavar="NOUN", help=f"Only about these: {', '.join(NOUNS)}.")
    ] = None,
) -> None:
    """Tell an address what happens from now on. Its secret, which requests are signed with, is shown this once."""
    wanted = {"name": name, "url": url, "tenant": tenant, "nouns": noun or []}
    made = session_of(ctx).client.create_webhook(wanted)
    lines = [("secret", shown(made["secret"])), ("name", shown(name))]
    show(made, format_of(ctx), lambda: render_details(lines), name=name)


@app.command("list")
def list_webhooks(ctx: typer.Context, tenant: Whose = "default", sort: Sort = None) -> None:
    """List webhooks of a tenant."""
    webhooks = session_of(ctx).client.webhooks(tenant)
    show_list(webhooks, COLUMNS, format_of(ctx), "no webhooks yet: vgpuctl webhook create NAME --url URL", sort)


@app.command("show")
def show_webhook(ctx: typer.Context, name: Name, tenant: Whose = "default") -> None:
    """Show one webhook, and what came of the last request."""
    webhook = session_of(ctx).client.webhook(name, tenant)
    pairs = [("name", shown(webhook["name"])), ("tenant", shown(webhook["tenant"])), ("url", shown(webhook["url"]))]
    pairs += [("about", _about(webhook)), ("state", _state(webhook)), ("created", show_time(webhook["created_at"]))]
    if webhook["why"] is not None:
        pairs += [("fails since", show_time(webhook["failing_since"])), ("why", shown(webhook["why"]))]
    show(webhook, format_of(ctx), lambda: render_details(pairs), name=name)


@app.command("delete")
def delete(ctx: typer.Context, name: Name, tenant: Whose = "default", yes: Yes = False) -> None:
    """Tell an address nothing more."""
    confirm("delete webhook", [name], yes=yes)
    session_of(ctx).client.delete_webhook(name, tenant)
    print(f"webhook {shown(name)} is deleted")


@app.command("test")
def send_test(ctx: typer.Context, name: Name, tenant: Whose = "default") -> None:
    """Send one request now. A dead webhook goes on when it is taken."""
    session_of(ctx).client.test_webhook(name, tenant)
    print(f"webhook {shown(name)} took it")
