# SPDX-License-Identifier: Apache-2.0
"""Readings as people see them: rows of ``top`` and lines of ``show``. A number that was not read is ``-``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.ages import show_span
from orchestrator.cli.output import shown, width
from orchestrator.cli.table import Column, Fit, field, render_table
from orchestrator.core.units import GIB

Row = dict[str, Any]
Readings = Annotated[bool, typer.Option("--readings", help="With what it does now, and how old that is.")]


def number_of(reading: Mapping[str, Any], quantity: str, label: str | None = None) -> float | None:
    """Of the first value that is it. ``label``: None: whichever there is."""
    fitting = (
        value["number"]
        for value in reading["values"]
        if value["quantity"] == quantity and label in {None, value["label"]}
    )
    return next(fitting, None)


def rate_of(reading: Mapping[str, Any], quantity: str) -> float | None:
    """What a counter grew by the second lately, all its labels together."""
    charted = (reading["history"] or {"series": ()})["series"]
    last = [series["numbers"][-1] for series in charted if series["quantity"] == quantity and series["numbers"]]
    grown = [number for number in last if number is not None]
    return sum(grown) if grown else None


def gpu_rows(host: Mapping[str, Any]) -> list[Row]:
    """A row for each GPU of a host's readings."""
    return [
        {
            "host": host["host"],
            "address": reading["gpu"],
            "model": reading["model"],
            "use": number_of(reading, "gpu_utilization_ratio"),
            "memory_used_bytes": number_of(reading, "gpu_memory_used_bytes"),
            "memory_total_bytes": number_of(reading, "gpu_memory_total_bytes"),
            "temperature_celsius": number_of(reading, "gpu_temperature_celsius", "gpu"),
            "power_watts": number_of(reading, "gpu_power_watts"),
            "silent": reading["silent"],
            "age_s": host["age_s"],
        }
        for reading in host["readings"]
        if reading["kind"] == "gpu"
    ]


def host_row(host: Mapping[str, Any]) -> Row:
    """A host in one row: means, sums and the hottest of its GPUs. How many it has is not known while it is silent."""
    gpus, heard = gpu_rows(host), host["age_s"] is not None
    return {
        "host": host["host"],
        "gpus": len(gpus) if heard else None,
        "silent": sum(gpu["silent"] is not None for gpu in gpus) if heard else None,
        "use": _of(fmean, gpus, "use"),
        "memory_used_bytes": _of(sum, gpus, "memory_used_bytes"),
        "memory_total_bytes": _of(sum, gpus, "memory_total_bytes"),
        "temperature_celsius": _of(max, gpus, "temperature_celsius"),
        "power_watts": _of(sum, gpus, "power_watts"),
        "age_s": host["age_s"],
    }


def vm_row(vm: Mapping[str, Any]) -> Row:
    """A VM with its vGPUs in one row. Rates need the history."""
    itself = [reading for reading in vm["readings"] if reading["kind"] == "vm"]
    vgpus = [reading for reading in vm["readings"] if reading["kind"] == "vgpu"]
    numbers = [{quantity: number_of(vgpu, quantity) for quantity in _OF_VGPUS} for vgpu in vgpus]
    return {
        "name": vm["name"],
        "cpus": next((rate_of(reading, "vm_cpu_seconds_total") for reading in itself), None),
        "memory_bytes": next((number_of(reading, "vm_memory_resident_bytes") for reading in itself), None),
        "use": _of(fmean, numbers, "vgpu_sm_ratio"),
        "memory_used_bytes": _of(sum, numbers, "vgpu_memory_used_bytes"),
        "memory_total_bytes": _of(sum, numbers, "vgpu_memory_total_bytes"),
        "licensed": _of(min, numbers, "vgpu_licensed"),
        "age_s": vm["age_s"],
    }


_OF_VGPUS: Final = ("vgpu_sm_ratio", "vgpu_memory_used_bytes", "vgpu_memory_total_bytes", "vgpu_licensed")


def _of(together: Any, rows: Iterable[Mapping[str, Any]], key: str) -> float | None:
    numbers = [row[key] for row in rows if row[key] is not None]
    return together(numbers) if numbers else None


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
    field("LICENSED", "licensed", spare=True), _AGE,
)  # fmt: skip
VALUE_COLUMNS: Final = (
    field("QUANTITY", "quantity", Fit.WHOLE), field("OF", "label"), _numeric("NUMBER", "number", "{:.6g}")
)  # fmt: skip


def reading_lines(age_s: float | None, readings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every number below how old it is, or why there is none."""
    if age_s is None:
        return ["", "nothing was read on its host within 30 s"]
    silent = [str(reading["silent"]) for reading in readings if reading.get("silent")]
    rows = [dict(value) for reading in readings for value in reading["values"]]
    lines = ["", f"read {show_span(age_s)} ago", *(f"no numbers: {shown(why)}" for why in silent)]
    return [*lines, *render_table(rows, VALUE_COLUMNS, width())] if rows else lines
