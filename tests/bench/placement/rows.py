# SPDX-License-Identifier: Apache-2.0
"""Rows of results: how they are averaged, written and printed. Acceptance and rejections are in percent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    suite: str
    case: str
    policy: str
    metric: str
    value: float


def rows_of(suite: str, case: str, policy: str, values: Mapping[str, float | int | None]) -> list[Row]:
    return [Row(suite, case, policy, metric, round(value, 6)) for metric, value in values.items() if value is not None]


def averaged(rows: Iterable[Row]) -> list[Row]:
    """One row per suite, case, policy and metric: the mean over seeds."""
    found: dict[tuple[str, str, str, str], list[float]] = {}
    for row in rows:
        found.setdefault(row[:4], []).append(row.value)
    return [Row(*key, round(sum(values) / len(values), 6)) for key, values in found.items()]


def write(rows: Iterable[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(row._asdict()) for row in rows) + "\n]\n", encoding="utf-8")


def read(path: Path) -> list[Row]:
    """What ``write`` wrote; nothing where no file is."""
    return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def keep(rows: Iterable[Row], path: Path) -> None:
    """In place of the rows of the same figures; all others stay."""
    for row in rows:
        write([one for one in read(path) if one[:4] != row[:4]] + [row], path)


def table(rows: list[Row]) -> str:
    """A line per case and policy, a column per metric; a block per suite."""
    lines: list[str] = []
    for suite in dict.fromkeys(row.suite for row in rows):
        here = [row for row in rows if row.suite == suite]
        metrics = list(dict.fromkeys(row.metric for row in here))
        cells: dict[tuple[str, str], dict[str, float]] = {}
        for row in here:
            cells.setdefault((row.case, row.policy), {})[row.metric] = row.value
        body = [
            [case, policy, *(f"{values[m]:.3f}".rstrip("0").rstrip(".") if m in values else "-" for m in metrics)]
            for (case, policy), values in sorted(cells.items())
        ]
        head = [f"{suite} case", "policy", *metrics]
        widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
        lines += ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in [head, *body]]
        lines.append("")
    return "\n".join(lines)
