# SPDX-License-Identifier: Apache-2.0
"""Readings as people see them: columns of ``top`` and lines of ``show``. A number that was not read is ``-``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.ages import show_span, show_time
from orchestrator.cli.output import shown, width
from orchestrator.cli.table import Column, Fit, field, render_table
from orchestrator.core.readings.frame import PERIOD_S
from orchestrator.core.units import GIB

_MANY: Final = 1e5
_LATEST_S: Final = 1e11
"""No date is later: a host may send anything."""
_ON_ITS_WAY_S: Final = 0.5
"""From the host to here."""
Readings = Annotated[bool, typer.Option("--readings", help="With what it does now, and how old that is.")]


def _numeric(header: str, key: str, text: str, *, scale: float = 1.0, spare: bool = False) -> Column:
    """``text``: a format of the number after it was multiplied by ``scale``."""

    def cell(row: Mapping[str, Any]) -> str:
        number = row[key]
        return shown(None) if number is None else text.format(number * scale)

    return Column(header, cell, Fit.WHOLE, spare, rank=lambda row: row[key] or 0.0, exact=lambda row: row[key])


def _memory(row: Mapping[str, Any]) -> str:
    used, total = row["memory_used_bytes"], row["memory_total_bytes"]
    if used is None:
        return shown(None)
    return f"{used / GIB:.1f}GiB" if total is None else f"{used / GIB:.1f} of {total / GIB:.0f}GiB"


def _age(row: Mapping[str, Any]) -> str:
    return "silent" if row["age_s"] is None else show_span(row["age_s"])


def _licensed(row: Mapping[str, Any]) -> str:
    return shown(None if row["licensed"] is None else "yes" if row["licensed"] else "no")


def _number(row: Mapping[str, Any]) -> str:
    """With all its digits: what is cut off cannot be compared with what the next look shows."""
    number: float = row["number"]
    if str(row["quantity"]).endswith("_timestamp_seconds") and abs(number) < _LATEST_S:
        return show_time(datetime.fromtimestamp(number, UTC).isoformat())
    return f"{number:.0f}" if number.is_integer() or abs(number) >= _MANY else f"{number:.6g}"


_USE: Final = _numeric("USE", "use", "{:.0f} %", scale=100)
_MEMORY: Final = Column(
    "MEMORY", _memory, Fit.WHOLE, rank=lambda row: row["memory_used_bytes"] or 0.0,
    exact=lambda row: row["memory_used_bytes"],
)  # fmt: skip
_TEMPERATURE: Final = _numeric("TEMP", "temperature_celsius", "{:.0f} °C")
_POWER: Final = _numeric("POWER", "power_watts", "{:.0f} W")
_AGE: Final = Column("READ", _age, Fit.WHOLE, rank=lambda row: row["age_s"] or 0.0, exact=lambda row: row["age_s"])

GPU_COLUMNS: Final = (
    Column("NAME", lambda gpu: f"{shown(gpu['host'])} {shown(gpu['address'])}", Fit.WHOLE, wide=True),
    field("HOST", "host", Fit.WHOLE), field("ADDRESS", "address", Fit.WHOLE), field("MODEL", "model", spare=True),
    _USE, _MEMORY, _TEMPERATURE, _POWER, field("WHY NOT", "silent", spare=True), _AGE,
)  # fmt: skip
HOST_COLUMNS: Final = (
    field("HOST", "host", Fit.WHOLE), field("GPUS", "gpus"), field("SILENT", "silent"),
    _USE, _MEMORY, _TEMPERATURE, _POWER, _AGE,
)  # fmt: skip
VM_COLUMNS: Final = (
    field("NAME", "name", Fit.WHOLE), _numeric("CPUS", "cpus", "{:.2f}"),
    _numeric("RESIDENT", "memory_bytes", "{:.1f}GiB", scale=1 / GIB, spare=True), _USE, _MEMORY,
    Column("LICENSED", _licensed, Fit.WHOLE, spare=True, exact=lambda row: row["licensed"]), _AGE,
)  # fmt: skip
VALUE_COLUMNS: Final = (
    field("QUANTITY", "quantity", Fit.WHOLE), field("OF", "label"),
    Column("NUMBER", _number, Fit.WHOLE, exact=lambda row: row["number"]),
)  # fmt: skip


def next_frame_s(ages_s: Iterable[float | None]) -> float:
    """Seconds until the host that was read last is read again: no event tells of readings. ``ages_s``: of what is
    shown; None: not read."""
    youngest_s = min((age_s for age_s in ages_s if age_s is not None), default=0.0)
    return PERIOD_S - youngest_s % PERIOD_S + _ON_ITS_WAY_S


def reading_lines(age_s: float | None, readings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every number below how old it is, or why there is none."""
    if age_s is None:
        return ["", "nothing was read on its host within 30 s"]
    silent = [str(reading["silent"]) for reading in readings if reading.get("silent")]
    rows = [dict(value) for reading in readings for value in reading["values"]]
    lines = ["", f"read {show_span(age_s)} ago", *(f"no numbers: {shown(why)}" for why in silent)]
    return [*lines, *render_table(rows, VALUE_COLUMNS, width())] if rows else lines
