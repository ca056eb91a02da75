# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl maintenance …``; what begins one follows it with what is here."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.complete import hosts
from orchestrator.cli.enrolment import confirmed_name
from orchestrator.cli.output import printable, render_details, show, shown, width
from orchestrator.cli.parameters import Bandwidth, Sort, Wait, bandwidth_mib
from orchestrator.cli.progress import retry
from orchestrator.cli.session import CliSession, Format, format_of, session_of
from orchestrator.cli.table import Column, Fit, field, render_table, show_list
from orchestrator.cli.tree import new_group
from orchestrator.client.connection import Json
from orchestrator.core.errors import Fatal
from orchestrator.core.maintenance.leaving import CHOSEN, WAIT
from orchestrator.core.maintenance.maintenance import BAD, MAX_LENGTH_S, UNDER_WAY, DrainPolicy
from orchestrator.core.names import check_name
from orchestrator.core.units import parse_duration
from orchestrator.core.vms.lease import parse_moment

app = new_group("What is done to hosts, when, and how far it is.")

POLL_S: Final = 1.0
_STANDING: Final = frozenset({"paused", "halted"})
"""States in which nothing goes on by itself once what had begun has ended."""
_VMS: Final = {"move": "move to other hosts", "tenant": "as each tenant's policy says", "stop": "stop", "wait": "wait"}
REBOOTS: Final = {"if-needed": "hosts whose driver cannot be swapped otherwise", "never": "none"}
At = Annotated[str | None, typer.Option("--at", metavar="TIME", help="Begin then: 2026-12-01T10:00Z; without it now.")]
Length = Annotated[
    str | None,
    typer.Option("--for", metavar="DURATION", help="It is planned to take so long, like 2h; then it is late."),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; tenants with VMs there are told.")]


Parallel = Annotated[int, typer.Option("--parallel", min=1, max=64, help="So many VMs of a host move at once.")]


def planned(at: str | None, length: str | None, reason: str) -> dict[str, object]:
    """For the body of what declares one."""
    if at is not None:
        parse_moment(at, field="at")
    span = None if length is None else parse_duration(length, field="for", at_most_s=MAX_LENGTH_S)
    return {"at": at, "length_s": span, "reason": reason}


COLUMNS: Final = (
    field("HOST", "host", Fit.WHOLE),
    field("PHASE", "phase", Fit.WHOLE),
    Column("RUN AGAIN", lambda host: str(host["vms"])),
    Column("OPERATION", lambda host: shown(host["operation"])[:8]),
    Column("HOW FAR, OR WHY", lambda host: shown(why(host)), Fit.WRAP),
)


def why(host: Mapping[str, Any]) -> str:
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
    if tenant["policy"] == CHOSEN:
        return f"from {show_time(tenant['opens_at'])} on, as its user has chosen"
    opens = "open now" if tenant["opens_at"] is None else f"opens {show_time(tenant['opens_at'])}"
    return f"{tenant['policy']} UTC, {opens}"


def overridden(maintenance: Mapping[str, Any]) -> list[str]:
    """At most one line."""
    names = maintenance["overridden"]
    return [f"VMs of {shown(names)} are stopped at any time: their policies say something else"] if names else []


def followed(session: CliSession, begun: Json) -> Json:
    """Until nothing goes on any more; a line on standard error for each host that goes on."""
    before: dict[str, str] = {}
    maintenance = begun
    if maintenance["opens_at"] is not None:
        print(f"no host is taken out before {show_time(maintenance['opens_at'])}", file=sys.stderr, flush=True)
    while True:
        for host in maintenance["hosts"]:
            line = ": ".join(filter(None, [host["phase"], why(host)]))
            if line not in {"waiting", before.get(host["host"])} and host["why"] != "it had this driver":
                print(printable(f"{host['host']}: {line}"), file=sys.stderr, flush=True)
            before[host["host"]] = line
        if not _goes_on(maintenance):
            return maintenance
        time.sleep(POLL_S)
        maintenance = retry(session, lambda: session.client.maintenance(begun["id"]))


def _goes_on(maintenance: Json) -> bool:
    phases = {host["phase"] for host in maintenance["hosts"]}
    begins = maintenance["state"] == "running" and "waiting" in phases
    return begins or not phases.isdisjoint(UNDER_WAY - {"empty"})


def finish(maintenance: Json, output: Format, *, wait: bool) -> None:
    """:raises Fatal: ``maintenance.halted``, ``maintenance.hosts_failed``, after the table that says why"""
    show(maintenance, output, lambda: details(maintenance))
    bad = [host["host"] for host in maintenance["hosts"] if host["phase"] in BAD]
    if wait and maintenance["state"] == "halted":
        raise Fatal(
            "maintenance.halted",
            f"it halted: {len(bad)} hosts failed, {', '.join(bad[:5])}",
            hint=f"'vgpuctl maintenance resume {maintenance['id']}' goes on when they are mended, 'cancel' ends it",
        )
    if wait and bad:
        raise Fatal(
            "maintenance.hosts_failed",
            f"{len(bad)} of {len(maintenance['hosts'])} hosts failed: {', '.join(bad[:5])}",
            hint="mend them and run it again: hosts where it is done are left alone",
        )


def _planned(maintenance: Mapping[str, Any]) -> str:
    until = f" to {show_time(maintenance['ends_by'])}" if maintenance["ends_by"] is not None else ""
    over = f"; ended {show_time(maintenance['ended_at'])}" if maintenance["ended_at"] is not None else ""
    return f"{show_time(maintenance['starts_at'])}{until}{over}"


def details(maintenance: Mapping[str, Any]) -> list[str]:
    counts = Counter(host["phase"] for host in maintenance["hosts"])
    pairs = [
        ("id", shown(maintenance["id"])),
        ("what", shown(maintenance["title"])),
        *([("GPU", shown(maintenance["gpu"]))] if maintenance["gpu"] else []),
        *([("reason", shown(maintenance["reason"]))] if maintenance["reason"] else []),
        ("state", shown(maintenance["state"]) + (", longer than planned" if maintenance["overran"] else "")),
        ("planned", _planned(maintenance)),
        ("hosts", ", ".join(f"{count} {phase}" for phase, count in sorted(counts.items()))),
        ("VMs", ", ".join([_VMS[maintenance["policy"]], *overridden(maintenance)])),
    ]
    if maintenance["act"] == "upgrade":
        pairs += [("at once", f"{maintenance['max_unavailable']}, {maintenance['canary']} before all others")]
        pairs += [("may fail", f"{maintenance['failure_budget']}"), ("reboots", REBOOTS[maintenance["reboot"]])]
    if maintenance["window"] is not None:
        closed = "open now" if maintenance["opens_at"] is None else f"opens {show_time(maintenance['opens_at'])}"
        pairs.append(("window", f"{shown(maintenance['window'])} UTC each day, {closed}"))
    moves = [*moves_and_gains(maintenance), ""] if maintenance["act"] == "defragment" else []
    return [*render_details(pairs), "", *moves, *render_table(maintenance["hosts"], COLUMNS, width())]


_MOVES: Final = (
    field("VM", "name"),
    Column("FROM", lambda move: f"{shown(move['source'])} {shown(move['leaves'])}"),
    Column("TO", lambda move: f"{shown(move['target'])} {shown(move['gpu'])}"),
    Column("HOW FAR", lambda move: ": ".join(filter(None, [move["state"], move["why"]])), Fit.WRAP),
)
_GAINS: Final = (
    field("PROFILE", "profile"),
    field("FIT NOW", "now"),
    field("FIT THEN", "planned"),
    field("MEASURED", "measured"),
)


def moves_and_gains(plan: Mapping[str, Any]) -> list[str]:
    """Of a defragmentation, or of its plan."""
    fit = ["", *render_table(plan["gains"], _GAINS, width())] if plan["gains"] else []
    return [*render_table(plan["moves"], _MOVES, width()), *fit]


def defragment(
    ctx: typer.Context,
    max_moves: Annotated[int, typer.Option("--max-moves", min=1, max=256, help="No more VMs move.")] = 16,
    parallel: Annotated[int, typer.Option("--parallel", min=1, max=64, help="So many VMs move at once.")] = 2,
    bandwidth: Bandwidth = None,
    cold: Annotated[
        bool,
        typer.Option("--cold", help="Shut VMs down that may not move while they run, where their tenants let them be."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print which VMs would move and what would fit then, change nothing.")
    ] = False,
    at: At = None,
    length: Length = None,
    reason: Reason = "",
    wait: Wait = True,
) -> None:
    """Move VMs together, so that GPUs get empty."""
    session = session_of(ctx)
    how = {"max_moves": max_moves, "parallel": parallel, "cold": cold, **bandwidth_mib(bandwidth)}
    wanted: dict[str, object] = {**how, **planned(at, length, reason)}
    if dry_run:
        plan = session.client.plan_defragment(wanted)
        lines = [f"{plan['gpus']} GPUs would get empty by {len(plan['moves'])} moves", "", *moves_and_gains(plan)]
        show(plan, session.format, lambda: lines if plan["moves"] else ["no GPU would get empty by legal moves"])
        return
    begun = session.client.defragment(wanted)
    finish(followed(session, begun) if wait else begun, session.format, wait=wait)


HostName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the host.", autocompletion=hosts)]
Leave = Annotated[
    DrainPolicy,
    typer.Option("--vms", help="move: to other hosts, as tenants' policies let them; stop: now; wait: for users."),
]


def drain(
    ctx: typer.Context,
    name: HostName,
    policy: Leave = "move",
    parallel: Parallel = 4,
    bandwidth: Bandwidth = None,
    at: At = None,
    length: Length = None,
    reason: Reason = "",
    wait: Wait = True,
) -> None:
    """Empty a host of VMs; 'host uncordon' has it serve again."""
    session = session_of(ctx)
    how = {"policy": policy, "parallel": parallel, **bandwidth_mib(bandwidth)}
    wanted: dict[str, object] = {**how, **planned(at, length, reason)}
    begun = session.client.drain_host(check_name(name, what="host"), wanted)
    finish(followed(session, begun) if wait else begun, session.format, wait=wait)


def reboot(
    ctx: typer.Context,
    name: HostName,
    policy: Leave = "move",
    parallel: Parallel = 4,
    bandwidth: Bandwidth = None,
    at: At = None,
    length: Length = None,
    reason: Reason = "",
    wait: Wait = True,
) -> None:
    """Empty a host of VMs, and reboot it.

    It serves again by itself once all that was well before is; VMs that were stopped for it start. 'maintenance' shows,
    pauses and cancels it.
    """
    session = session_of(ctx)
    how = {"policy": policy, "parallel": parallel, **bandwidth_mib(bandwidth)}
    wanted: dict[str, object] = {**how, **planned(at, length, reason)}
    begun = session.client.reboot_host(check_name(name, what="host"), wanted)
    finish(followed(session, begun) if wait else begun, session.format, wait=wait)


def evacuate(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the dead host.", autocompletion=hosts)],
    by_hand: Annotated[
        bool, typer.Option("--fenced-by-hand", help="You have switched it off; without it its fence agent does.")
    ] = False,
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="NAME", help="The host's name once more; asked for without it.")
    ] = None,
    parallel: Annotated[int, typer.Option("--parallel", min=1, max=64, help="So many VMs start at once.")] = 4,
    reason: Reason = "",
    wait: Wait = True,
) -> None:
    """Start VMs of a dead host elsewhere, from pools."""
    session = session_of(ctx)
    what = f"{'was' if by_hand else 'is'} switched off, and its VMs start elsewhere"
    fenced = " --fenced-by-hand" if by_hand else ""
    hint = f"'vgpuctl host evacuate {name}{fenced} --confirm {name}' does it, with the other options that you gave"
    wanted: dict[str, object] = {
        "confirm": confirm or confirmed_name(name, what, hint),
        "fence": "hand" if by_hand else "agent",
        "parallel": parallel,
        "reason": reason,
    }
    begun = session.client.evacuate_host(check_name(name, what="host"), wanted)
    finish(followed(session, begun) if wait else begun, session.format, wait=wait)


