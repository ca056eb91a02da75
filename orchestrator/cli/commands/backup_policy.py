# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl backup policy …``"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import render_details, show, shown, width
from orchestrator.cli.parameters import AllTenants, ListTenant, Sort, Tenant, listed_tenant, vm_name
from orchestrator.cli.said import need_any
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, field, render_table, show_list, time
from orchestrator.cli.tree import new_group
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput
from orchestrator.core.maintenance.leaving import parse_window
from orchestrator.core.names import check_name
from orchestrator.core.units import parse_duration
from orchestrator.core.vms.backup_policy import MAX_EVERY_S, MAX_KEPT, MIN_EVERY_S
from orchestrator.core.vms.lease import show_span

app = new_group("Backups that are made by themselves, and which of them stay.")
_NOTHING: Final = frozenset({"none", "any", "never"})
"""In the place of hours or of a period; ``policy show`` says the latter two."""


def _policy_name(text: str) -> str:
    return check_name(text, what="backup policy")


def _vm_names(ctx: typer.Context, texts: list[str] | None) -> list[str] | None:
    return None if texts is None else [vm_name(ctx, text) for text in texts]


PolicyName = Annotated[str, typer.Argument(metavar="POLICY", help="Name of the policy.", callback=_policy_name)]
Target = Annotated[str | None, typer.Option("--target", help="Where backups go; else the only target.")]
Every = Annotated[str | None, typer.Option("--every", help="One backup of each VM in so long: 6h, 1d (usual), 7d.")]
Window = Annotated[str | None, typer.Option("--window", metavar="HH:MM-HH:MM", help="When one may begin, UTC; or any.")]
Daily = Annotated[int | None, typer.Option("--keep-daily", min=0, max=MAX_KEPT, help="Of so many days one stays (7).")]
Weekly = Annotated[int | None, typer.Option("--keep-weekly", min=0, max=MAX_KEPT, help="And of so many weeks (4).")]
Monthly = Annotated[int | None, typer.Option("--keep-monthly", min=0, max=MAX_KEPT, help="And of so many months (6).")]
Verify = Annotated[
    str | None, typer.Option("--verify-every", help="The newest of each VM is verified once in so long; or never.")
]
Vms = Annotated[
    list[str] | None,
    typer.Option("--vm", help="Of this VM, or TENANT/NAME; may be given again. Else of all.", callback=_vm_names),
]
Pause = Annotated[
    bool | None, typer.Option("--pause/--resume", help="It begins and removes nothing, until it is resumed.")
]
AllVms = Annotated[bool, typer.Option("--all-vms", help="Of all VMs of the tenant, now and later.")]


def _keeps(policy: Mapping[str, Any]) -> str:
    return f"{policy['keep_daily']}d {policy['keep_weekly']}w {policy['keep_monthly']}m"


def _states(policy: Mapping[str, Any]) -> str:
    counts = Counter(shown(vm["state"]) for vm in policy["standings"])
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none"


COLUMNS: Final = (
    field("POLICY", "name", Fit.WHOLE),
    field("TENANT", "tenant"),
    field("TARGET", "target"),
    Column("EVERY", lambda policy: show_span(policy["every_s"]), exact=lambda policy: policy["every_s"]),
    Column("PAUSED", lambda policy: "yes" if policy["paused"] else "no"),
    Column("WINDOW", lambda policy: shown(policy["window"] or "any")),
    Column("KEEPS", _keeps),
    Column("VMS", _states, Fit.WHOLE),
)
STANDINGS: Final = (
    field("VM", "vm", Fit.WHOLE),
    field("STATE", "state", Fit.WHOLE),
    field("BACKUPS", "backups"),
    time("LAST", "last_at"),
    time("VERIFIED", "verified_at"),
    time("NEXT", "next_at"),
    field("ERROR", "error"),
)


@app.command("create")
def create(
    ctx: typer.Context,
    name: PolicyName,
    target: Target = None,
    every: Every = None,
    window: Window = None,
    keep_daily: Daily = None,
    keep_weekly: Weekly = None,
    keep_monthly: Monthly = None,
    verify_every: Verify = None,
    vm: Vms = None,
    tenant: Tenant = "default",
) -> None:
    """Have a tenant's VMs backed up by themselves.

    The server begins what is due; of what the policy made, it removes what it does not keep.
    """
    values = _values(target, every, window, verify_every, vm)
    values |= _kept(keep_daily, keep_weekly, keep_monthly)
    made = session_of(ctx).client.create_backup_policy({"name": name, "tenant": tenant, **values})
    _show(ctx, made)


