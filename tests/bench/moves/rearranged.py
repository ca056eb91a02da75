# SPDX-License-Identifier: Apache-2.0
"""What moves win, carried out: every create, delete and move is an operation on hosts in memory."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.core.errors import NoCapacity
from orchestrator.services.maintenance.defragmenting import WantedDefragmentation
from tests.fakes.control_plane import ControlPlane, control_plane, create_vm
from tests.fakes.fake_machine import FakeMachine, l40s
from tests.operations.moves import MIGRATABLE
from tests.operations.test_driver_upgrades import go_on

HOSTS: Final = 6
GPUS: Final = 4
SLOTS: Final = {"12": 1, "24": 2, "48": 4}
"""GB of a size → quarters of a GPU."""
SHARES: Final = {"12": 0.5, "24": 0.3, "48": 0.2}
REQUESTS: Final = 120
LOAD: Final = 1.1
"""Of what there is: at 0.95 nothing is refused, so that moves win nothing."""


@contextmanager
def _fleet() -> Iterator[ControlPlane]:
    with tempfile.TemporaryDirectory() as state:
        plane = control_plane(Path(state))
        for number in range(HOSTS):
            gpus = [l40s(f"0000:8{at}:00.0") for at in range(GPUS)]
            plane.hosts.machines[f"h{number}.test"] = FakeMachine(machine_id=f"m9{number}", gpus=gpus)
            plane.add_host(f"h{number}")
        with plane.store.begin() as tx:
            for size in SLOTS:
                tx.offerings.put(replace(MIGRATABLE, name=f"size-{size}", vgpu_type=f"NVIDIA L40S-{size}Q"))
        yield plane
        plane.store.close()


def _sizes(rng: random.Random) -> Iterator[str]:
    while True:
        yield rng.choices(list(SHARES), list(SHARES.values()))[0]


def accepted(*, with_moves: bool) -> dict[str, float | int | None]:
    """Of a stream of requests, in quarters of GPUs, and how many VMs moved for each made."""
    rng, moves, offered, made = random.Random(100), 0, 0, list[str]()
    lasts = LOAD * HOSTS * GPUS * 4 / sum(SLOTS[size] * share for size, share in SHARES.items())
    leaves, won, all_won = dict[str, float](), 0, 0
    with _fleet() as plane:
        for number, size in zip(range(REQUESTS + int(lasts)), _sizes(rng), strict=False):
            for name in [name for name, at in leaves.items() if at <= number]:
                plane.services.vms.delete("default", name)
                del leaves[name]
            plane.engine.drain()
            counts = number >= lasts  # it is full by then
            offered += SLOTS[size] * counts
            request = replace(create_vm(f"vm{number}", profile=f"size-{size}"), with_moves=with_moves)
            try:
                started = plane.services.vms.create(request)
            except NoCapacity:
                continue
            moves += len(started.first) * counts
            plane.engine.waiting[:] = [*started.first, str(started.operation)]
            plane.engine.drain()
            leaves[request.name] = number + rng.expovariate(1 / lasts)
            won, all_won = won + counts, all_won + SLOTS[size] * counts
            made.append(request.name)
        states = {vm.state for vm in plane.services.vms.list(None)}
    assert states == {"running"}
    return {"weighted_acceptance": 100 * all_won / offered, "moves_per_vm": moves / won}


def defragmented() -> dict[str, float | int | None]:
    """Half of the VMs of a full fleet have gone: GPUs in use before and after, by the fewest that would do."""
    rng = random.Random(100)
    with _fleet() as plane:
        for number, size in zip(range(10 * HOSTS * GPUS), _sizes(rng), strict=False):
            try:
                plane.services.vms.create(create_vm(f"vm{number}", profile=f"size-{size}"))
            except NoCapacity:
                break
        plane.engine.drain()
        vms = plane.services.vms.list(None)
        for vm in rng.sample(list(vms), len(vms) // 2):
            plane.services.vms.delete("default", vm.spec.name)
        plane.engine.drain()
        before, fewest = _in_use(plane), _fewest(plane)
        begun = plane.services.defragmentation.declare(WantedDefragmentation(max_moves=256, parallel=4))
        ended = go_on(plane)
        after = _in_use(plane)
    assert [gain.measured for gain in ended.gains] == [gain.planned for gain in begun.gains]
    return {
        "active_over_min_before": before / fewest,
        "active_over_min": after / fewest,
        "moves_per_freed_gpu": len(begun.moves) / (before - after),
    }


def _in_use(plane: ControlPlane) -> int:
    return len({(vm.host, device.gpu) for vm in plane.services.vms.list(None) for device in vm.devices})


def _fewest(plane: ControlPlane) -> int:
    """GPUs have vGPUs of one size each."""
    sizes = [vm.spec.profile.partition("-")[2] for vm in plane.services.vms.list(None)]
    return sum(-(-sizes.count(size) * slots // 4) for size, slots in SLOTS.items())
