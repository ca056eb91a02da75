# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl metrics …``: files for whoever watches a site, and what to do when an alert fires."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.cli.files import write_new
from orchestrator.cli.output import safe_line
from orchestrator.cli.tree import new_group
from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.names import near

app = new_group("Files for Prometheus and Grafana: rules, alerts, boards.")

_PACKAGE: Final = Path(__file__).parents[2]
RULES: Final = _PACKAGE / "observability" / "rules.yaml"
_RUNBOOKS: Final = (_PACKAGE / "_data" / "alerts.md", _PACKAGE.parent / "docs" / "howto" / "alerts.md")
"""Inside an installed package, else in the source tree."""
_RUNBOOK: Final = re.compile(r"runbook: vgpuctl metrics runbook (\w+)")
_ROW: Final = re.compile(r'^\| <a id="\w+"></a>(\w+) \| (.*) \| (.*) \|$', re.MULTILINE)
_LINK: Final = re.compile(r"\[([^]]*)\]\(([^)#]+)[^)]*\)")
_ADDRESS: Final = re.compile(r"https?://[!#-\[\]-~]{1,500}", re.ASCII)

Write = Annotated[Path | None, typer.Option("--write", metavar="DIR", help="Write a file there, instead of printing.")]


@app.command("rules")
def rules(
    write: Write = None,
    runbooks: Annotated[
        str | None, typer.Option("--runbooks", metavar="URL", help="Where docs/howto/alerts.md is served, as a page.")
    ] = None,
) -> None:
    """Print or write rules and alerts for Prometheus.

    Each alert names the command that says what to do.
    """
    text = RULES.read_text(encoding="utf-8")
    if runbooks is not None:
        if _ADDRESS.fullmatch(runbooks) is None:
            raise InvalidInput(
                "rules.url_invalid",
                f"{ascii(runbooks)[:80]} is no address of a page",
                hint="for example --runbooks https://docs.example/alerts.html",
            )
        text = _RUNBOOK.sub(lambda its: f"{its[0]}, runbook_url: {json.dumps(f'{runbooks}#{its[1].lower()}')}", text)
    if write is None:
        print(text, end="")
        return
    file = write / "vgpuctl-rules.yaml"
    write_new({file: (text.encode(), 0o644)}, what="rules")
    print(safe_line(f"wrote {file}"))


@app.command("boards")
def boards(
    write: Annotated[Path, typer.Option("--write", metavar="DIR", help="Where the files go, one for each board.")],
) -> None:
    """Write boards for Grafana.

    Of the fleet, hosts and GPUs, tenants, VMs, drivers and licences. Grafana imports them one by one, or reads the
    directory (provisioning); their data source is Prometheus.
    """
    from orchestrator.observability.boards import boards as made  # reading their file takes longer than most commands

    files = {write / f"{name}.json": json.dumps(board, indent=1).encode() + b"\n" for name, board in made().items()}
    write_new({file: (content, 0o644) for file, content in files.items()}, what="rules")
    for file in files:
        print(safe_line(f"wrote {file}"))


@app.command("runbook")
def runbook(alert: Annotated[str, typer.Argument(help="Name of the alert.", metavar="ALERT")]) -> None:
    """Print what to do when an alert fires.

    Words in capitals stand for what the alert is about.
    """
    rows = {name: (first, then) for name, first, then in _ROW.findall(_runbook_text())}
    if alert not in rows:
        raise NotFound(
            "alert.unknown",
            f"no alert is called {ascii(alert)[:60]}",
            hint=near(alert, rows, "vgpuctl metrics rules"),
        )
    first, then = (_LINK.sub(r"docs/howto/\2", cell).replace("`", "'") for cell in rows[alert])
    print(f"first: {first}\nthen:  {then}")


def _runbook_text() -> str:
    return next(file for file in _RUNBOOKS if file.is_file()).read_text(encoding="utf-8")
