# SPDX-License-Identifier: Apache-2.0
"""Networks and data volumes of a VM decide where it can be: create, plan, explain and capacity say the same of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import VgpuctlError
from orchestrator.core.hosts.bridges import Bridge, Uplink
from orchestrator.core.offerings.offering import Offering
from orchestrator.services.messages import CreateVm
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import GIB, L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_machine import FakeMachine, t4

T4 = "GRID T4-2Q"
BR0 = Uplink(bridge="br0")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


def refused(plane: ControlPlane, vm: CreateVm) -> list[tuple[str, str]]:
    """The code and words of each who is asked for that VM."""
    question = Question(profile=vm.profile, network=vm.network, more_networks=vm.more_networks, volumes=vm.volumes)
    capacity, each = plane.services.capacity, replace(question, profile="", each=True)
    ways: tuple[Callable[[], object], ...] = (
        lambda: plane.services.vms.create(vm),
        lambda: plane.services.vms.plan(vm),
        lambda: capacity.explain(question),
        lambda: capacity.explain_for_tenant(question),
        lambda: capacity.capacity(question),
        lambda: capacity.capacity(each),
        lambda: capacity.room(question, "default"),
        lambda: capacity.room(each, "default"),
    )
    said = []
    for ask in ways:
        with pytest.raises(VgpuctlError) as caught:
            ask()
        said.append((caught.value.code, caught.value.message))
    return said


VM = create_vm("a")


@pytest.mark.parametrize(
    "vm,code",
    [
        (replace(VM, more_networks=("nowhere",)), "network.unknown"),
        (replace(VM, more_networks=("default",)), "network.repeated"),
        (replace(VM, more_networks=tuple(f"n{number}" for number in range(8))), "network.too_many_cards"),
        (replace(VM, volumes=("nothing",)), "volume.unknown"),
        (replace(VM, volumes=("data", "data")), "volume.repeated"),
        (replace(VM, volumes=("No Name",)), "volume.name_invalid"),
        (replace(VM, volumes=("taken",)), "volume.attached"),
    ],
)
def test_what_a_vm_cannot_have_is_refused_with_one_code_whoever_asks(
    plane: ControlPlane, vm: CreateVm, code: str
) -> None:
    for name in ("data", "taken"):
        plane.services.volumes.create("default", name, GIB, None)
    plane.services.vms.create(replace(create_vm("has"), volumes=("taken",)))
    plane.engine.drain()
    said = refused(plane, vm)
    assert said == [(code, said[0][1])] * len(said)


def test_where_its_second_network_is_not_no_vm_fits_whoever_is_asked(plane: ControlPlane) -> None:
    plane.machine(T4_HOST).bridges = (Bridge(name="br0", kind="linux"),)
    plane.look(T4_HOST)
    plane.services.vms.networks.add_bridged("office", BR0)
    plane.machine(T4_HOST).bridges = ()
    plane.look(T4_HOST)
    capacity = plane.services.capacity
    question = Question(profile=T4, more_networks=("office",))
    assert {one.code for one in capacity.explain(question).explanation.reasons} == {"host.no_bridge"}
    assert capacity.capacity(question)[0].fits_now == 0
    assert {row.fits_now for row in capacity.capacity(Question(each=True, more_networks=("office",)))} == {0}
    assert capacity.capacity(replace(question, more_networks=()))[0].fits_now > 1
    with pytest.raises(VgpuctlError) as caught:
        plane.services.vms.plan(replace(create_vm("a"), more_networks=("office",)))
    assert {one.code for one in caught.value.reasons} == {"host.no_bridge"}


def test_of_vms_with_a_volume_one_fits_and_only_where_the_volume_is(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    plane.services.volumes.create("default", "data", GIB, T4_HOST)
    capacity, asked = plane.services.capacity, Question(profile=T4, volumes=("data",))
    (row,) = capacity.capacity(asked)
    assert row.fits_now == 1
    assert capacity.room(asked, "default")[0].fits_now == 1
    assert capacity.capacity(replace(asked, profile="NVIDIA L40S-12Q"))[0].fits_now == 0
    every = {row.profile: row.fits_now for row in capacity.capacity(replace(asked, profile="", each=True))}
    assert max(every.values()) == 1
    assert {name for name, fits in every.items() if fits and "l40s" in name} == set()


def test_how_big_vms_would_be_counts_also_when_no_profile_is_named(plane: ControlPlane) -> None:
    every = {row.fits_now for row in plane.services.capacity.capacity(Question(each=True, memory_mib=8 * 1024**2))}
    assert every == {0}


def test_of_vms_that_spread_one_fits_on_each_host_that_has_none(plane: ControlPlane) -> None:
    plane.hosts.machines["t4-b.test"] = FakeMachine(machine_id="m9", gpus=[t4()])
    plane.add_host("t4-b")
    spreading = Offering(name="asked", origin="site", kind="time_sliced", vgpu_type=T4, anti_affinity="host")
    with plane.store.begin() as tx:
        tx.offerings.put(spreading)
    services, question = plane.services, Question(profile="asked")
    for left in (2, 1, 0):
        (row,) = services.capacity.capacity(question)
        assert row.fits_now == left
        assert services.capacity.room(question, "default")[0].fits_now == min(left, 1)
        assert services.capacity.explain(question).explanation.fits == bool(left)
        if left:
            services.vms.create(create_vm(f"vm-{left}", profile="asked"))


def test_the_volume_that_ties_a_vm_to_a_host_that_cannot_hold_it_is_named_whoever_is_asked(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    plane.services.volumes.create("default", "data", GIB, T4_HOST)
    profile, capacity = "NVIDIA L40S-12Q", plane.services.capacity
    question = Question(profile=profile, volumes=("data",))
    with pytest.raises(VgpuctlError) as caught:
        plane.services.vms.create(replace(create_vm("a", profile=profile), volumes=("data",)))
    explained = capacity.explain(question).explanation.reasons
    (row,) = capacity.capacity(question)
    assert row.reason is not None
    said = f"the host of volume data can never hold {profile}"
    assert (caught.value.message, explained[0].message, row.reason.message) == (said, said, said)
    assert "leave out volume data" in str(caught.value.hint)
    for reasons in (caught.value.reasons, explained):
        assert "volume data is on another host" in {reason.message for reason in reasons}
