# SPDX-License-Identifier: Apache-2.0
"""An offering may say which labels its hosts have. Whoever is asked, in whatever way, gives the same answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import NoCapacity
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.services.messages import HostChange
from orchestrator.services.offerings import ProfileService
from orchestrator.services.vms.capacity import CapacityService, Question
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with

GOLDEN = Offering(
    name="golden", origin="site", kind="time_sliced", vgpu_type="GRID T4-2Q", hosts=(("rack", "3"), ("tier", "gold"))
)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        with made.store.begin() as tx:
            tx.offerings.put(GOLDEN)
        yield made


def label(plane: ControlPlane, **labels: str | None) -> None:
    plane.services.hosts.change(T4_HOST, HostChange(labels=labels))


def capacity_of(plane: ControlPlane) -> CapacityService:
    planner = plane.services.vms.planner
    return CapacityService(store=plane.store, index=planner.index, clock=planner.clock, moves=plane.services.moves)


def answers(plane: ControlPlane) -> tuple[bool, bool, bool, bool, bool, bool]:
    """Whether plan, explain, a tenant's explain, capacity, a tenant's room and the profiles say that there is some."""
    capacity, question = capacity_of(plane), Question(profile="golden")
    profiles = ProfileService(index=plane.services.vms.planner.index, capacity=capacity)
    (row,), (room,) = capacity.capacity(question), capacity.room(question, "default")
    listed = next(one for one in profiles.list() if one.offering.name == "golden")
    assert listed == profiles.get("golden")
    assert bool(listed.hosts) == bool(listed.free)
    return (
        not planning_refused(plane), capacity.explain(question).explanation.fits,
        capacity.explain_for_tenant(question).fits,
        row.fits_now > 0, room.fits_now > 0, listed.free > 0,
    )  # fmt: skip


def planning_refused(plane: ControlPlane) -> set[str]:
    """Codes of the reasons."""
    try:
        plane.services.vms.plan(create_vm("asked", profile="golden"))
    except NoCapacity as refused:
        return {reason.code for reason in refused.reasons}
    return set()


def test_only_hosts_with_all_the_labels_give_it_whoever_asks(plane: ControlPlane) -> None:
    assert answers(plane) == (False,) * 6
    assert planning_refused(plane) == {"host.labels"}
    label(plane, tier="gold")
    assert answers(plane) == (False,) * 6
    label(plane, rack="3")
    assert answers(plane) == (True,) * 6
    label(plane, rack="4")
    assert answers(plane) == (False,) * 6


def test_what_capacity_lists_is_what_the_labels_allow(plane: ControlPlane) -> None:
    rows = {row.profile: row.fits_now for row in capacity_of(plane).capacity(Question(each=True))}
    assert rows["golden"] == 0
    label(plane, tier="gold", rack="3")
    rows = {row.profile: row.fits_now for row in capacity_of(plane).capacity(Question(each=True))}
    assert rows["golden"] == rows["t4-2q"] > 0


@pytest.mark.parametrize("host", [None, T4_HOST])
def test_a_create_without_such_a_host_is_refused_and_leaves_nothing(plane: ControlPlane, host: str | None) -> None:
    with pytest.raises(NoCapacity) as caught:
        plane.services.vms.create(replace(create_vm("a", profile="golden"), host=host))
    (reason,) = caught.value.reasons
    assert (reason.code, reason.subjects) == ("host.labels", (T4_HOST,))
    with plane.store.read() as tx:
        assert tx.vms.list() == ()


def test_a_vm_stays_where_a_label_is_taken_away_and_starts_there_again(plane: ControlPlane) -> None:
    label(plane, tier="gold", rack="3")
    vms = plane.services.vms
    vms.create(create_vm("a", profile="golden"))
    plane.engine.drain()
    label(plane, tier=None)
    ways: tuple[Callable[[], object], ...] = (
        lambda: vms.stop("default", "a"),
        lambda: vms.start("default", "a"),
    )
    for way in ways:
        way()
        plane.engine.drain()
    assert vms.get("default", "a").state == "running"
    with pytest.raises(NoCapacity):
        vms.create(create_vm("b", profile="golden"))


def test_a_vm_that_gave_its_place_back_gets_one_with_the_labels_only(plane: ControlPlane) -> None:
    label(plane, tier="gold", rack="3")
    vms = plane.services.vms
    vms.create(replace(create_vm("a", profile="golden"), end=WantedEnd(after_s=600)))
    plane.engine.drain()
    plane.look(T4_HOST, after_s=700)
    assert vms.get("default", "a").deallocated == "lease_over"
    label(plane, tier=None)
    vms.extend("default", "a", WantedEnd(after_s=7200))
    with pytest.raises(NoCapacity):
        vms.start("default", "a")
    label(plane, tier="gold")
    vms.start("default", "a")
    plane.engine.drain()
    assert vms.get("default", "a").state == "running"


def test_an_offering_stored_before_hosts_could_be_chosen_takes_any(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        tx.offerings.put(replace(GOLDEN, name="plain", hosts=()))
        stored = next(one for one in tx.offerings.list() if one.name == "plain")
    assert stored.hosts == ()
    assert plane.services.vms.plan(create_vm("a", profile="plain")).host == T4_HOST
