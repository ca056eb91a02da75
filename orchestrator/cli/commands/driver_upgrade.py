# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl driver upgrade``"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from orchestrator.cli.commands.maintenance import (
    REBOOTS,
    At,
    Length,
    Parallel,
    Reason,
    finish,
    followed,
    overridden,
    planned,
    why,
)
from orchestrator.cli.complete import hosts
from orchestrator.cli.output import show, shown
from orchestrator.cli.parameters import Bandwidth, Wait, bandwidth_mib
from orchestrator.cli.session import session_of
from orchestrator.core.maintenance.maintenance import Reboot, UpgradePolicy
from orchestrator.core.names import check_name


def upgrade(
    ctx: typer.Context,
    to: Annotated[str, typer.Option("--to", metavar="VERSION", help="The host driver that they get.")],
    names: Annotated[
        str | None, typer.Option("--hosts", metavar="NAME,…", help="Only these; all without it.", autocompletion=hosts)
    ] = None,
    policy: Annotated[
        UpgradePolicy,
        typer.Option(
            "--vms",
            help="tenant: as each tenant's policy says; stop: now, whatever it says; wait: until nobody runs them.",
        ),
    ] = "tenant",
    max_unavailable: Annotated[int, typer.Option("--max-unavailable", min=1, help="So many hosts out at once.")] = 2,
    canary: Annotated[int, typer.Option("--canary", min=0, help="So many hosts go before all others.")] = 1,
    failure_budget: Annotated[
        int, typer.Option("--failure-budget", min=0, help="So many hosts may fail; at the next one it halts.")
    ] = 1,
    window: Annotated[
        str | None,
        typer.Option(
            "--window", metavar="HH:MM-HH:MM", help="Take hosts out only then, each day, in UTC: 22:00-05:00."
        ),
    ] = None,
    reboot: Annotated[
        Reboot,
        typer.Option("--reboot", help="if-needed: hosts whose driver cannot be swapped otherwise; never: none."),
    ] = "if-needed",
    parallel: Parallel = 4,
    bandwidth: Bandwidth = None,
    at: At = None,
    length: Length = None,
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which hosts would go in which step.")] = False,
    wait: Wait = True,
) -> None:
    """Bring another driver onto hosts, some at a time. VMs that may move while they run do; the others stop and start
    again, each on its host."""
    session = session_of(ctx)
    chosen = [check_name(name, what="host") for name in names.split(",")] if names is not None else []
    wanted: dict[str, object] = {
        "version": to, "hosts": chosen, "policy": policy, "max_unavailable": max_unavailable, "canary": canary,
        "failure_budget": failure_budget, "window": window, "reboot": reboot, "dry_run": dry_run,
        "parallel": parallel, **bandwidth_mib(bandwidth), **planned(at, length, reason),
    }  # fmt: skip
    begun = session.client.start_driver_upgrade(wanted)
    if dry_run:
        show(begun, session.format, lambda: _waves(begun))
        return
    finish(followed(session, begun) if wait else begun, session.format, wait=wait)


def _waves(planned: Mapping[str, Any]) -> list[str]:
    lines = [f"{number}. {', '.join(map(shown, names))}" for number, names in enumerate(planned["waves"], 1)]
    had = sum(host["phase"] == "done" for host in planned["hosts"])
    waits = [f"{shown(host['host'])} {shown(why(host))}" for host in planned["hosts"] if host["waits_for"]]
    kept = [
        f"{shown(host['host'])} is left as it is: {shown(host['why'])}" for host in planned["hosts"] if _is_kept(host)
    ]
    already = [f"{had} have driver {shown(planned['version'])} already"] if had else []
    return [
        *lines,
        *waits,
        *kept,
        *overridden(planned),
        *already,
        f"reboots: {REBOOTS[planned['reboot']]}",
        "nothing was begun",
    ]


def _is_kept(host: Mapping[str, Any]) -> bool:
    return bool(host["phase"] == "kept")
