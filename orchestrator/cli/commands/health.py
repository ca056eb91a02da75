# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl health …``"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer

from orchestrator.cli.ages import show_span, show_time
from orchestrator.cli.commands.maintenance import Parallel, Reason, finish, followed
from orchestrator.cli.files import read_text
from orchestrator.cli.output import render_details, show, shown, width
from orchestrator.cli.parameters import AddressOfGpu, Bandwidth, HostOfGpu, Sort, Wait, bandwidth_mib, gpu_place
from orchestrator.cli.progress import follow
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, age, field, render_table, show_list, time
from orchestrator.cli.tree import new_group
from orchestrator.core.gpu.health_states import RESET_FAILED, HealthState
from orchestrator.core.units import MIB, times

app = new_group("GPUs that fall ill: states, rules, your word.")

MAX_LOG_BYTES: Final = 256 * MIB
_SHOWN: Final = 40

RULE_COLUMNS: Final = (
    field("SIGNAL", "signal", Fit.WHOLE),
    field("CONCERNS", "concerns", Fit.WHOLE),
    field("HELPS", "helps", Fit.WHOLE),
    field("STATE", "state", Fit.WHOLE),
    field("WHOSE", "maturity", Fit.WHOLE),
    field("NOTES", "notes", spare=True),
    field("SOURCE", "source", wide=True),
)

CHANGE_COLUMNS: Final = (
    Column("AT", lambda change: f"{change['at']:.0f}", Fit.WHOLE),
    field("GPU", "gpu", Fit.WHOLE),
    field("STATE", "state", Fit.WHOLE),
    field("CAUSE", "cause"),
)

ILL_COLUMNS: Final = (
    Column("NAME", lambda gpu: f"{shown(gpu['host'])} {shown(gpu['gpu'])}", Fit.WHOLE, wide=True),
    field("HOST", "host", Fit.WHOLE),
    field("GPU", "gpu", Fit.WHOLE),
    field("FUNCTION OF", "function_of", spare=True),
    field("STATE", "state", Fit.WHOLE),
    age("since", "SINCE"),
    field("CAUSE", "cause", Fit.WRAP),
    field("BY", "by", spare=True),
    field("SEEN BY", "acknowledged", spare=True),
)

SIGNAL_COLUMNS: Final = (
    field("SIGNAL", "name", Fit.WHOLE),
    field("STATE", "state", Fit.WHOLE),
    field("HELPS", "helps", Fit.WHOLE),
    Column("COUNTS", lambda signal: "no: returned" if signal["waived"] else "yes", Fit.WHOLE),
    time("AT", "at"),
    field("TEXT", "text", Fit.WRAP),
)

Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for people.")]


@app.command("show")
def show_health(ctx: typer.Context) -> None:
    """Show GPUs that are not healthy, and the breaker."""
    session = session_of(ctx)
    answer = session.client.gpu_healths()
    show(answer, session.format, lambda: _pool_lines(answer))


def _pool_lines(answer: Mapping[str, Any]) -> list[str]:
    counts, breaker = answer["counts"], answer["breaker"]
    total = ", ".join(f"{counts.get(state, 0)} {state}" for state in get_args(HealthState))
    lines = [f"GPUs: {total}"]
    if breaker["opened"] is not None:
        lines.append(
            f"the breaker is open since {show_time(breaker['opened'])}: {shown(breaker['why'])}; rules close no "
            "GPU until 'vgpuctl health reset-breaker'"
        )
    return [*lines, *(render_table(answer["gpus"], ILL_COLUMNS, width()) if answer["gpus"] else [])]


@app.command("explain")
def explain(ctx: typer.Context, host: HostOfGpu, address: AddressOfGpu = None) -> None:
    """Tell why a GPU is in its state, and what ends it."""
    host, gpu = gpu_place(host, address)
    session = session_of(ctx)
    answer = session.client.gpu_health(host, gpu)
    show(answer, session.format, lambda: _gpu_lines(answer))


_ENDS: Final = {
    "healthy": None,
    "watch": "a day without a new fault, once none lasts",
    "unfit": "what it says there; then it is on watch for a day",
    "quarantined": "'vgpuctl health return {host} {gpu} --reason TEXT'",
}


_BY_ITSELF: Final = {
    "due": "its host is emptied and rebooted once, then it is tried",
    "begun": "its host is emptied and rebooted now ('vgpuctl maintenance show'), then it is tried",
    "over": "nothing more: one reboot of its host was all",
}


