# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl driver upgrade …``"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.complete import hosts
from orchestrator.cli.output import printable, render_details, show, shown, width
from orchestrator.cli.parameters import Wait
from orchestrator.cli.progress import retry
from orchestrator.cli.session import CliSession, Format, format_of, session_of
from orchestrator.cli.table import Column, Fit, field, render_table
from orchestrator.cli.tree import HELP_OPTIONS, Commands, Group
from orchestrator.client.connection import Json
from orchestrator.core.drivers.leaving import WAIT
from orchestrator.core.drivers.upgrade import BAD, UNDER_WAY, Policy, Reboot
from orchestrator.core.errors import Fatal, InvalidInput
from orchestrator.core.names import check_name

_SUMMARY: Final = "Bring another driver onto hosts, some at a time. Status, pause, resume, abort."
app = Commands(cls=Group, rich_markup_mode=None, help=_SUMMARY, add_completion=False, context_settings=HELP_OPTIONS)
POLL_S: Final = 1.0
_STANDING: Final = frozenset({"paused", "halted"})
"""States in which nothing goes on by itself once what had begun has ended."""
_VMS: Final = {"tenant": "as each tenant's policy says", "stop": "stop", "wait": "wait"}
_REBOOTS: Final = {"if-needed": "hosts whose driver cannot be swapped otherwise", "never": "none"}
COLUMNS: Final = (
    field("HOST", "host", Fit.WHOLE),
    field("PHASE", "phase", Fit.WHOLE),
    Column("VMS", lambda host: str(host["vms"])),
    Column("OPERATION", lambda host: shown(host["operation"])[:8]),
    Column("HOW FAR, OR WHY", lambda host: shown(_why(host)), Fit.WRAP),
)


def _why(host: Mapping[str, Any]) -> str:
    """How far it is, what went wrong there, or whom it waits for and until when."""
    tenants = ", ".join(f"{wait['vms']} of {wait['tenant']} ({_policy(wait)})" for wait in host["waits_for"])
    several = host["opens_at"] is not None and len(host["waits_for"]) > 1
    opens = f"; all windows are open from {show_time(host['opens_at'])}" if several else ""
    return ": ".join(
        filter(None, [host["progress"], host["why"], f"waits for VMs: {tenants}{opens}" if tenants else ""])
    )


def _policy(tenant: Mapping[str, Any]) -> str:
    if tenant["policy"] == WAIT:
        return "until their users stop them"
    opens = "open now" if tenant["opens_at"] is None else f"opens {show_time(tenant['opens_at'])}"
    return f"{tenant['policy']} UTC, {opens}"


