# SPDX-License-Identifier: Apache-2.0
"""``--watch``: a result again and again until Ctrl-C. Redrawn on a terminal; elsewhere lines of what changed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Protocol

import typer

from orchestrator.cli.output import PIPE_EXIT, colour, printable, safe_line, show
from orchestrator.cli.progress import retry
from orchestrator.cli.session import CliSession, Format
from orchestrator.cli.table import Listing, list_lines, sorted_rows

PAUSE_S: Final = 2.0
_FOOT: Final = "Ctrl-C ends"

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on showing it, with every change, until Ctrl-C.")]


@dataclass(frozen=True, kw_only=True)
class View:
    """What a command shows at one moment."""

    data: object
    lines: Callable[[], Sequence[str]]
    """For people."""
    names: tuple[str, ...] = ()
    """Of the things in a list, so that it can be said when one is gone."""
    pushed_out: frozenset[str] = frozenset()
    """Names that are not shown any more because the list is long, and only for that."""
    final: bool = False
    """Nothing changes any more."""


ReadView = Callable[[], View]


def list_view(rows: Sequence[Mapping[str, Any]], listing: Listing, name: Callable[[Mapping[str, Any]], str]) -> View:
    """A list, in the order that was asked for."""
    ordered = sorted_rows(rows, listing.columns, listing.sort)
    return View(
        data=ordered,
        lines=lambda: list_lines(ordered, listing.columns, listing.output, listing.none),
        names=tuple(name(row) for row in ordered),
    )


def show_view(session: CliSession, read_view: ReadView, *, watch: bool, pause_s: float = PAUSE_S) -> None:
    """Print what ``read_view`` finds, with ``watch`` until it is final.

    :param pause_s: between two readings; 0 for one that waits by itself until something changed
    :raises typer.Exit: 141 when the reader went away
    """
    view = read_view()
    if not watch:
        show(view.data, session.format, view.lines)
        return
    screen = _screen(session.format)
    try:
        screen.draw(view)
        while not view.final:
            time.sleep(pause_s)
            view = retry(session, read_view)
            screen.draw(view)
    except BrokenPipeError as error:
        raise typer.Exit(PIPE_EXIT) from error


class _Screen(Protocol):
    def draw(self, view: View) -> None: ...


def _screen(output: Format) -> _Screen:
    if output not in {Format.TABLE, Format.WIDE}:
        return _Documents(output)
    terminal = sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") not in {None, "", "dumb"}
    return _Terminal() if terminal else _ChangedLines()


@dataclass
class _Documents:
    """A document for each change: JSON in one line, YAML between dashes."""

    output: Format
    last: object = None

    def draw(self, view: View) -> None:
        if view.data == self.last:
            return
        self.last = view.data
        if self.output is Format.JSON:
            print(json.dumps(view.data), flush=True)
        else:
            print("---")
            show(view.data, self.output, view.lines)


@dataclass
class _ChangedLines:
    """Lines that were not there before; the first time all."""

    known: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()

    def draw(self, view: View) -> None:
        lines = [(" ".join(line.split()), line) for line in map(safe_line, view.lines())]
        for key, line in lines:
            if key not in self.known:
                print(line)
        for name in self.names:
            if name not in view.names and name not in view.pushed_out:
                print(f"gone: {printable(name)}")
        self.known, self.names = frozenset(key for key, _ in lines), view.names
        sys.stdout.flush()


@dataclass
class _Terminal:
    """Over what was drawn before, as far as the terminal is high."""

    drawn: list[str] = field(default_factory=list)

    def draw(self, view: View) -> None:
        height = max(2, shutil.get_terminal_size().lines - 2)
        lines = list(map(safe_line, view.lines()))
        if len(lines) > height:
            lines = [*lines[: height - 1], f"… and {len(lines) - height + 1} more lines"]
        if not view.final:
            lines.append(colour(_FOOT, "dim"))
        if lines == self.drawn:
            return
        back = f"\x1b[{len(self.drawn)}A\x1b[J" if self.drawn else ""
        print(back + "\n".join(lines), flush=True)
        self.drawn = lines
