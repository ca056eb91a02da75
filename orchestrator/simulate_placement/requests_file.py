# SPDX-License-Identifier: Apache-2.0
"""Reads ``requests.csv`` row by row: a file of any length takes no more memory than one row."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalogue.problems import Problem
from orchestrator.core.errors import InvalidInput, why_unreadable
from orchestrator.regular_file import open_regular
from orchestrator.simulate_placement.fleet_file import problems_error

HEADER = ("id", "arrive_s", "depart_s", "profile", "count", "vcpus", "memory_gib", "tenant", "priority")
_HINT = f"the first line is {','.join(HEADER)}; rows are sorted by arrive_s, an empty depart_s means never"
_MAX_TEXT = 200
_MAX_LINE = 64 * 1024
"""Characters; the rest of a longer one is read as another row, which has too few cells."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request. ``depart_s`` is infinite for VMs that stay."""

    line: int
    id: str
    arrive_s: float
    depart_s: float
    profile: str
    count: int
    vcpus: int
    memory_mib: int
    tenant: str
    priority: int


def read_requests(path: Path) -> Iterator[RequestRow]:
    """Rows in the order of arrival.

    :raises InvalidInput: ``requests.invalid`` with file, line and reason of the first mistake
    """
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            lines = iter(lambda: file.readline(_MAX_LINE), "")
            yield from _rows(str(path), csv.reader(lines, strict=True))
    except (OSError, ValueError) as error:
        raise row_error(
            path, 0 if isinstance(error, OSError) else 1, f"cannot be read: {why_unreadable(error)}"
        ) from error


def row_error(path: Path | str, line: int, reason: str) -> InvalidInput:
    """The error for one line."""
    return problems_error("requests.invalid", [Problem(file=str(path), line=line, reason=reason)], _HINT)


def _rows(path: str, reader: Iterator[list[str]]) -> Iterator[RequestRow]:
    line, last = 1, -math.inf
    ids: set[str] = set()
    try:
        header = next(reader, [])
        if tuple(header) != HEADER:
            raise row_error(path, 1, f"the header is {','.join(header)[:120]!r}")
        for line, cells in enumerate(reader, start=2):
            row = _row(path, line, cells)
            if row.arrive_s < last:
                raise row_error(path, line, f"arrive_s: {row.arrive_s:g} comes after {last:g}")
            if row.id in ids:
                raise row_error(path, line, f"id: {row.id[:60]!r} is given twice")
            ids.add(row.id)
            last = row.arrive_s
            yield row
    except csv.Error as error:
        raise row_error(path, line + 1, str(error)) from error


def _row(path: str, line: int, cells: list[str]) -> RequestRow:
    if len(cells) != len(HEADER):
        raise row_error(path, line, f"{len(cells)} cells where {len(HEADER)} are expected")
    name, arrive, depart, profile, count, vcpus, memory, tenant, priority = cells
    try:
        row = RequestRow(
            line, name, float(arrive), float(depart) if depart.strip() else math.inf, profile,
            int(count), int(vcpus), round(float(memory) * 1024), tenant, int(priority) if priority.strip() else 0,
        )  # fmt: skip
    except (ValueError, OverflowError) as error:
        raise row_error(path, line, _which(cells)) from error
    reason = _out_of_range(row)
    if reason is not None:
        raise row_error(path, line, reason)
    return row


def _which(cells: list[str]) -> str:
    """The first cell that is not the number it should be."""
    kinds = {"arrive_s": float, "depart_s": float, "count": int, "vcpus": int, "memory_gib": float, "priority": int}
    for field, cell in zip(HEADER, cells, strict=True):
        kind = kinds.get(field)
        optional = field in {"depart_s", "priority"} and not cell.strip()
        if kind is None or optional:
            continue
        try:
            if kind is float and field == "memory_gib" and not math.isfinite(float(cell)):
                return f"{field}: {cell[:60]!r} is not finite"
            kind(cell)
        except ValueError:
            return f"{field}: {cell[:60]!r} is not a {'whole ' if kind is int else ''}number"
    return "a number is out of range"


def _out_of_range(row: RequestRow) -> str | None:
    checks = (
        (0 <= row.arrive_s < math.inf, "arrive_s: negative or not a finite number"),
        (row.depart_s >= row.arrive_s, "depart_s: before arrive_s, or not a number"),
        (0 < len(row.id) <= _MAX_TEXT, "id: empty or too long"),
        (0 < len(row.profile) <= _MAX_TEXT, "profile: empty or too long"),
        (len(row.tenant) <= _MAX_TEXT, "tenant: too long"),
        (1 <= row.count <= 1024, "count: not between 1 and 1024"),
        (0 <= row.vcpus <= 1_000_000, "vcpus: not between 0 and 1000000"),
        (abs(row.priority) <= 1_000_000_000, "priority: not between -1000000000 and 1000000000"),
        (0 <= row.memory_mib <= 1 << 40, "memory_gib: negative or too large"),
    )
    return next((reason for fine, reason in checks if not fine), None)
