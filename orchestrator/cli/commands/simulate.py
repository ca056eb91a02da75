# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl simulate placement``: what-if for capacity planning. Runs here and needs no server."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import Svg
from orchestrator.cli.session import format_of
from orchestrator.cli.tree import new_group

app = new_group("Try a workload on a fleet that exists in memory.")


@app.command("placement")
def placement(
    ctx: typer.Context,
    fleet: Annotated[Path, typer.Option("--fleet", metavar="FILE", help="Fleet file (YAML).")],
    requests: Annotated[Path, typer.Option("--requests", metavar="FILE", help="Requests (CSV), by time of arrival.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the result (JSON) goes.")],
    svg: Svg = None,
) -> None:
    """Place a stream of requests on a fleet. Says how well that went.

    A request that finds no place stops VMs of lower priority: those that lose the fewest slot-hours. The
    picture is of the fleet after the last request.
    """
    from orchestrator.simulate_placement.run import run

    summary, gpus = run(fleet, requests, out)
    if svg is not None:
        from orchestrator.cli.advice.pictures import gpu_map_svg, write_svg

        write_svg(svg, gpu_map_svg([asdict(gpu) for gpu in gpus]))
    show(summary, format_of(ctx), lambda: render_details([(name, _number(value)) for name, value in summary.items()]))


def _number(value: float | int | None) -> str:
    return f"{value:.4f}" if isinstance(value, float) else shown(value)
