# SPDX-License-Identifier: Apache-2.0
"""How big a VM is for which no vCPUs, memory or disk are asked: one answer to every question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.errors import Conflict
from orchestrator.core.offerings.offering import Offering, VmSize, vm_size
from orchestrator.core.placement.rules.disk import NeedsDisk
from orchestrator.core.placement.rules.rule import need_of
from orchestrator.services.messages import CreateVm
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import GIB, L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with

GIB_MIB = 1024
NOTHING_ASKED = {"vcpus": 0, "memory_mib": 0, "disk_bytes": 0}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        yield made


def wish(profile: str, **asked: int) -> CreateVm:
    size = NOTHING_ASKED | asked
    vcpus, memory_mib, disk_bytes = size["vcpus"], size["memory_mib"], size["disk_bytes"]
    return replace(create_vm(profile=profile), vcpus=vcpus, memory_mib=memory_mib, disk_bytes=disk_bytes)


def made(plane: ControlPlane, request: CreateVm) -> VmSize:
    plane.services.vms.create(request)
    return size_of(plane)


def size_of(plane: ControlPlane) -> VmSize:
    spec = plane.services.vms.get("default", "train").spec
    return VmSize(vcpus=spec.vcpus, memory_mib=spec.memory_mib, disk_bytes=spec.disk_bytes)


@pytest.mark.parametrize(
    ("profile", "vcpus", "memory_gib", "disk_gib"),
    [
        ("GRID T4-2Q", 2, 4, 20),
        ("a40-24q", 3, 12, 24),
        ("NVIDIA L40S-48C", 6, 24, 48),
        ("l40s-x2", 12, 48, 96),
        ("h100-sxm-x1", 6, 24, 48),
        ("h100-sxm-x8", 48, 192, 384),
        ("1g.5gb", 2, 4, 20),
        ("gpu:1", 4, 16, 32),
        ("gpu:3", 12, 48, 96),
        ("NVIDIA Z99-48Q", 6, 24, 48),
    ],
)
def test_a_size_follows_from_the_framebuffer(profile: str, vcpus: int, memory_gib: int, disk_gib: int) -> None:
    profiles = shipped_profiles()
    size = profiles.size(profiles.resolve(profile, host_types={"NVIDIA Z99-48Q"}))
    assert size == VmSize(vcpus=vcpus, memory_mib=memory_gib * GIB_MIB, disk_bytes=disk_gib * GIB)


def test_each_shipped_offering_and_type_has_a_size_that_eight_gpus_of_a_host_have_room_for() -> None:
    profiles = shipped_profiles()
    names = [*profiles.offerings, *profiles.catalogue.type_names, *profiles.catalogue.profile_names]
    for name in names:
        size = profiles.size(profiles.resolve(name))
        assert 2 <= size.vcpus <= 64, name
        assert 4 <= size.memory_mib / GIB_MIB <= 240, name
        assert size.disk_bytes >= 20 * GIB, name


def test_what_an_offering_says_goes_before_the_rule_each_for_itself() -> None:
    offering = Offering(name="big", kind="passthrough", gpu_count=1, vcpus=24, disk="200GiB")
    assert vm_size(offering, 80 * GIB_MIB) == VmSize(vcpus=24, memory_mib=24 * GIB_MIB, disk_bytes=200 * GIB)


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        ({}, (4, 16384, 32 * GIB)),
        ({"vcpus": 1}, (1, 16384, 32 * GIB)),
        ({"memory_mib": 512}, (4, 512, 32 * GIB)),
        ({"disk_bytes": GIB}, (4, 16384, GIB)),
    ],
)
def test_what_is_asked_for_goes_before_what_the_profile_says(
    plane: ControlPlane, asked: dict[str, int], size: tuple[int, int, int]
) -> None:
    vcpus, memory_mib, disk_bytes = size
    expected = VmSize(vcpus=vcpus, memory_mib=memory_mib, disk_bytes=disk_bytes)
    assert made(plane, wish("gpu:1", **asked)) == expected


def test_create_plan_explain_capacity_and_the_profile_mean_the_same_size(plane: ControlPlane) -> None:
    services = plane.services
    told = services.profiles.get("gpu:1").size
    assert f">{told.vcpus}</vcpu>" in services.vms.plan(wish("gpu:1")).domain_xml
    asked = services.capacity.explain(Question(profile="gpu:1")).explanation.request
    assert (asked.vcpus, asked.memory_mib, need_of(asked.needs, NeedsDisk)) == (
        told.vcpus,
        told.memory_mib,
        NeedsDisk(told.disk_bytes // GIB),
    )
    assert made(plane, wish("gpu:1")) == told


def test_what_fits_is_counted_with_the_size_of_each_profile(plane: ControlPlane) -> None:
    """A host's memory is enough for its small VMs and not for a second big one."""
    services = plane.services
    big = Offering(name="big", kind="time_sliced", vgpu_type="GRID T4-4Q", memory="3TiB")
    services.offerings.put(replace(big, origin="site"), look_up=True)
    rows = {row.profile: row.fits_now for row in services.capacity.capacity(Question(each=True))}
    assert rows["big"] == 0 == services.profiles.get("big").free
    assert rows["t4-4q"] == services.profiles.get("t4-4q").free > 0
    assert services.capacity.capacity(Question(profile="big", memory_mib=4096))[0].fits_now == rows["t4-4q"]


def test_a_repeated_request_that_leaves_sizes_out_means_the_vm_as_it_was_made(plane: ControlPlane) -> None:
    services = plane.services
    small = made(plane, wish("gpu:1", vcpus=1, memory_mib=512, disk_bytes=GIB))
    again = services.vms.create(wish("gpu:1"))
    assert again.existing
    assert size_of(plane) == small
    with pytest.raises(Conflict) as refused:
        services.vms.create(wish("gpu:1", vcpus=4))
    assert refused.value.code == "vm.exists"
