# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl metrics …``: files for whoever watches a site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.files import write_new
from orchestrator.cli.group import new_group
from orchestrator.cli.output import safe_line

app = new_group("Files for Prometheus: rules and alerts.")

RULES = Path(__file__).parents[2] / "observability" / "rules.yaml"


@app.command("rules")
def rules(
    write: Annotated[
        Path | None, typer.Option("--write", metavar="DIR", help="Write vgpuctl-rules.yaml there, instead of printing.")
    ] = None,
) -> None:
    """Print or write rules and alerts for Prometheus.

    What to do at each is in docs/howto/alerts.md.
    """
    text = RULES.read_text(encoding="utf-8")
    if write is None:
        print(text, end="")
        return
    file = write / "vgpuctl-rules.yaml"
    write_new({file: (text.encode(), 0o644)}, what="rules")
    print(safe_line(f"wrote {file}"))