@app.command("list")
def list_policies(
    ctx: typer.Context, tenant: ListTenant = None, all_tenants: AllTenants = False, sort: Sort = None
) -> None:
    """List backup policies, with how many VMs stand how."""
    policies = session_of(ctx).client.backup_policies(listed_tenant(ctx, tenant, all_tenants=all_tenants))
    show_list(policies, COLUMNS, format_of(ctx), "no backup policies", sort)


@app.command("show")
def show_policy(ctx: typer.Context, name: PolicyName, tenant: Tenant = "default") -> None:
    """Show a backup policy, and how each VM stands."""
    _show(ctx, session_of(ctx).client.backup_policy(name, tenant))


@app.command("set")
def set_policy(
    ctx: typer.Context,
    name: PolicyName,
    target: Target = None,
    every: Every = None,
    window: Window = None,
    keep_daily: Daily = None,
    keep_weekly: Weekly = None,
    keep_monthly: Monthly = None,
    verify_every: Verify = None,
    vm: Vms = None,
    all_vms: AllVms = False,
    pause: Pause = None,
    tenant: Tenant = "default",
) -> None:
    """Change a backup policy; what is not named stays.

    What it keeps less of is removed after the next backup of each VM.
    """
    values = _values(target, every, window, verify_every, vm)
    values |= _kept(keep_daily, keep_weekly, keep_monthly)
    if all_vms and vm:
        raise InvalidInput("cli.usage", "--vm and --all-vms exclude each other", hint="give one of them")
    if all_vms:
        values["vms"] = []
    if pause is not None:
        values["paused"] = pause
    need_any(values, "backup policy set")
    _show(ctx, session_of(ctx).client.change_backup_policy(name, tenant, values))


@app.command("delete")
def delete(ctx: typer.Context, name: PolicyName, tenant: Tenant = "default", yes: Yes = False) -> None:
    """Delete a backup policy; its backups stay."""
    session = session_of(ctx)
    confirm("delete backup policy", [name], yes=yes)
    session.client.delete_backup_policy(name, tenant)
    show({"deleted": name}, session.format, lambda: [f"backup policy {name} is deleted"], name=name)


def _values(
    target: str | None, every: str | None, window: str | None, verify_every: str | None, vms: list[str] | None
) -> dict[str, object]:
    """Of what was given."""
    values: dict[str, object] = {}
    if target is not None:
        values["target"] = check_name(target, what="backup target")
    if every is not None:
        values["every_s"] = _span(every, "every")
    if window is not None:
        values["window"] = None if window in _NOTHING else str(parse_window(window))
    if verify_every is not None:
        values["verify_every_s"] = None if verify_every in _NOTHING else _span(verify_every, "verify_every")
    if vms:
        values["vms"] = vms
    return values


def _span(text: str, field_name: str) -> int:
    """Seconds. :raises InvalidInput: ``….invalid``, ``….out_of_range``"""
    seconds = parse_duration(text, field=field_name, at_most_s=MAX_EVERY_S)
    if seconds < MIN_EVERY_S:
        hint = f"{show_span(MIN_EVERY_S)} to {show_span(MAX_EVERY_S)}, for example 1d"
        raise InvalidInput(f"{field_name}.out_of_range", f"{field_name} {text} is too short", hint=hint)
    return seconds


def _kept(daily: int | None, weekly: int | None, monthly: int | None) -> dict[str, object]:
    given = {"keep_daily": daily, "keep_weekly": weekly, "keep_monthly": monthly}
    return {name: count for name, count in given.items() if count is not None}


def _show(ctx: typer.Context, policy: Json) -> None:
    show(policy, format_of(ctx), lambda: _lines(policy), name=policy["name"])


def _lines(policy: Json) -> list[str]:
    verify = policy["verify_every_s"]
    details = render_details([
        ("policy", f"{shown(policy['name'])} of tenant {shown(policy['tenant'])}"),
        ("target", shown(policy["target"])),
        ("every", show_span(policy["every_s"]) + (", paused" if policy["paused"] else "")),
        ("window", "any time" if policy["window"] is None else f"{shown(policy['window'])} UTC"),
        ("keeps", f"{policy['keep_daily']} daily, {policy['keep_weekly']} weekly, {policy['keep_monthly']} monthly"),
        ("verifies", "never" if verify is None else f"every {show_span(verify)}"),
        ("VMs", "all of the tenant" if not policy["vms"] else f"{len(policy['vms'])} named"),
    ])  # fmt: skip
    return [*details, "", *render_table(policy["standings"], STANDINGS, width())] if policy["standings"] else details
