# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl health …``"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.ages import show_span
from orchestrator.cli.files import read_text
from orchestrator.cli.output import render_details, show, shown, width
from orchestrator.cli.parameters import Sort
from orchestrator.cli.session import format_of
from orchestrator.cli.table import Column, Fit, field, render_table, show_list
from orchestrator.cli.tree import new_group
from orchestrator.core.units import MIB

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