@app.callback(invoke_without_command=True)
def upgrade(
    ctx: typer.Context,
    to: Annotated[str | None, typer.Option("--to", metavar="VERSION", help="The host driver that they get.")] = None,
    names: Annotated[
        str | None, typer.Option("--hosts", metavar="NAME,…", help="Only these; all without it.", autocompletion=hosts)
    ] = None,
    policy: Annotated[
        Policy,
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which hosts would go in which step.")] = False,
    wait: Wait = True,
) -> None:
    """Bring another driver onto hosts, some at a time. VMs stop and start again, each on its host."""
    if ctx.invoked_subcommand is not None:
        return
    if to is None:
        raise InvalidInput("cli.usage", "--to says which driver they get", hint="'vgpuctl driver upgrade --help'")
    session = session_of(ctx)
    chosen = [check_name(name, what="host") for name in names.split(",")] if names is not None else []
    wanted: dict[str, object] = {
        "version": to, "hosts": chosen, "policy": policy, "max_unavailable": max_unavailable, "canary": canary,
        "failure_budget": failure_budget, "window": window, "reboot": reboot, "dry_run": dry_run,
    }  # fmt: skip
    begun = session.client.start_driver_upgrade(wanted)
    if dry_run:
        show(begun, session.format, lambda: _waves(begun))
        return
    _finish(_followed(session, begun) if wait else begun, session.format, wait=wait)


def _waves(planned: Mapping[str, Any]) -> list[str]:
    lines = [f"{number}. {', '.join(map(shown, names))}" for number, names in enumerate(planned["waves"], 1)]
    had = sum(host["phase"] == "done" for host in planned["hosts"])
    waits = [f"{shown(host['host'])} {shown(_why(host))}" for host in planned["hosts"] if host["waits_for"]]
    kept = [
        f"{shown(host['host'])} is left as it is: {shown(host['why'])}" for host in planned["hosts"] if _is_kept(host)
    ]
    already = [f"{had} have driver {shown(planned['version'])} already"] if had else []
    return [
        *lines,
        *waits,
        *kept,
        *_overridden(planned),
        *already,
        f"reboots: {_REBOOTS[planned['reboot']]}",
        "nothing was begun",
    ]


def _is_kept(host: Mapping[str, Any]) -> bool:
    return bool(host["phase"] == "kept")


def _overridden(upgrade: Mapping[str, Any]) -> list[str]:
    names = upgrade["overridden"]
    return [f"VMs of {shown(names)} are stopped at any time: their policies say something else"] if names else []


def _followed(session: CliSession, begun: Json) -> Json:
    """Until nothing goes on any more; a line on standard error for each host that goes on."""
    before: dict[str, str] = {}
    upgrade = begun
    if upgrade["opens_at"] is not None:
        print(f"no host is taken out before {show_time(upgrade['opens_at'])}", file=sys.stderr, flush=True)
    while True:
        for host in upgrade["hosts"]:
            line = ": ".join(filter(None, [host["phase"], _why(host)]))
            if line not in {"waiting", before.get(host["host"])} and host["why"] != "it had this driver":
                print(printable(f"{host['host']}: {line}"), file=sys.stderr, flush=True)
            before[host["host"]] = line
        if not _goes_on(upgrade):
            return upgrade
        time.sleep(POLL_S)
        upgrade = retry(session, session.client.driver_upgrade)


def _goes_on(upgrade: Json) -> bool:
    under_way = any(host["phase"] in UNDER_WAY for host in upgrade["hosts"])
    return under_way or upgrade["state"] == "running"


def _finish(upgrade: Json, output: Format, *, wait: bool) -> None:
    """:raises Fatal: ``upgrade.halted``, ``upgrade.hosts_failed``, after the table that says why"""
    show(upgrade, output, lambda: details(upgrade))
    bad = [host["host"] for host in upgrade["hosts"] if host["phase"] in BAD]
    if wait and upgrade["state"] == "halted":
        raise Fatal(
            "upgrade.halted",
            f"it halted: {len(bad)} hosts failed, {', '.join(bad[:5])}",
            hint="'vgpuctl driver upgrade resume' goes on when they are mended, 'abort' ends it",
        )
    if wait and bad:
        raise Fatal(
            "upgrade.hosts_failed",
            f"{len(bad)} of {len(upgrade['hosts'])} hosts do not have the new driver: {', '.join(bad[:5])}",
            hint="mend them and run it again: hosts that have the driver are left alone",
        )


def details(upgrade: Mapping[str, Any]) -> list[str]:
    counts = Counter(host["phase"] for host in upgrade["hosts"])
    pairs = [
        ("to", shown(upgrade["version"])),
        ("state", shown(upgrade["state"])),
        ("hosts", ", ".join(f"{count} {phase}" for phase, count in sorted(counts.items()))),
        ("at once", f"{upgrade['max_unavailable']}, {upgrade['canary']} before all others"),
        ("may fail", f"{upgrade['failure_budget']}"),
        ("VMs", ", ".join([_VMS[upgrade["policy"]], *_overridden(upgrade)])),
    ]
    pairs.append(("reboots", _REBOOTS[upgrade["reboot"]]))
    if upgrade["window"] is not None:
        closed = "open now" if upgrade["opens_at"] is None else f"opens {show_time(upgrade['opens_at'])}"
        pairs.append(("window", f"{shown(upgrade['window'])} UTC each day, {closed}"))
    return [*render_details(pairs), "", *render_table(upgrade["hosts"], COLUMNS, width())]


def _shown(upgrade: Json, output: Format) -> None:
    show(upgrade, output, lambda: details(upgrade))


@app.command("status")
def status(ctx: typer.Context) -> None:
    """Show the newest upgrade and how far each host is."""
    _shown(session_of(ctx).client.driver_upgrade(), format_of(ctx))


@app.command("pause")
def pause(ctx: typer.Context) -> None:
    """Begin no further host; what has begun ends."""
    _shown(session_of(ctx).client.change_driver_upgrade("pause"), format_of(ctx))


@app.command("resume")
def resume(ctx: typer.Context) -> None:
    """Go on after a pause or a halt; the failures so far are forgiven."""
    _shown(session_of(ctx).client.change_driver_upgrade("resume"), format_of(ctx))


@app.command("abort")
def abort(ctx: typer.Context) -> None:
    """End it: hosts that wait stay as they are, what has begun ends."""
    _shown(session_of(ctx).client.change_driver_upgrade("abort"), format_of(ctx))
