# SPDX-License-Identifier: Apache-2.0
"""What needs no host: how far forecasts are from copies that are drawn, and how well a drain uses its places."""

from __future__ import annotations

import heapq
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.core.moves.forecast import copy_time
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from orchestrator.services.maintenance.maintenances import WantedDrain
from tests.fakes.control_plane import L40S_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_machine import FakeMachine, l40s
from tests.operations.moves import MIGRATABLE, OTHER
from tests.operations.test_driver_upgrades import keeper
from tests.unit.core.test_forecast import CASES, known, of_pair

VMS: Final = 16
PARALLEL: Final = 4
MOVE_S: Final = 60.0
JITTER: Final = 0.3
"""Moves are not all alike: one takes so much longer or shorter, at most, as a part of it."""


def forecast_error(measured: int = 10) -> float:
    """Of the middle, as a part of what it took: nine of ten are not above it."""
    rng, errors = random.Random(measured), []
    for _ in range(CASES):
        drawn = of_pair(rng)
        past, happens = [drawn() for _ in range(measured)], drawn()
        forecast = known(copy_time(happens.size_bytes, past))
        errors.append(abs((forecast.low_s + forecast.high_s) / 2 - happens.seconds) / happens.seconds)
    return sorted(errors)[int(0.9 * CASES)]


def drained() -> dict[str, float | int | None]:
    """A host of 16 VMs that run: its moves, of which no more than may are at work, each as long as it was drawn to
    take; the efficiency is what they take in sum, by what as many places have in that time.

    :raises AssertionError: a VM is left, or more were at work at once"""
    with tempfile.TemporaryDirectory() as state:
        plane = _with_vms(Path(state))
        plane.services.maintenances.drain(L40S_HOST, WantedDrain(parallel=PARALLEL))
        rng, took, at_work, time = random.Random(1), list[float](), list[tuple[float, str]](), 0.0
        while True:
            keeper(plane).round()
            for operation in plane.engine.waiting:
                took.append(MOVE_S * (1 + rng.uniform(-JITTER, JITTER)))
                heapq.heappush(at_work, (time + took[-1], operation))
            plane.engine.waiting.clear()
            assert len(at_work) <= PARALLEL
            if not at_work:
                break
            time, operation = heapq.heappop(at_work)
            Runner(plane.world, plane.journal, DEFINITIONS).run(operation)
        hosts = [vm.host for vm in plane.services.vms.list(None)]
        plane.store.close()
    assert hosts == [OTHER] * VMS
    return {"wall_s": time, "moves": len(took), "drain_parallel_efficiency": sum(took) / (PARALLEL * time)}


def _with_vms(state: Path) -> ControlPlane:
    plane = control_plane(state)
    gpus = [f"0000:8{number}:00.0" for number in range(VMS // 4)]
    for name, machine_id in ((L40S_HOST, "m2"), (OTHER, "m9")):
        plane.hosts.machines[f"{name}.test"] = FakeMachine(machine_id=machine_id, gpus=[l40s(gpu) for gpu in gpus])
        plane.add_host(name)
    with plane.store.begin() as tx:
        tx.offerings.put(MIGRATABLE)
    for number in range(VMS):
        plane.services.vms.create(replace(create_vm(f"vm{number}", profile=MIGRATABLE.name), host=L40S_HOST))
    plane.engine.drain()
    return plane
