# SPDX-License-Identifier: Apache-2.0
"""A VM becomes another size: where, what it holds meanwhile, and what it has when that fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, NotFound, QuotaExceeded, VgpuctlError
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.vms.claim import Claim
from orchestrator.core.vms.vm import Vm
from orchestrator.services.messages import ResizePlan, ResizeVm, Started
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.operations import moves, resizes
from tests.operations.test_volumes import done, refused

SMALL, LARGE = resizes.SIZES[L40S_HOST]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path) as made:
        yield made


def train(plane: ControlPlane) -> Vm:
    return plane.services.vms.get("default", "train")


def claims(plane: ControlPlane) -> dict[str, Claim]:
    with plane.store.read() as tx:
        return {claim.vm: claim for claim in tx.claims.list()}


def wanted(profile: str = LARGE, *, vcpus: int = 0, memory_mib: int = 0, restart: bool = False) -> ResizeVm:
    return ResizeVm(
        name="train", tenant="default", profile=profile, vcpus=vcpus, memory_mib=memory_mib, restart=restart
    )


def resize(plane: ControlPlane, request: ResizeVm) -> Started:
    return plane.services.resizing.resize(request)


def plan(plane: ControlPlane, request: ResizeVm) -> ResizePlan:
    return plane.services.resizing.plan(request)


def test_a_vm_alone_on_its_gpu_gets_another_size_there(plane: ControlPlane) -> None:
    resizes.of_host(L40S_HOST)(plane)
    before, machine = train(plane), plane.machine(L40S_HOST)
    error = refused("vm.needs_restart", Conflict, lambda: resize(plane, wanted(vcpus=4, memory_mib=8192)))
    typed = f'vgpuctl vm resize train --tenant default --offering "{LARGE}" --vcpus 4 --memory 8192MiB --restart'
    assert f"'{typed}'" in str(error.hint)
    size = train(plane).spec
    assert resize(plane, wanted(SMALL, vcpus=size.vcpus, memory_mib=size.memory_mib)).existing, "it is so already"
    told = plan(plane, wanted())
    assert (told.source, told.target, told.restarts) == (L40S_HOST, L40S_HOST, True)
    done(plane, resize(plane, wanted(restart=True)))
    after = train(plane)
    assert (after.spec.profile, after.state, after.host) == (LARGE, "running", L40S_HOST)
    assert (after.spec.vcpus, after.spec.memory_mib) == (told.vcpus, told.memory_mib)
    assert after.spec.vcpus > before.spec.vcpus
    assert [kind for kind, _ in machine.vf_types.values()] == [LARGE]
    (claim,) = claims(plane).values()
    assert claim.devices[0].cut == "time_sliced:24576"
    assert resize(plane, wanted(restart=True, vcpus=after.spec.vcpus, memory_mib=after.spec.memory_mib)).existing
    done(plane, resize(plane, wanted(SMALL, restart=True, vcpus=1, memory_mib=1024)))
    assert (train(plane).spec.vcpus, train(plane).spec.memory_mib) == (1, 1024)


def limited(plane: ControlPlane, name: str, vgpu_type: str, number: int) -> DiskLimits:
    """An offering of that name, and what its VMs' disks may do."""
    bytes_per_s = 100 * 1024**2
    offering = Offering(
        name=name, kind="time_sliced", vgpu_type=vgpu_type, origin="site", disk_bytes_per_s=bytes_per_s,
        disk_iops=number, disk_iops_max=2 * number,
    )  # fmt: skip
    plane.services.offerings.put(offering, look_up=True)
    return DiskLimits(bytes_per_s=bytes_per_s, iops=number, iops_max=2 * number)


def iops(plane: ControlPlane, host: str = L40S_HOST) -> list[str | None]:
    """Of the disks of the VM's domain, in their order."""
    xml, _ = plane.machine(host).domains[train(plane).id]
    return [tune.findtext("total_iops_sec") for tune in ET.fromstring(xml).iter("iotune")]


def test_disks_have_the_limits_of_the_offering_that_the_vm_has_now(plane: ControlPlane) -> None:
    resizes.of_host(L40S_HOST)(plane)
    assert iops(plane) == []
    for name, vgpu_type, number in (("slow", SMALL, 100), ("fast", LARGE, 5000)):
        limits = limited(plane, name, vgpu_type, number)
        done(plane, resize(plane, wanted(name, restart=True)))
        assert (train(plane).spec.disk_limits, iops(plane)) == (limits, [str(number)])
    assert resize(plane, wanted("fast", restart=True)).existing
    done(plane, resize(plane, wanted(SMALL, restart=True)))
    assert (train(plane).spec.disk_limits, iops(plane)) == (None, [])


def test_limits_of_disks_go_with_a_vm_that_is_resized_elsewhere(plane: ControlPlane) -> None:
    resizes.full(plane)
    limits = limited(plane, "large", LARGE, 300)
    done(plane, resize(plane, wanted("large")))
    moved = train(plane)
    assert (moved.host, moved.spec.disk_limits) == (moves.OTHER, limits)
    done(plane, plane.services.vms.start("default", "train"))
    assert iops(plane, moves.OTHER) == ["300"]
    done(plane, plane.services.vms.create(create_vm("third", profile="large")))
    assert plane.services.vms.get("default", "third").spec.disk_limits == limits
    assert plane.services.vms.create(create_vm("third", profile="large")).existing


