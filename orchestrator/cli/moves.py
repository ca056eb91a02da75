# SPDX-License-Identifier: Apache-2.0
"""Where a VM may move, as people see it: a row for each host, and what keeps it from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.complete import hosts
from orchestrator.cli.output import shown, text_width, width
from orchestrator.cli.table import Column, Fit, field, render_table
from orchestrator.core.moves.verdicts import KINDS, MoveKind

Moves = Annotated[
    bool,
    typer.Option("--moves", help="With where it may move, live, suspended, hibernated or cold, and what limits it."),
]
MovesTo = Annotated[str | None, typer.Option("--host", help="With --moves: only there.", autocompletion=hosts)]
MovesLegally = Annotated[
    MoveKind | None, typer.Option("--legal", help="With --moves: only hosts that it may move to in this way.")
]


ANY: Final = "(any other host)"


def _verdict(kind: str) -> Column:
    def text(row: Mapping[str, Any]) -> str:
        return "yes" if row[kind] else "no"

    return Column(kind.upper(), text, Fit.WHOLE)


_COLUMNS: Final = (field("TO", "to", Fit.WHOLE), *map(_verdict, KINDS), field("WHAT KEEPS IT", "why", Fit.WRAP))


def _row(
    to: str, verdicts: Iterable[Mapping[str, Any]], known: Collection[str] = (), *, none: str = "-"
) -> dict[str, Any]:
    """Each limit once, with the ways that it rules out. ``known``: codes of those that stand elsewhere; ``none``: where
    there is no other."""
    kinds: dict[tuple[str, str | None], list[str]] = {}
    legal = {}
    for verdict in verdicts:
        legal[verdict["kind"]] = verdict["legal"]
        for limit in (limit for limit in verdict["limits"] if limit["code"] not in known):
            kinds.setdefault((limit["message"], limit["cure"]), []).append(verdict["kind"])
    why = [
        f"{'every way' if len(of) == len(KINDS) else ', '.join(of)}: {shown(message)}"
        + ("" if cure is None else f" (cure: {shown(cure)})")
        for (message, cure), of in kinds.items()
    ]
    return {"to": shown(to), "why": "; ".join(why) or ("-" if all(legal.values()) else none), **legal}


def move_lines(moves: Mapping[str, Any]) -> Sequence[str]:
    """A row of what the VM itself allows, wherever it would go, and one for each host."""
    known = {limit["code"] for verdict in moves["own"] for limit in verdict["limits"]}
    rows = [_row(ANY, moves["own"])]
    rows += [
        _row(f"{to['host']}{' (its own)' if to['is_its_own'] else ''}", to["verdicts"], known, none=f"as {ANY}")
        for to in moves["hosts"]
    ]
    return ["", "moves", *render_table(rows, _COLUMNS, width() or text_width())]
