# SPDX-License-Identifier: Apache-2.0
"""``simulate placement``: a fleet file and a request file in, one JSON file out."""

from __future__ import annotations

import csv
import io
import json
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.catalogue.problems import Problem
from orchestrator.catalogue.profiles import Profiles, shipped_profiles
from orchestrator.core.advice.gpu_map import GpuRow, gpu_map
from orchestrator.core.errors import InvalidInput, NotFound, why_unreadable, why_unwritable
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.from_offering import request_for
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.placement.views import Placement, Request
from orchestrator.core.vms.vm import VmShape
from orchestrator.regular_file import open_regular
from orchestrator.simulate_placement.fleet_file import problems_error, read_fleet
from orchestrator.simulate_placement.simulation import Simulation

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


Summary = dict[str, float | int | None]


def run(fleet_path: Path, requests_path: Path, out_path: Path) -> tuple[Summary, tuple[GpuRow, ...]]:
    """Simulate and write ``out_path``: ``requests`` in order of arrival, then ``summary``, which is returned too, with
    the GPUs as they are after the last request.

    A request that finds no place stops VMs of lower priority, those whose loss wastes the fewest slot-hours. Such a
    VM's row stays accepted, and its ``reason`` says who preempted it and when.

    The file appears when everything went well, never half-written. ``gpu`` is the position on the host and
    ``start`` the first slot; both are lists when a VM has several devices.

    :raises InvalidInput: a file is malformed
    """
    profiles = shipped_profiles()
    hosts = read_fleet(fleet_path, profiles.catalogue)
    simulation = Simulation(PlacementEngine(hosts), now_ns=time.perf_counter_ns)
    try:
        with tempfile.TemporaryDirectory(dir=out_path.parent, prefix=".simulate-") as scratch:
            draft = Path(scratch) / "result.json"
            stopped: dict[str, str] = {}
            with draft.open("w", encoding="utf-8") as file:
                file.write('{"requests": [')
                separator = "\n"
                for line in _results(simulation, requests_path, profiles, stopped):
                    file.write(separator + line)
                    separator = ",\n"
                summary: Summary = {**simulation.score.summary(), "gpus": len(simulation.engine.fleet.gpus)}
                file.write('\n],\n"summary": ' + json.dumps(summary) + "}\n")
            if stopped:
                draft = _with_reasons(draft, stopped)
            draft.replace(out_path)
    except OSError as error:
        raise InvalidInput(
            "simulate.out_invalid",
            f"cannot write {out_path}: {why_unwritable(error)}",
            hint="name a file in a directory you may write to",
        ) from error
    return summary, _gpus(simulation.engine)


def _gpus(engine: PlacementEngine) -> tuple[GpuRow, ...]:
    hosts = []
    for host in engine.fleet.hosts:
        gpus = (replace(gpu.view, cut=gpu.cut_name, occupied=tuple(item for _, item in gpu.held)) for gpu in host.gpus)
        hosts.append(replace(host.view, gpus=tuple(gpus)))
    return gpu_map(hosts)


def _with_reasons(draft: Path, stopped: dict[str, str]) -> Path:
    """A copy of ``draft`` in which the rows of VMs in ``stopped`` have a reason: known long after they were written."""
    explained = draft.with_suffix(".told")
    with draft.open(encoding="utf-8") as before, explained.open("w", encoding="utf-8") as after:
        for line in before:
            text = line.rstrip("\n")
            if text.startswith(_ROW):
                row = json.loads(text.removesuffix(","))
                reason = stopped.get(row["id"])
                if reason is not None and row["accepted"]:
                    text = json.dumps({**row, "reason": reason}) + ("," if text.endswith(",") else "")
            after.write(text + "\n")
    return explained


_ROW = '{"id": '


def _results(simulation: Simulation, path: Path, profiles: Profiles, stopped: dict[str, str]) -> Iterator[str]:
    """One line per request. VMs that are preempted are entered in ``stopped``, with by whom and when."""
    offerings: dict[str, Offering] = {}
    for row in read_requests(path):
        offering = offerings.get(row.profile)
        if offering is None:
            try:
                # a fleet file says nothing of a host's NUMA nodes, huge pages and network cards, so none are asked for
                offering = replace(profiles.resolve(row.profile), cpu="shared", numa="any", hugepages=None, nic=None)
                offerings[row.profile] = offering
            except NotFound as error:
                raise row_error(path, row.line, f"profile: {error.message}; {error.hint}") from error
        request = request_of(row, offering)
        outcome = simulation.offer(request, row.depart_s)
        for vm_id in outcome.preempted:
            stopped[vm_id] = f"preempted by {row.id} at {row.arrive_s:.15g} s"
        yield json.dumps(
            {
                "id": row.id,
                "accepted": outcome.placement is not None,
                "host": outcome.placement.host_id if outcome.placement is not None else None,
                "gpu": _gpu(outcome.placement),
                "start": _start(outcome.placement),
                "reason": outcome.reason,
            }
        )


def request_of(row: RequestRow, offering: Offering) -> Request:
    """The request that a row stands for. Rows with equal ids never live at the same time."""
    vm = VmShape(
        name=row.id, tenant=row.tenant, profile=row.profile, image="", vcpus=row.vcpus, memory_mib=row.memory_mib,
        disk_bytes=0, network="",
    )  # fmt: skip
    wanted = Wanted(vm_id=row.id, vm=vm, offering=offering, count=row.count)
    return request_for(wanted, priority=row.priority, now_s=row.arrive_s)


def _gpu(placement: Placement | None) -> int | list[int] | None:
    if placement is None:
        return None
    gpus = [int(gpu) for gpu in placement.gpu_ids]
    return gpus[0] if len(gpus) == 1 else gpus


def _start(placement: Placement | None) -> int | list[int] | None:
    if placement is None:
        return None
    starts = [part.start for part in placement.parts]
    return starts[0] if len(starts) == 1 else starts