Id = Annotated[
    str, typer.Argument(metavar="[ID]", help="Its id, or how it begins; without it the one that was declared last.")
]
ChangedId = Annotated[
    str,
    typer.Argument(metavar="[ID]", help="Its id, or how it begins; without it the only one that this can be done to."),
]
_COUNTS: Final = (
    field("ID", "id", Fit.WHOLE),
    field("WHAT", "title"),
    Column("STATE", lambda one: shown(one["state"]) + (", late" if one["overran"] else ""), Fit.WHOLE),
    Column("HOSTS", lambda one: f"{one['done']} of {one['hosts']}"),
    Column("BEGINS", lambda one: show_time(one["starts_at"])),
    Column("ENDS BY", lambda one: show_time(one["ends_by"])),
    Column("ENDED", lambda one: show_time(one["ended_at"])),
    field("REASON", "reason", Fit.WRAP),
)


@app.command("list")
def list_maintenances(ctx: typer.Context, sort: Sort = None) -> None:
    """List what was declared, the newest first."""
    session = session_of(ctx)
    show_list(session.client.maintenances(), _COUNTS, session.format, "no maintenance was declared", sort)


@app.command("show")
def show_maintenance(ctx: typer.Context, name: Id = "newest") -> None:
    """Show one, how far each host is, and for whom it waits."""
    _shown(session_of(ctx).client.maintenance(name), format_of(ctx))


@app.command("pause")
def pause(ctx: typer.Context, name: ChangedId = "newest") -> None:
    """Begin no further host; what has begun ends."""
    _shown(session_of(ctx).client.change_maintenance("pause", name), format_of(ctx))


@app.command("resume")
def resume(ctx: typer.Context, name: ChangedId = "newest") -> None:
    """Go on after a pause or a halt; the failures so far are forgiven."""
    _shown(session_of(ctx).client.change_maintenance("resume", name), format_of(ctx))


@app.command("cancel")
def cancel(ctx: typer.Context, name: ChangedId = "newest") -> None:
    """End it: hosts that wait stay as they are, what has begun ends."""
    _shown(session_of(ctx).client.change_maintenance("cancel", name), format_of(ctx))


def _shown(maintenance: Json, output: Format) -> None:
    show(maintenance, output, lambda: details(maintenance))
