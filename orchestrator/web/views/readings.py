# SPDX-License-Identifier: Apache-2.0
"""What GPUs, vGPUs and VMs do: the last five minutes as charts and, the same numbers, as tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from orchestrator.core.readings.quantities import BY_NAME
from orchestrator.core.units import MIB
from orchestrator.web.api_calls import ApiCalls, path_of

Reading = Mapping[str, Any]
"""Of one subject, as the API answers it with its history."""

UNITS: Final[tuple[tuple[str, str, float], ...]] = (
    ("_seconds_total", "processors", 1),
    ("_bytes_total", "MiB/s", 1 / MIB),
    ("_ratio", "%", 100),
    ("_bytes", "MiB", 1 / MIB),
    ("_celsius", "°C", 1),
    ("_watts", "W", 1),
    ("_hertz", "MHz", 1e-6),
)
"""How quantities whose names end so are shown, and by what their numbers are multiplied for it. Of counters the growth
by the second is charted."""
_OF_HOST: Final = frozenset(
    {"gpu_utilization_ratio", "gpu_memory_used_bytes", "gpu_temperature_celsius", "gpu_power_watts"}
)
"""What is charted of all of a host's GPUs together."""
_CONSTANT: Final = "gpu_memory_total_bytes"
_WORDS: Final = {"gpu": "GPU", "gpu_instance": "GPU instance", "vgpu": "vGPU", "vm": "VM"}


@dataclass
class Chart:
    """A quantity of several subjects over the last minutes. ``columns``: by what each is called, as many numbers as
    ``ages_s``, None where it was not read."""

    title: str
    ages_s: list[float]
    columns: dict[str, list[float | None]] = field(default_factory=dict)

    def rows(self) -> Iterator[tuple[float, tuple[float | None, ...]]]:
        """Seconds ago, and the numbers of then."""
        return zip(self.ages_s, zip(*self.columns.values(), strict=True), strict=True)


@dataclass(frozen=True)
class VgpuRow:
    """What a vGPU's guest has loaded and does. ``use``: of the GPU's multiprocessors, percent. None: not read."""

    name: str
    type_name: str | None
    guest_driver: str | None
    licence: str
    use: float | None
    used_bytes: float | None
    total_bytes: float | None

    @classmethod
    def of(cls, name: str, vgpu: Reading) -> VgpuRow:
        """``name``: what it is called."""
        numbers = {value["quantity"]: value["number"] for value in vgpu["values"]}
        use = numbers.get("vgpu_sm_ratio")
        return cls(
            name,
            vgpu["facts"].get("vgpu_type"),
            vgpu["facts"].get("guest_driver_version"),
            _licence(numbers.get("vgpu_licensed"), numbers.get("vgpu_license_expiry_timestamp_seconds")),
            None if use is None else 100 * use,
            numbers.get("vgpu_memory_used_bytes"),
            numbers.get("vgpu_memory_total_bytes"),
        )


@dataclass(frozen=True)
class ShownReadings:
    """``age_s``: since they were received, None: nothing was received lately. ``silent``: what is without numbers, and
    why."""

    age_s: float | None
    charts: tuple[Chart, ...] = ()
    vgpus: tuple[VgpuRow, ...] = ()
    silent: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()


async def of_host(api: ApiCalls, host: str) -> ShownReadings:
    """Its GPUs. :raises Refused:"""
    answer = await api.get(path_of("readings", "hosts", host), kind="gpu", history="true")
    return _shown(answer, [(reading["gpu"], reading) for reading in answer["readings"]], _OF_HOST)


async def of_gpu(api: ApiCalls, host: str, address: str) -> ShownReadings:
    """The GPU and what lies on it. :raises Refused:"""
    answer = await api.get(path_of("readings", "hosts", host), gpu=address, history="true")
    named = []
    for reading in answer["readings"]:
        what = _WORDS[reading["kind"]]
        number = reading["id"].rpartition("/")[2]
        own = f"{what} {number}" if reading["kind"] == "gpu_instance" else what
        named.append((f"{own} of {reading['vm']}" if reading["vm"] else own, reading))
    return _shown(answer, named)


async def of_vm(api: ApiCalls, tenant: str, name: str) -> ShownReadings:
    """The VM, its vGPUs and GPU instances. :raises Refused:"""
    answer = await api.get(path_of("readings", "vms", name), tenant=tenant, history="true")
    kinds = [reading["kind"] for reading in answer["readings"]]
    named = [
        (_WORDS[reading["kind"]] + (f" {reading['number']}" if kinds.count(reading["kind"]) > 1 else ""), reading)
        for reading in answer["readings"]
    ]
    return _shown(answer, named)


def _shown(answer: Reading, named: list[tuple[str, Reading]], only: Collection[str] | None = None) -> ShownReadings:
    return ShownReadings(
        age_s=answer["age_s"],
        charts=tuple(_charts(named, only)),
        vgpus=tuple(VgpuRow.of(name, reading) for name, reading in named if reading["kind"] == "vgpu"),
        silent=tuple((name, reading["silent"]) for name, reading in named if reading.get("silent")),
        problems=tuple(answer.get("problems", ())),
    )


def _charts(named: Iterable[tuple[str, Reading]], only: Collection[str] | None) -> Iterator[Chart]:
    charts: dict[str, Chart] = {}
    for name, reading in named:
        ages = reading["history"]["ages_s"]
        for series in reading["history"]["series"]:
            quantity = series["quantity"]
            if quantity == _CONSTANT or (only is not None and quantity not in only):
                continue
            unit, factor = _unit(quantity)
            chart = charts.setdefault(quantity, Chart(f"{BY_NAME[quantity].help}, {unit}", ages))
            column = _free_name(f"{name} {series['label']}".rstrip(), chart.columns)
            chart.columns[column] = [None if number is None else number * factor for number in series["numbers"]]
    return (chart for chart in charts.values() if chart.ages_s)


def _licence(licensed: float | None, ends: float | None) -> str:
    if licensed is None:
        return "unknown"
    if not licensed:
        return "none"
    try:
        return f"licensed until {datetime.fromtimestamp(ends, UTC):%Y-%m-%d %H:%M UTC}" if ends else "licensed"
    except (ValueError, OverflowError, OSError):  # a year that nobody writes
        return "licensed"


def _unit(quantity: str) -> tuple[str, float]:
    return next((unit, factor) for ending, unit, factor in UNITS if quantity.endswith(ending))


def _free_name(name: str, taken: Collection[str]) -> str:
    """A VM may have several vGPUs on one GPU."""
    return next(
        text for number in range(1, len(taken) + 2) if (text := name + f" ({number})" * (number > 1)) not in taken
    )
