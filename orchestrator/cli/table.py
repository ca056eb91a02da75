# SPDX-License-Identifier: Apache-2.0
"""Tables for people. What names a thing is never shortened; on a narrow terminal other columns give way."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from orchestrator.cli.ages import seconds_since, show_age, show_time
from orchestrator.cli.output import GAP, STATE_COLOURS, colour, csv_text, show, shown, width
from orchestrator.cli.session import Format
from orchestrator.core.errors import InvalidInput
from orchestrator.core.units import show_size

MIN_CUT: Final = 6
MIN_WRAPPED: Final = 12


class Fit(Enum):
    """What becomes of a column's text when the terminal is narrow."""

    CUT = "cut"
    """It ends with an ellipsis."""
    WRAP = "wrap"
    """It goes on in the next line."""
    WHOLE = "whole"
    """Nothing: names and addresses tell rows apart, and are copied."""


_LEAST: Final = {Fit.CUT: MIN_CUT, Fit.WRAP: MIN_WRAPPED}


@dataclass(frozen=True)
class Column:
    """One column of a table: its header and how a row becomes its text."""

    header: str
    text: Callable[[Mapping[str, Any]], str]
    fit: Fit = Fit.CUT
    spare: bool = False
    """Left out before others are."""
    wide: bool = False
    """Shown only with ``-o wide`` and ``-o csv``."""
    rank: Callable[[Mapping[str, Any]], float] | None = None
    """What rows are sorted by; None: the text, numbers in it by their size."""
    exact: Callable[[Mapping[str, Any]], object] | None = None
    """What ``-o csv`` has: bytes, seconds, RFC 3339; None: the text."""

    @property
    def least(self) -> int | None:
        """Columns that it keeps at least; None: all."""
        return _LEAST.get(self.fit)


def field(header: str, key: str, fit: Fit = Fit.CUT, *, spare: bool = False, wide: bool = False) -> Column:
    """A column that shows one member; ``-`` when it is not there."""
    return Column(header, lambda row: shown(row.get(key)), fit, spare, wide)


def age(key: str = "created_at", header: str = "AGE") -> Column:
    """How long ago that was."""

    def seconds(row: Mapping[str, Any]) -> float:
        return seconds_since(row.get(key)) or 0.0

    return Column(
        header, lambda row: show_age(row.get(key)), Fit.WHOLE, True, rank=seconds, exact=lambda row: row.get(key)
    )


def time(header: str, key: str, *, wide: bool = False) -> Column:
    """When that was, or will be."""
    return Column(header, lambda row: show_time(row.get(key)), spare=True, wide=wide, exact=lambda row: row.get(key))


def size(header: str, key: str, unit: int = 1, *, wide: bool = False, text: Callable[[int], str] = show_size) -> Column:
    """A column of sizes; ``unit``: bytes in one of the member."""

    def counted(row: Mapping[str, Any]) -> int | None:
        value = row.get(key)
        return value * unit if isinstance(value, int) else None

    def said(row: Mapping[str, Any]) -> str:
        size_bytes = counted(row)
        return shown(None) if size_bytes is None else text(size_bytes)

    return Column(header, said, wide=wide, rank=lambda row: counted(row) or 0, exact=counted)


def render_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], limit: int | None) -> list[str]:
    """Lines of a table, headers first, at most ``limit`` wide unless names alone are wider.

    Columns are narrowed first, then left out: the spare ones, then others that may be cut. A last line tells which.
    """
    cells = [[column.text(row) for row in rows] for column in columns]
    natural = [max(map(len, (column.header, *texts))) for column, texts in zip(columns, cells, strict=True)]
    widths = dict(enumerate(natural)) if limit is None else _fitted(columns, natural, limit)
    padded = {index: 0 if index == max(widths) else size for index, size in widths.items()}
    drawn = [GAP.join(colour(_cut(columns[i].header, widths[i]).ljust(pad), "bold") for i, pad in padded.items())]
    if any(columns[index].fit is Fit.WRAP and size < natural[index] for index, size in widths.items()):
        blocks = [_wrapped(cells[i], columns[i].fit, widths[i], pad) for i, pad in padded.items()]
        for row in zip(*blocks, strict=True):
            drawn += _lines(row, list(padded.values()))
    else:
        drawn += map(GAP.join, zip(*(_lined(cells[i], widths[i], pad) for i, pad in padded.items()), strict=True))
    gone = ", ".join(column.header for index, column in enumerate(columns) if index not in widths)
    if gone:
        drawn += [colour(line, "dim") for line in textwrap.wrap(f"no room for {gone} (-o wide has all)", limit or 0)]
    return [line.rstrip() for line in drawn]


def _fitted(columns: Sequence[Column], natural: Sequence[int], limit: int) -> dict[int, int]:
    """Widths by the number of the column, of those that stay."""
    kept = list(range(len(columns)))
    while True:
        widths = {index: natural[index] for index in kept}
        narrow = _shrink(widths, columns, limit - len(GAP) * (len(kept) - 1))
        gone = None if narrow else _next_to_go(kept, columns)
        if gone is None:
            return widths
        kept.remove(gone)


def _shrink(widths: dict[int, int], columns: Sequence[Column], limit: int) -> bool:
    """Make the widest narrower, again and again; False when it is still too wide."""
    while sum(widths.values()) > limit:
        can = [i for i, size in widths.items() if (least := columns[i].least) is not None and size > least]
        if not can:
            return False
        widths[max(can, key=lambda index: widths[index])] -= 1
    return True