def _gpu_lines(answer: Mapping[str, Any]) -> list[str]:
    ends, whole = _ENDS[answer["state"]], answer["function_of"]
    failed = answer["state"] == "quarantined" and answer["cause"].startswith(RESET_FAILED)
    details = [
        ("function" if whole else "GPU", f"{shown(answer['host'])} {shown(answer['gpu'])}"),
        *([("of GPU", shown(whole))] if whole else []),
        ("state", shown(answer["state"])),
        ("since", show_time(answer["since"])),
        ("cause", shown(answer["cause"] or None)),
        ("by", shown(answer["by"])),
        ("seen by", shown(answer["acknowledged"])),
        ("without a new fault since", show_time(answer["clean_since"])),
        ("unfit in a week", times(answer["became_unfit"])),
        ("ends by", shown(None) if ends is None else ends.format(host=answer["host"], gpu=answer["gpu"])),
        *[("evidence", shown(line)) for line in (answer["evidence"] if failed else ())],
        *([("by itself", _BY_ITSELF[answer["reboot"]])] if answer["reboot"] else []),
        *[("next", line) for line in (_after_reset(answer) if failed else _next_steps(answer))],
    ]
    signals = (
        render_table(answer["signals"], SIGNAL_COLUMNS, width()) if answer["signals"] else ["nothing is told of it"]
    )
    return [*render_details(details), "", *signals]


def _name(answer: Mapping[str, Any]) -> str:
    return f"{'virtual function' if answer['function_of'] else 'GPU'} {shown(answer['gpu'])}"


def _next_steps(answer: Mapping[str, Any]) -> list[str]:
    """Commands that help, in their order."""
    if answer["state"] != "unfit":
        return []
    host, gpu, whole = answer["host"], answer["gpu"], answer["function_of"]
    if whole:
        emptied = (f"vgpuctl health empty {host} {address}" for address in (gpu, whole))
        return [*emptied, f"vgpuctl health reset {host} {whole}"]
    helps = {signal["helps"] for signal in answer["signals"] if not signal["waived"]}
    if "reboot_host" in helps or not answer["signals"]:
        return [f"vgpuctl host reboot {host}"]
    return [f"vgpuctl health empty {host} {gpu}", f"vgpuctl health reset {host} {gpu}"]


def _after_reset(answer: Mapping[str, Any]) -> list[str]:
    """Of one that failed, for a person."""
    host, gpu = answer["host"], answer["gpu"]
    return [
        f"vgpuctl host reboot {host}",
        f"vgpuctl health return {host} {gpu} --reason 'its host was rebooted'",
    ]


@app.command("quarantine")
def quarantine(ctx: typer.Context, host: HostOfGpu, reason: Why, address: AddressOfGpu = None) -> None:
    """Put nothing new on a GPU until it is returned.

    ADDRESS may be that of a virtual function: then the rest of its GPU is given out.
    """
    host, gpu = gpu_place(host, address)
    session = session_of(ctx)
    answer = session.client.quarantine_gpu(host, gpu, reason)
    show(answer, session.format, lambda: [f"nothing new is put on {_name(answer)} of {host}"])


@app.command("empty")
def empty(
    ctx: typer.Context,
    host: HostOfGpu,
    address: AddressOfGpu = None,
    parallel: Parallel = 4,
    bandwidth: Bandwidth = None,
    reason: Reason = "",
    wait: Wait = True,
) -> None:
    """Close a GPU and move its VMs to other hosts.

    Its host serves on. It is quarantined until 'health return'. 'maintenance' shows, pauses and cancels it. ADDRESS may
    be that of a virtual function: then its VM alone moves.
    """
    host, gpu = gpu_place(host, address)
    session = session_of(ctx)
    wanted = {"parallel": parallel, "reason": reason, **bandwidth_mib(bandwidth)}
    begun = session.client.empty_gpu(host, gpu, wanted)
    finish(followed(session, begun) if wait else begun, session.format, wait=wait)


def words_of_reset(answer: Mapping[str, Any]) -> str:
    """Of a GPU whose reset went well: one that a person has closed stays so."""
    host, gpu, state = answer["host"], answer["gpu"], answer["state"]
    ends = _ENDS[state]
    until = "" if ends is None else f", until {ends.format(host=host, gpu=gpu)}"
    return f"GPU {shown(gpu)} of {shown(host)} was reset and is well; it is {shown(state)}{until}"


