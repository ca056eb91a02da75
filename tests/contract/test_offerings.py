# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, NotFound, VgpuctlError
from orchestrator.core.gpu.vgpu_parameters import Scheduler, VgpuParameters
from orchestrator.core.offerings.offering import Offering
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import KEY, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.new_database import new_url

FIXED = Offering(
    name="t4-2q-fixed",
    origin="site",
    kind="time_sliced",
    vgpu_type="GRID T4-2Q",
    gpu_models=("Tesla T4",),
    scheduler=Scheduler(policy="fixed_share"),
    parameters=VgpuParameters(console=False),
    migratable=True,
)
PLAIN = replace(FIXED, name="t4-2q-site", scheduler=None, parameters=VgpuParameters())


@pytest.fixture(params=["sqlite", "postgresql"])
def plane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlPlane]:
    url = None if request.param == "sqlite" else new_url(request.getfixturevalue("postgres"), KEY)
    made = control_plane(tmp_path, url=url)
    yield made
    made.store.close()


def put(plane: ControlPlane, offering: Offering = FIXED) -> Offering:
    return plane.services.offerings.put(offering, look_up=True)


def told(plane: ControlPlane) -> list[tuple[str, str]]:
    return [(one.action, one.subject) for one in plane.services.tenancy.audit.list(limit=9, before=None)]


def test_an_offering_of_the_site_comes_back_as_it_was_put_and_is_written_down_once(plane: ControlPlane) -> None:
    assert put(plane) == put(plane) == FIXED
    assert plane.services.offerings.list() == (FIXED,)
    changed = put(plane, replace(FIXED, scheduler=None, description="as the driver has it"))
    assert plane.services.offerings.list() == (changed,)
    plane.services.offerings.remove(FIXED.name)
    assert plane.services.offerings.list() == ()
    found = [one for one in told(plane) if "offering" in one[0]]
    assert found == [("remove_offering", FIXED.name), *[("set_offering", FIXED.name)] * 2]


def test_whatever_takes_a_profile_takes_an_offering_of_the_site(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    with pytest.raises(NotFound, match="no profile is called"):
        plane.services.vms.plan(create_vm(profile=PLAIN.name))
    put(plane, PLAIN)
    plane.services.vms.create(create_vm("front", profile=PLAIN.name))
    plane.engine.drain()
    assert plane.services.vms.get("default", "front").devices[0].type_name == "GRID T4-2Q"
    assert plane.services.profiles.get(PLAIN.name).free == 15
    assert PLAIN.name in {info.offering.name for info in plane.services.profiles.list()}
    capacity = plane.services.capacity
    assert [row.fits_now for row in capacity.capacity(Question(profile=PLAIN.name))] == [15]
    assert PLAIN.name in {row.profile for row in capacity.capacity(Question(each=True))}
    assert capacity.explain(Question(profile=PLAIN.name)).explanation.fits
    plane.services.tenancy.quotas.change("default", {f"vgpus:{PLAIN.name}": 1})
    with pytest.raises(VgpuctlError) as caught:
        plane.services.vms.create(create_vm("second", profile=PLAIN.name))
    assert caught.value.code == "quota.exceeded"


def test_an_offering_that_a_vm_has_is_neither_changed_nor_removed_under_it(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    put(plane, PLAIN)
    plane.services.vms.create(create_vm("front", profile=PLAIN.name, start=False))
    for attempt in (
        lambda: put(plane, replace(PLAIN, vgpu_type="GRID T4-4Q")),
        lambda: plane.services.offerings.remove(PLAIN.name),
    ):
        with pytest.raises(Conflict) as caught:
            attempt()
        assert caught.value.code == "offering.in_use"
        assert "default/front" in caught.value.message
    assert put(plane, PLAIN) == PLAIN
    plane.engine.drain()
    plane.services.vms.delete("default", "front")
    plane.engine.drain()
    plane.services.offerings.remove(PLAIN.name)
    assert plane.services.offerings.list() == ()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": "t4-2q"}, "offering.name_taken"),
        ({"name": "m10-1q"}, "offering.name_taken"),
        ({"name": "a\n"}, "offering.name_invalid"),
        ({"name": "GRID T4-1Q"}, "offering.name_invalid"),
        ({"vgpu_type": "GRID T4-3Q"}, "offering.invalid"),
        ({"gpu_count": 2}, "offering.invalid"),
        ({"gpu_models": ("Tesla T5",)}, "offering.invalid"),
    ],
)
def test_an_offering_that_cannot_be_is_refused_and_nothing_is_kept(
    plane: ControlPlane, change: dict[str, Any], code: str
) -> None:
    before = told(plane)
    with pytest.raises(VgpuctlError) as caught:
        put(plane, replace(FIXED, **change))
    assert caught.value.code == code
    assert (plane.services.offerings.list(), told(plane)) == ((), before)


def test_all_mistakes_of_an_offering_are_told(plane: ControlPlane) -> None:
    with pytest.raises(InvalidInput) as caught:
        put(plane, replace(FIXED, vgpu_type="GRID T4-3Q", gpu_count=1))
    assert [reason.subjects for reason in caught.value.reasons] == [("vgpu_type",), ("gpu_count",)]


def test_only_offerings_of_the_site_are_removed(plane: ControlPlane) -> None:
    with pytest.raises(Conflict, match="comes with vgpuctl"):
        plane.services.offerings.remove("t4-2q")
    with pytest.raises(NotFound, match="no offering"):
        plane.services.offerings.remove("none")
