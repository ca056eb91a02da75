# SPDX-License-Identifier: Apache-2.0
"""GPU instances that several vGPUs share, as a live RTX PRO 6000 has them: counted, claimed, found and adopted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api.schemas.gpus import GpuAnswer
from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.gpu_tables import tables_of
from orchestrator.core.diff.gpus import tenants_by_gpu
from orchestrator.core.errors import Conflict, NoCapacity
from orchestrator.core.geometry.build import MIG
from orchestrator.core.geometry.nested import instances_of
from orchestrator.core.gpu.device import Device, InstancePlace, VgpuParent
from orchestrator.core.hosts.snapshot import GpuInstance, GpuSnapshot
from orchestrator.core.vms.adoption import place_of
from orchestrator.core.vms.claim import Claim
from orchestrator.services.fleet.sharing import check_neighbours
from orchestrator.services.vms.adopting import check_instances
from orchestrator.store.records import ClaimLost
from tests.fakes.control_plane import ControlPlane, control_plane, create_vm
from tests.operations.shared_instances import HOST, PROFILE, rtx, with_sibling
from tests.unit.services.test_live_geometry import a100, free, listed

GFX = "1g.24gb+gfx"
EIGHT, TWELVE, WHOLE = (f"NVIDIA RTX Pro 6000 Blackwell DC-1-{size}" for size in ("8Q", "12Q", "24Q"))
SLICED = "NVIDIA RTX Pro 6000 Blackwell DC-24Q"
GPU = rtx().address
VFS = tuple(f"{GPU[:-4]}01.{number}" for number in range(4))


def live(*instances: GpuInstance, mig: bool = True, typed: dict[str, tuple[str, int]] | None = None) -> GpuSnapshot:
    """``typed``: function → vGPU type and number of the GPU instance around it."""
    parents = tuple(
        VgpuParent(
            address=vf, is_vf=True, current_type=kind, creatable=(), mdevs=(), owner=None, in_use=True, gpu_instance=at
        )
        for vf, (kind, at) in (typed or {}).items()
    )
    return replace(
        a100(mig=mig), model="NVIDIA RTX PRO 6000 Blackwell Server Edition", pci_device="2bb5",
        pci_subsystem_device="204e", memory_mib=98304, types=listed("2bb5", "204e"), sriov_total_vfs=48,
        sriov_enabled_vfs=48, instances=instances, parents=parents,
    )  # fmt: skip


def instance(start: int, number: int = 1, profile: str = GFX) -> GpuInstance:
    return GpuInstance(id=number, profile=profile, start=start, size=3, compute=(0,), owner=None)


@pytest.mark.parametrize("mig", [True, False])
def test_an_empty_gpu_has_as_many_places_of_each_type_as_its_driver_says(mig: bool) -> None:
    rows = [row for row in shipped().vgpu_types if row.gpu_model == "RTX PRO 6000 Blackwell Server Edition"]
    assert {row.name: free(live(mig=mig), row.name) for row in rows if row.gi_profile} == {
        row.name: row.max_per_gpu for row in rows if row.gi_profile
    }


def test_an_instance_of_somebody_else_counts_as_used_with_all_that_is_in_it() -> None:
    typed = {VFS[0]: (EIGHT, 4), VFS[1]: (EIGHT, 4)}
    for gpu in (live(instance(3, 4)), live(instance(3, 4), typed=typed), live(instance(3, 4, "1g.24gb"))):
        assert [free(gpu, one) for one in (EIGHT, TWELVE, WHOLE, SLICED)] == [9, 6, 3, 0]


def test_a_layout_is_planned_in_the_gpus_own_memory_slots() -> None:
    cut = instances_of(tables_of(live()).ever.cut(MIG))
    assert cut is not None
    assert (cut.slots, [one.start for one in cut.choices(cut.empty, GFX)]) == (12, [0, 3, 6, 9])


def adopted(gpu: GpuSnapshot, vf: str, kind: str, claims: tuple[Claim, ...] = ()) -> tuple[int, ...]:
    bare = Device(kind="mig_backed", gpu=gpu.address, parent=vf, type_name=kind, name=vf)
    return place_of(tables_of(gpu).now, bare.inside(InstancePlace(GFX, 3)), claims, "h").slots


def test_vgpus_that_are_adopted_take_the_places_of_their_instance_one_after_the_other() -> None:
    gpu, claims = live(instance(3)), list[Claim]()
    for number, slots in enumerate((range(24, 32), range(32, 40), range(40, 48))):
        bare = Device(kind="mig_backed", gpu=gpu.address, parent=VFS[number], type_name=EIGHT, name=VFS[number])
        claim = place_of(tables_of(gpu).now, bare.inside(InstancePlace(GFX, 3)), claims, "h")
        assert claim.slots == tuple(slots)
        claims.append(Claim(vm=str(number), host=HOST, devices=(claim,), vcpus=1, memory_mib=1, disk_bytes=0))
    with pytest.raises(NoCapacity):
        adopted(gpu, VFS[3], EIGHT, tuple(claims))


@pytest.fixture
def plane(tmp_path: Path) -> ControlPlane:
    made = control_plane(tmp_path)
    with_sibling(made)
    return made


def test_a_claim_that_was_planned_for_an_instance_which_has_another_size_now_is_lost(plane: ControlPlane) -> None:
    """Another controller may have put the first one there: no slot of theirs is the same."""
    sibling = plane.services.vms.get("default", "sibling")
    (device,) = sibling.devices
    other = replace(sibling, id="other", devices=(replace(device, type_name=TWELVE),))
    with plane.store.begin() as tx:
        claim = tx.claims.find(sibling.id)
        assert claim is not None
        check_neighbours(tx, replace(sibling, id="other"), replace(claim, vm="other"))
        with pytest.raises(ClaimLost):
            check_neighbours(tx, other, replace(claim, vm="other"))
        with pytest.raises(Conflict) as adopted:
            check_instances(tx, other, replace(claim, vm="other"))
        assert adopted.value.code == "gpu.cut_differs"
        whole = replace(device, type_name=WHOLE, gi_start=3)
        check_neighbours(tx, replace(other, devices=(whole,)), replace(claim, vm="other"))


def test_tenants_that_keep_to_themselves_share_no_instance_though_they_may_share_the_gpu(plane: ControlPlane) -> None:
    plane.services.tenancy.tenants.create("other")
    sibling = plane.services.vms.get("default", "sibling")
    (device,) = sibling.devices
    theirs = replace(sibling, id="theirs", spec=replace(sibling.spec, tenant="other"))
    with plane.store.begin() as tx:
        claim = tx.claims.find(sibling.id)
        assert claim is not None
        with pytest.raises(ClaimLost):
            check_neighbours(tx, theirs, replace(claim, vm="theirs"))
        beside = replace(theirs, devices=(replace(device, gi_start=3),))
        check_neighbours(tx, beside, replace(claim, vm="theirs"))
    at = f"{device.gpu}, GPU instance at slot {device.gi_start}"
    assert tenants_by_gpu((sibling, theirs)) == {device.gpu: {"default", "other"}, at: {"default", "other"}}
    assert set(tenants_by_gpu((sibling, beside))) == {device.gpu}


def test_what_a_vm_takes_of_an_instance_is_claimed_and_nothing_else_of_it(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm(profile=PROFILE))
    plane.engine.drain()
    with plane.store.read() as tx:
        slots = [one.slots for claim in tx.claims.of_host(HOST) for one in claim.devices]
    assert sorted(slots) == [tuple(range(8)), tuple(range(8, 16))]
    assert {one.gi_start for vm in plane.services.vms.list(None) for one in vm.devices} == {0}
    assert plane.findings.observe(HOST) == ()


def test_every_vm_in_an_instance_is_named_with_it(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm(profile=PROFILE))
    plane.engine.drain()
    plane.observer.observe(HOST)
    (shown,) = GpuAnswer.of(plane.services.gpus.get(HOST, GPU)).gpu_instances
    assert (shown.vm, shown.vms) == ("default/sibling", ("default/sibling", "default/train"))
