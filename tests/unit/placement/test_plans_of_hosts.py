# SPDX-License-Identifier: Apache-2.0
"""Several devices are placed as if each host were looked at by itself, though hosts that are alike are not."""

from __future__ import annotations

from random import Random

import pytest

from orchestrator.core.gpu.vgpu_parameters import Scheduler
from orchestrator.core.placement.constraints import allows
from orchestrator.core.placement.engine import PlacementEngine, PlacementPlan
from orchestrator.core.placement.on_host import PlansOfHosts, plan_on_host
from orchestrator.core.placement.views import Request
from orchestrator.core.vms.isolation import Isolation
from tests.unit.placement.fleets import ask, gpus, host

SIZES = ("NVIDIA L40S-12Q", "NVIDIA L40S-24Q", "NVIDIA L40S-48Q")
EQUAL = Scheduler(policy="equal_share")


def _crowded(seed: int) -> PlacementEngine:
    """Hosts that are alike, filled, emptied and taken away at random."""
    random = Random(seed)
    engine = PlacementEngine([host(f"h{n}", gpus("L40S", 4, "time_sliced"), vcpus=40) for n in range(24)])
    tenants = ("a", "b")
    for number in range(120):
        isolation: Isolation | None = random.choice((None, "gpu", "host"))
        one = ask(
            f"vm{number}", random.choice(SIZES), vcpus=2, memory_mib=1024, tenant=random.choice(tenants),
            isolation=isolation, scheduler=random.choice((None, None, None, EQUAL)),
        )  # fmt: skip
        plan = engine.plan(one)
        if plan is not None:
            engine.take(one, plan)
    for vm_id in random.sample(sorted(engine.vms), len(engine.vms) // 3):
        engine.release(vm_id)
    for name in random.sample([one.view.name for one in engine.fleet.hosts], 6):
        engine.remove_host(name)
    return engine


def _one_by_one(engine: PlacementEngine, request: Request) -> PlacementPlan | None:
    """Every host by itself, by the same order."""
    found = [
        (plan[0], int(not one.used), one.number, PlacementPlan(one.number, plan[1], plan[0]))
        for one in engine.fleet.hosts
        if allows(request, one, None) and (plan := plan_on_host(engine.rankings, request, one)) is not None
    ]
    return min(found, key=lambda one: one[:3])[3] if found else None


@pytest.mark.parametrize("seed", range(6))
def test_what_is_worked_out_once_is_what_each_host_would_say(seed: int) -> None:
    engine = _crowded(seed)
    for profile in SIZES:
        for count in (2, 3, 5):
            for more in ({}, {"isolation": "gpu"}, {"isolation": "host"}, {"scheduler": EQUAL}, {"vcpus": 30}):
                request = ask("new", profile, **{"count": count, "vcpus": 2, "memory_mib": 1024, "tenant": "a", **more})
                assert engine.plan(request) == _one_by_one(engine, request)


def test_hosts_alike_are_looked_at_once() -> None:
    engine = PlacementEngine([host(f"h{n}", gpus("L40S", 4, "time_sliced")) for n in range(50)])
    request = ask("new", SIZES[0], count=2)
    plans = PlansOfHosts(engine.rankings, request, beside=False)
    assert len({plans.on(one) is None for one in engine.fleet.hosts}) == 1
    assert len(plans._known) == 1