def _next_to_go(kept: Sequence[int], columns: Sequence[Column]) -> int | None:
    rest = kept[:0:-1]
    spare = (index for index in rest if columns[index].spare)
    return next(spare, None) or next((index for index in rest if columns[index].fit is Fit.CUT), None)


def _lined(texts: Sequence[str], size: int, pad: int) -> list[str]:
    """One column, a line for each cell."""
    fitted = [text if len(text) <= size else _cut(text, size) for text in texts]
    if STATE_COLOURS.keys().isdisjoint(fitted):
        return [text.ljust(pad) for text in fitted]
    return [colour(text.ljust(pad), STATE_COLOURS.get(text)) for text in fitted]


def _wrapped(texts: Sequence[str], fit: Fit, size: int, pad: int) -> list[list[str]]:
    """One column, the lines of each cell."""
    if fit is not Fit.WRAP:
        return [[line] for line in _lined(texts, size, pad)]
    return [[part.ljust(pad) for part in textwrap.wrap(text, size) or [text]] for text in texts]


def _lines(row: Sequence[list[str]], pads: Sequence[int]) -> Iterator[str]:
    for number in range(max(map(len, row))):
        yield GAP.join(cell[number] if number < len(cell) else " " * pad for cell, pad in zip(row, pads, strict=True))


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"


def show_list(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], output: Format, none: str, sort: str | None = None
) -> None:
    """Print a list; ``none`` says in the table that there is nothing. ``sort``: as :func:`sorted_rows` takes it."""
    ordered = sorted_rows(rows, columns, sort)
    show(ordered, output, lambda: list_lines(ordered, columns, output, none))


def show_newest(rows: Sequence[Mapping[str, Any]], total: int | None, limit: int, listing: Listing) -> None:
    """As :func:`show_list`, at most ``limit`` rows, sorted before they are cut; says on standard error when there are
    more. ``total``: how many there are, None: ``rows`` are all."""
    ordered = sorted_rows(rows, listing.columns, listing.sort)[:limit]
    show(ordered, listing.output, lambda: list_lines(ordered, listing.columns, listing.output, listing.none))
    say_cut(len(ordered), total or len(rows), listing.sort)


def say_cut(rows: int, total: int, sort: str | None) -> None:
    """On standard error, when a list is not all there is."""
    if total > rows:
        which = "newest" if sort is None else "first"
        print(f"{which} {rows} of {total}; --limit {total} shows all", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """How a command lists. ``none`` says in the table that there is nothing."""

    columns: Sequence[Column]
    none: str
    output: Format
    sort: str | None = None
    said: Sequence[str] = ()
    """Lines for people below the table."""


def show_rows(data: object, rows: Sequence[Mapping[str, Any]], listing: Listing) -> None:
    """As :func:`show_list`, where the API answers with other data than rows: JSON, YAML and jsonpath have that."""
    output = listing.output
    ordered = sorted_rows(rows, listing.columns, listing.sort)
    by_row = output in {Format.NAME, Format.CSV}

    def lines() -> Sequence[str]:
        return [*list_lines(ordered, listing.columns, output, listing.none), *(() if by_row else listing.said)]

    show(ordered if by_row else data, output, lines)


def list_lines(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], output: Format, none: str
) -> Sequence[str]:
    """A list in every way that is not JSON or YAML."""
    if output is Format.NAME:
        return [columns[0].text(row) for row in rows]
    if output is Format.CSV:
        cells = [[_exactly(column, row) for column in columns] for row in rows]
        return csv_text([[column.header for column in columns], *cells]).split("\n")
    if not rows:
        return [none]
    if output is Format.WIDE:
        return render_table(rows, columns, None)
    return render_table(rows, [column for column in columns if not column.wide], width())


def _exactly(column: Column, row: Mapping[str, Any]) -> str:
    text = column.text(row) if column.exact is None else shown(column.exact(row))
    return "" if text == shown(None) else text


def sorted_rows(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], sort: str | None
) -> Sequence[Mapping[str, Any]]:
    """By columns' headers or members' names with commas between them, the first decides before the next ones; with
    ``-`` before one the other way round; None: as they come.

    :raises InvalidInput: ``cli.sort``
    """
    ordered = rows
    for key in reversed([] if sort is None else sort.split(",")):
        ordered = _sorted_by(key.strip(), ordered, columns)
    return ordered


def _sorted_by(sort: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> Sequence[Mapping[str, Any]]:
    """By one of them; what is alike in it stays in order."""
    wanted = _word(sort.removeprefix("-"))
    headers = {_word(column.header): column for column in columns}
    sorted_column = headers.get(wanted)
    if sorted_column is None and wanted.replace("-", "_") not in (rows[0] if rows else {}):
        from difflib import get_close_matches

        near = get_close_matches(wanted, headers)
        hint = f"did you mean {', '.join(near)}?" if near else f"one of {', '.join(headers)}"
        raise InvalidInput("cli.sort", f"nothing here is called {ascii(sort)[:40]}", hint=hint)
    rank = sorted_column.rank if sorted_column is not None else None
    text = sorted_column.text if sorted_column is not None else lambda row: shown(row.get(wanted.replace("-", "_")))
    backwards = sort.startswith("-")
    if rank is not None:
        return sorted(rows, key=rank, reverse=backwards)
    return sorted(rows, key=lambda row: _natural(text(row)), reverse=backwards)


def _word(header: str) -> str:
    return header.strip().lower().replace(" ", "-").replace("_", "-")


def _natural(text: str) -> list[tuple[int, int, str]]:
    """``gpu-2`` before ``gpu-10``."""
    parts = re.split(r"([0-9]{1,18})", text.lower())
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part]