def test_nobody_gets_what_either_size_takes_until_it_has_settled(plane: ControlPlane) -> None:
    resizes.of_host(L40S_HOST, start=False)(plane)
    resizing = resize(plane, wanted())
    for profile in (SMALL, LARGE):
        other = create_vm("other", profile=profile)
        refused("gpu.no_capacity", NoCapacity, partial(plane.services.vms.create, other))
    done(plane, resizing)
    assert len(claims(plane)) == 1
    done(plane, plane.services.vms.create(create_vm("other", profile=LARGE)))


def test_one_that_does_not_fit_on_its_host_goes_to_another(plane: ControlPlane) -> None:
    resizes.full(plane)
    told = plan(plane, wanted())
    assert (told.source, told.target, told.restarts) == (L40S_HOST, moves.OTHER, False)
    quotas = plane.services.tenancy.quotas
    quotas.change("default", {"memory": train(plane).spec.memory_mib})
    refused("quota.exceeded", QuotaExceeded, lambda: plan(plane, wanted()))
    quotas.change("default", {"memory": None})
    done(plane, resize(plane, wanted()))
    moved = train(plane)
    assert (moved.host, moved.spec.profile, moved.state) == (moves.OTHER, LARGE, "stopped")
    assert moved.spec.vcpus == told.vcpus
    assert {claim.host for vm, claim in claims(plane).items() if vm == moved.id} == {moves.OTHER}
    done(plane, plane.services.vms.start("default", "train"))


def test_where_it_fits_nowhere_the_reasons_of_all_hosts_are_told(plane: ControlPlane) -> None:
    resizes.of_host(L40S_HOST, start=False, beside=True)(plane)
    before = claims(plane)
    error = refused("gpu.no_capacity", NoCapacity, lambda: resize(plane, wanted()))
    assert error.reasons
    assert not [reason for reason in error.reasons if reason.code == "move.not_there"], "its host has a truer reason"
    refused("gpu.no_capacity", NoCapacity, lambda: plan(plane, wanted()))
    assert claims(plane) == before


def test_a_size_that_no_host_can_ever_hold_is_refused_as_create_refuses_it(plane: ControlPlane) -> None:
    resizes.of_host(L40S_HOST, start=False)(plane)
    for larger in (wanted(vcpus=500), wanted(memory_mib=9000 * 1024)):
        error = refused("vm.never_fits", InvalidInput, partial(resize, plane, larger))
        assert "can ever hold" in error.message
        refused("vm.never_fits", InvalidInput, partial(plan, plane, larger))


def test_whole_gpus_stay_of_their_model_unless_the_offering_names_another(plane: ControlPlane) -> None:
    machine = plane.machine(L40S_HOST)
    machine.gpus = machine.gpus[:1]
    for host in (L40S_HOST, T4_HOST):
        plane.add_host(host)
    done(plane, plane.services.vms.create(replace(create_vm("train", profile="gpu:1", start=False), host=L40S_HOST)))
    for ask in (plan, resize):
        with pytest.raises(VgpuctlError) as caught:
            ask(plane, wanted("gpu:2"))
        of_host = {name: reason.message for reason in caught.value.reasons for name in reason.subjects}
        assert of_host[T4_HOST] == "it has no L40S"
    with plane.store.begin() as tx:
        tx.offerings.put(
            Offering(name="two-t4", origin="site", kind="passthrough", gpu_count=2, gpu_models=("Tesla T4",))
        )
    assert plan(plane, wanted("two-t4")).target == T4_HOST


def test_the_difference_is_held_against_the_quota(plane: ControlPlane) -> None:
    resizes.of_host(L40S_HOST, start=False)(plane)
    quotas, before = plane.services.tenancy.quotas, claims(plane)
    used = {use.resource: use.used for use in quotas.get("default")}["memory"]
    quotas.change("default", {"memory": used + 1024})
    for call in (lambda: resize(plane, wanted()), lambda: plan(plane, wanted())):
        refused("quota.exceeded", QuotaExceeded, call)
    assert (claims(plane), train(plane).spec.profile) == (before, SMALL)
    done(plane, resize(plane, wanted(vcpus=1, memory_mib=train(plane).spec.memory_mib)))


def test_what_no_vm_can_be_is_refused_before_anything_is_begun(plane: ControlPlane) -> None:
    resizes.of_host(L40S_HOST)(plane)
    refused("profile.unknown", NotFound, lambda: resize(plane, wanted("nothing", restart=True)))
    refused("vcpus.out_of_range", InvalidInput, lambda: resize(plane, wanted(restart=True, vcpus=100_000)))
    started = resize(plane, wanted(restart=True))
    refused("vm.busy", Conflict, lambda: resize(plane, wanted(SMALL, restart=True)))
    done(plane, started)


def test_its_volumes_stay_with_it_and_keep_it_on_its_host(plane: ControlPlane) -> None:
    resizes.full(plane)
    plane.services.volumes.create("default", "data", 2**30)
    done(plane, plane.services.volumes.attach("default", "data", "train"))
    refused("gpu.no_capacity", NoCapacity, lambda: resize(plane, wanted()))
    done(plane, plane.services.vms.stop("default", "other"))
    done(plane, plane.services.vms.delete("default", "other"))
    done(plane, resize(plane, wanted()))
    assert (train(plane).host, train(plane).spec.volumes != ()) == (L40S_HOST, True)
