# SPDX-License-Identifier: Apache-2.0
"""The steps of an operation, redrawn in place. Only imported on a terminal: rich takes a while to load."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from orchestrator.cli import clock
from orchestrator.cli.ages import seconds_of
from orchestrator.cli.output import printable
from orchestrator.client.connection import Json

_STYLES: Final = {
    "pending": ("·", "dim"),
    "done": ("✓", "green"),
    "failed": ("✗", "red"),
    "undoing": ("↩", "yellow"),
    "undone": ("↩", "dim"),
    "undo_failed": ("✗", "bold red"),
}


class LiveSteps:
    """A context manager that owns the lower end of the terminal while it is open."""

    def __init__(self) -> None:
        self._operation: Json | None = None
        self._spinner = Spinner("dots", style="yellow")
        self._live = Live(console=Console(stderr=True), refresh_per_second=8, get_renderable=self._draw)

    def __enter__(self) -> LiveSteps:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def update(self, operation: Json) -> None:
        self._operation = operation
        self._live.refresh()

    def _draw(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=1)
        grid.add_column(overflow="ellipsis", no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        moment = datetime.fromtimestamp(clock.now(), UTC)
        steps = self._operation["steps"] if self._operation else ()
        for step in steps:
            seconds = seconds_of(step, moment)
            took = "" if seconds is None else f"{seconds:.1f} s"
            text = printable(step["title"] + (f": {step['message']}" if step["message"] else ""))
            if step["state"] == "running":
                grid.add_row(self._spinner, Text(text), Text(took))
            else:
                mark, style = _STYLES[step["state"]]
                grid.add_row(Text(mark, style=style), Text(text, style=style if style == "dim" else ""), Text(took))
        return grid