@app.command("reset")
def reset(ctx: typer.Context, host: HostOfGpu, address: AddressOfGpu = None, wait: Wait = True) -> None:
    """Reset a GPU without VMs, and try it.

    It is closed first; if it is well afterwards it is on watch for a day, else quarantined.
    """
    host, gpu = gpu_place(host, address)
    session = session_of(ctx)
    begun = session.client.reset_gpu(host, gpu)
    if not wait:
        show(begun, session.format, lambda: [f"operation {shown(begun['operation'])} started"])
        return
    operation = follow(session, str(begun["operation"]))
    standing = session.client.gpu_health(host, gpu)
    show(operation, session.format, lambda: [words_of_reset(standing)], name=host)


@app.command("return")
def give_back(ctx: typer.Context, host: HostOfGpu, reason: Why, address: AddressOfGpu = None) -> None:
    """Have VMs on a GPU again that was unfit or quarantined.

    It is on watch for a day. What is told of it now counts no more, unless it is told anew.
    """
    host, gpu = gpu_place(host, address)
    session = session_of(ctx)
    answer = session.client.return_gpu(host, gpu, reason)
    show(answer, session.format, lambda: [f"{_name(answer)} of {host} is on watch for a day"])


@app.command("ack")
def acknowledge(ctx: typer.Context, host: HostOfGpu, address: AddressOfGpu = None) -> None:
    """Say that you have seen it: no alert until its state changes."""
    host, gpu = gpu_place(host, address)
    session = session_of(ctx)
    answer = session.client.acknowledge_gpu(host, gpu)
    show(
        answer,
        session.format,
        lambda: [f"{_name(answer)} of {host} is seen; it stays {shown(answer['state'])}"],
    )


@app.command("reset-breaker")
def reset_breaker(ctx: typer.Context) -> None:
    """Let rules close GPUs again, after too many had fallen at once."""
    session = session_of(ctx)
    answer = session.client.reset_health_breaker()
    show(answer, session.format, lambda: ["the breaker is closed: rules close GPUs again", *_pool_lines(answer)])


@app.command("rules")
def rules(ctx: typer.Context, sort: Sort = None) -> None:
    """List what each signal means. Needs no server."""
    from orchestrator.catalogue.catalogue import shipped
    from orchestrator.core.gpu.health import state_of

    rows = [
        {
            "signal": rule.signal,
            "concerns": rule.meaning.scope,
            "helps": rule.meaning.remedy.replace("_", " "),
            "state": state_of(rule.meaning),
            "maturity": rule.maturity,
            "notes": rule.notes,
            "source": rule.source,
        }
        for rule in shipped().health_rules
    ]
    show_list(rows, RULE_COLUMNS, format_of(ctx), "no rules", sort)


@app.command("replay")
def replay(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A kernel's log, or a trace of faults in JSON.")],
) -> None:
    """Try the rules on a log that was kept. Needs no server.

    Each line is judged by those before it. A warning is a GPU that comes on watch; it was right if the GPU had a fault
    within two days.
    """
    from orchestrator.catalogue.catalogue import shipped
    from orchestrator.core.gpu.health_replay import read_log, replay_of

    report = asdict(
        replay_of(read_log(read_text(path, what="log", max_bytes=MAX_LOG_BYTES)), shipped().signal_meanings)
    )
    show(report, format_of(ctx), lambda: _report_lines(report))


def _report_lines(report: Mapping[str, Any]) -> list[str]:
    changes = report["changes"]
    lines = render_table(changes[:_SHOWN], CHANGE_COLUMNS, width()) if changes else ["no GPU changed its state"]
    if len(changes) > _SHOWN:
        lines.append(f"and {len(changes) - _SHOWN} more (-o json has all)")
    return [
        *lines,
        "",
        *render_details(
            [
                ("faults", str(report["faults"])),
                ("of them on watch before", f"{report['foreseen']} ({_share(report['recall'])})"),
                ("warnings", str(report["warnings"])),
                ("of them right", f"{report['right']} ({_share(report['precision'])})"),
                ("from warning to fault", shown(None) if report["lead_s"] is None else show_span(report["lead_s"])),
            ]
        ),
    ]


def _share(share: float | None) -> str:
    return shown(None) if share is None else f"{share:.1%}"
