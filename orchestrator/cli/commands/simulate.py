# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl simulate placement``: what-if for capacity planning. Runs here and needs no server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.cli.group import new_group
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.session import Format, Output

app = new_group("Try a workload on a fleet that exists in memory.")

DEFAULT_MOVES: Final = 0


@app.command("placement")
def placement(
    fleet: Annotated[Path, typer.Option("--fleet", metavar="FILE", help="Fleet file (YAML).")],
    requests: Annotated[Path, typer.Option("--requests", metavar="FILE", help="Requests (CSV), by time of arrival.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the result (JSON) goes.")],
    policy: Annotated[str, typer.Option("--policy", help="Ours, or one to compare with, e.g. first_fit.")] = "vgpuctl",
    moves: Annotated[
        int, typer.Option("--moves", min=0, help="Most VMs moved to make room for one, 0 to 3.")
    ] = DEFAULT_MOVES,
    compaction: Annotated[
        str | None,
        typer.Option(
            "--compaction",
            metavar="METHOD",
            help="Plan how to free GPUs at the end: greedy.",
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Place a stream of requests on a fleet. Says how well that went.

    A request that finds no place, with or without moves, stops VMs of lower priority: those that lose the fewest
    slot-hours.
    """
    from orchestrator.simulate_placement.run import run

    summary = run(fleet, requests, policy, moves, out, compaction)
    show(summary, output, lambda: render_details([(name, _number(value)) for name, value in summary.items()]))


def _number(value: float | int | None) -> str:
    return f"{value:.4f}" if isinstance(value, float) else shown(value)
