# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl quota …``"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import inf
from operator import itemgetter
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.complete import tenants
from orchestrator.cli.parameters import Sort, each_once, own_tenant_or_everywhere
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, field, show_list
from orchestrator.cli.tree import new_group
from orchestrator.core.errors import Denied, InvalidInput, NotFound
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.quota import COUNTS, check_resource, counted_by, parse_amount, show_amount

app = new_group("What tenants may hold, and what they do.")

Place = Annotated[
    str,
    typer.Argument(
        help="Name of the tenant; '*' for the pool that all share.",
        autocompletion=tenants,
        callback=own_tenant_or_everywhere,
    ),
]


def _used(line: Mapping[str, Any]) -> str:
    return show_amount(line["resource"], line["used"])


def _limit(line: Mapping[str, Any]) -> str:
    return "none" if line["limit"] is None else show_amount(line["resource"], line["limit"])


COLUMNS: Final = (
    field("RESOURCE", "resource", Fit.WHOLE),
    Column(
        "LIMIT", _limit, rank=lambda line: inf if line["limit"] is None else line["limit"], exact=itemgetter("limit")
    ),
    Column("USED", _used, rank=itemgetter("used"), exact=itemgetter("used")),
    Column("COUNTS", lambda line: counted_by(line["resource"]), wide=True),
)


ALL_COLUMNS: Final = (field("TENANT", "tenant", Fit.WHOLE), *COLUMNS)


@app.command("list")
def list_quotas(ctx: typer.Context, sort: Sort = None) -> None:
    """List what tenants may hold and hold; '*' is the pool that all share."""
    client = session_of(ctx).client
    limits: list[dict[str, Any]] = []
    for tenant in (EVERYWHERE, *(str(row["name"]) for row in client.tenants())):
        with suppress(Denied, NotFound):  # a tenant's own have no role everywhere; one may be deleted meanwhile
            lines = (line for line in client.quota(tenant) if line["used"] or line["limit"] is not None)
            limits += [{"tenant": tenant, **line} for line in lines]
    show_list(limits, ALL_COLUMNS, format_of(ctx), "no limits, and nothing is held", sort)


@app.command("show")
def show_quota(ctx: typer.Context, tenant: Place = "default", sort: Sort = None) -> None:
    """Show a tenant's limits and what it holds. Beyond its limit it takes from the pool."""
    show_list(session_of(ctx).client.quota(tenant), COLUMNS, format_of(ctx), "no limits", sort)


def _help() -> str:
    words = "\n".join(f"{name:12}{text}" for name, text in COUNTS.items())
    return (
        "Set limits of a tenant. Those not named stay, what is held stays held.\n\n"
        f"\b\nRESOURCE    counts\n{words}\n\n"
        "devices:MODEL and whole-gpus:MODEL are on GPUs of one model, by its name in vGPU types "
        "(devices:L40S, whole-gpus:H100XM); vgpus:PROFILE are of one profile."
    )


@app.command("set", help=_help())
def set_quota(
    ctx: typer.Context,
    tenant: Place,
    limits: Annotated[
        list[str],
        typer.Argument(metavar="RESOURCE=AMOUNT...", help="For example devices=2 framebuffer=40GiB vms=none."),
    ],
    anyway: Annotated[bool, typer.Option("--anyway", help="Also limits of GPU models that no host has yet.")] = False,
) -> None:
    wanted = each_once(limits, _parsed)
    quota = session_of(ctx).client.change_quota(tenant, wanted, anyway=anyway)
    show_list(quota, COLUMNS, format_of(ctx), "no limits")


def _parsed(text: str) -> tuple[str, int | None]:
    resource, equals, amount = text.partition("=")
    if not equals:
        raise InvalidInput("quota.invalid", f"{text[:40]!a} sets nothing", hint="write RESOURCE=AMOUNT, like devices=2")
    return check_resource(resource), parse_amount(resource, amount)
