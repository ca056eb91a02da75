# SPDX-License-Identifier: Apache-2.0
"""Many creates at once, by two controllers' planners on one database, for fewer places than there are requests."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.adapters.state.clock import RandomIds
from orchestrator.core.errors import NoCapacity
from orchestrator.core.vms.backup import Backup
from orchestrator.core.vms.disk_snapshot import SnapshotSource
from orchestrator.core.vms.vm import Vm, VmSpec
from orchestrator.core.vms.volume import Volume
from orchestrator.services.vms.planning import Leaving, Others, Planner, VmPlan
from orchestrator.services.vms.vms import VmService
from orchestrator.store.transaction import Transaction
from tests.fakes.control_plane import T4_HOST, control_plane, create_vm

REQUESTS = 300
AT_ONCE = 16
PROFILE = "GRID T4-2Q"
PLACES = 16
"""Of that size, on two GPUs of 16 GB."""


_NOBODY = Others()


@dataclass(frozen=True, kw_only=True)
class CountingPlanner(Planner):
    """Notes for whom it has planned."""

    planned: list[str] = field(default_factory=list)

    def plan(
        self,
        tx: Transaction,
        spec: VmSpec,
        stored: Vm | None = None,
        *,
        others: Others = _NOBODY,
        volumes: tuple[Volume, ...] = (),
        bound: Leaving | SnapshotSource | Backup | None = None,
    ) -> VmPlan:
        made = super().plan(tx, spec, stored, others=others, volumes=volumes, bound=bound)
        self.planned.append(spec.name)
        return made


def test_of_300_creates_at_once_as_many_are_made_as_there_are_places_and_losers_are_planned_again(
    url: str, tmp_path: Path
) -> None:
    planes = [control_plane(tmp_path / name, url=url) for name in ("one", "two")]
    planes[0].add_host(T4_HOST)
    planners = [_counting(plane.services.vms.planner) for plane in planes]
    services = [
        replace(plane.services.vms, planner=planner) for plane, planner in zip(planes, planners, strict=True)
    ]  # fmt: skip

    with ThreadPoolExecutor(AT_ONCE) as threads:
        outcomes = Counter(threads.map(lambda number: _asked(services[number % 2], f"vm{number}"), range(REQUESTS)))
    assert outcomes == {"made": PLACES, "refused": REQUESTS - PLACES}
    with planes[0].store.read() as tx:
        claims, usage = tx.claims.of_host(T4_HOST), tx.vms.list(host=T4_HOST)
    slots = [(one.gpu, slot) for claim in claims for one in claim.devices for slot in one.slots]
    functions = [one.function for claim in claims for one in claim.devices if one.function is not None]
    assert len(slots) == len(set(slots))
    assert len(functions) == len(set(functions))
    assert {claim.vm for claim in claims} == {vm.id for vm in usage}
    assert sum(len(one.planned) for one in planners) > PLACES  # some lost a place that they had planned, and went on
    for plane in planes:
        plane.store.close()


def _counting(planner: Planner) -> CountingPlanner:
    return CountingPlanner(index=planner.index, clock=planner.clock, ids=RandomIds())


def _asked(vms: VmService, name: str) -> str:
    try:
        vms.create(create_vm(name, profile=PROFILE))
    except NoCapacity:
        return "refused"
    return "made"
