# SPDX-License-Identifier: Apache-2.0
"""Moving a VM to another host."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from orchestrator.cli.ages import show_span
from orchestrator.cli.complete import hosts
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import Bandwidth, Name, Tenant, Wait, bandwidth_mib
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.vm_outcome import finish
from orchestrator.core.names import check_name
from orchestrator.core.units import show_size


def move(
    ctx: typer.Context,
    name: Name,
    to: Annotated[
        str | None,
        typer.Option("--to", help="The host that it goes to; otherwise placement says.", autocompletion=hosts),
    ] = None,
    bandwidth: Bandwidth = None,
    cold: Annotated[bool, typer.Option("--cold", help="Shut one that runs down for it, and start it there.")] = False,
    or_cold: Annotated[
        bool, typer.Option("--or-cold", help="The same where it cannot move while it runs, or that fails three times.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With these two: also when its tenant does not let VMs be stopped.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, change nothing.")] = False,
    tenant: Tenant = "default",
    wait: Wait = True,
) -> None:
    """Move a VM to another host, running if it may."""
    session = session_of(ctx)
    chosen = {"cold": cold, "or_cold": or_cold, "force": force}
    wanted: dict[str, object] = {option: True for option, on in chosen.items() if on}
    if to is not None:
        wanted["host"] = check_name(to, what="host")
    wanted |= bandwidth_mib(bandwidth)
    if not dry_run:
        finish(session, session.client.move_vm(name, tenant, wanted), tenant, wait=wait)
        return
    plan = session.client.plan_vm_move(name, tenant, wanted)
    rows = [
        ("from", shown(plan["source"])),
        ("to", shown(plan["target"])),
        ("GPUs", ", ".join(map(shown, plan["gpus"]))),
        ("why there", shown(plan["why"])),
        ("disk", show_size(plan["disk_bytes"])),
    ]
    if plan["live"]:
        rows += [
            ("moving it", _span(plan["live_low_s"], plan["live_high_s"], "no VM has moved while it ran yet")),
            ("standing still", _span(plan["pause_low_s"], plan["pause_high_s"], "no VM has moved while it ran yet")),
        ]
    else:
        rows.append(("copying it", _span(plan["copy_low_s"], plan["copy_high_s"], "no disk was copied yet")))
    show(plan, format_of(ctx), lambda: render_details(rows), name=plan["target"])


def _span(low_s: float | None, high_s: float | None, why: str) -> str:
    """``why``: it is not known."""
    if low_s is None or high_s is None:
        return f"not known: {why}"
    if high_s < 10:
        return f"{low_s:.1f} to {high_s:.1f} s"
    return f"{show_span(math.floor(low_s))} to {show_span(math.ceil(high_s))}"
