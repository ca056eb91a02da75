# SPDX-License-Identifier: Apache-2.0
"""An offering is given whole or refused, and whoever asks about it, in whatever way, hears the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.errors import InvalidInput, NoCapacity
from orchestrator.core.offering import Offering, Scheduler, VgpuParameters
from orchestrator.core.offering_support import unsupported
from orchestrator.services.capacity import CapacityService, Question
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with

T4 = "GRID T4-2Q"
BASE = Offering(name="asked", origin="site", kind="time_sliced", vgpu_type=T4)
UNSUPPORTED = (
    replace(BASE, scheduler=Scheduler(policy="fixed_share")),
    replace(BASE, parameters=VgpuParameters(uvm=True)),
    replace(BASE, parameters=VgpuParameters(debugging=True)),
    replace(BASE, parameters=VgpuParameters(frame_rate_limiter=False)),
    replace(BASE, mixed_sizes=True),
    replace(BASE, numa="strict"),
    replace(BASE, cpu="pinned"),
    replace(BASE, power_cap_w=70),
    replace(BASE, anti_affinity="gpu"),
)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


def capacity_of(plane: ControlPlane) -> CapacityService:
    planner = plane.services.vms.planner
    return CapacityService(store=plane.store, index=planner.index, clock=planner.clock)


def put(plane: ControlPlane, offering: Offering) -> None:
    with plane.store.begin() as tx:
        tx.offerings.put(offering)


@pytest.mark.parametrize("offering", UNSUPPORTED, ids=lambda offering: unsupported(offering)[0])
def test_what_is_not_done_is_refused_with_one_code_whoever_asks(plane: ControlPlane, offering: Offering) -> None:
    put(plane, offering)
    services, capacity, question = plane.services, capacity_of(plane), Question(profile="asked")
    asked: tuple[Callable[[], object], ...] = (
        lambda: services.vms.create(create_vm("a", profile="asked")),
        lambda: services.vms.plan(create_vm("a", profile="asked")),
        lambda: capacity.explain(question),
        lambda: capacity.explain_for_tenant(question),
        lambda: capacity.capacity(question),
        lambda: capacity.room(question, "default"),
    )
    refused = []
    for ask in asked:
        with pytest.raises(InvalidInput) as caught:
            ask()
        refused.append((caught.value.code, caught.value.message))
    assert refused == [("profile.unsupported", refused[0][1])] * len(asked)
    assert "asked" not in {row.profile for row in capacity.capacity(None)}


def test_of_the_shipped_offerings_most_promise_only_what_is_done() -> None:
    shipped = shipped_profiles().offerings
    assert unsupported(shipped["t4-2q"]) == ()
    assert unsupported(shipped["l40s-12q-fixed"]) == ("a scheduler",)


def test_vms_of_an_offering_that_spreads_share_no_host(plane: ControlPlane) -> None:
    put(plane, replace(BASE, anti_affinity="host"))
    first = plane.services.vms.create(create_vm("a", profile="asked"))
    assert first.operation
    for ask in (
        lambda: plane.services.vms.create(create_vm("b", profile="asked")),
        lambda: plane.services.vms.plan(create_vm("b", profile="asked")),
    ):
        with pytest.raises(NoCapacity) as caught:
            ask()
        assert "host.anti_affinity" in {reason.code for reason in caught.value.reasons}
    assert not capacity_of(plane).explain(Question(profile="asked")).explanation.fits
    assert plane.services.vms.create(create_vm("c", profile=T4)).operation
