# SPDX-License-Identifier: Apache-2.0
"""Where vGPUs of several sizes lie is what the driver says, in what is free, on adoption and in findings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.catalogue.gpu_tables import tables_of
from orchestrator.core.attachments import make, observed_on, remove
from orchestrator.core.diff.finding import ExpectedVm
from orchestrator.core.diff.vms import vm_findings
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.snapshot import DomainSnapshot, GpuSnapshot
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.from_offering import request_for
from orchestrator.core.placement.place import place
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.placement.views import GpuView, Placement, Request
from orchestrator.core.vms.adoption import place_of
from orchestrator.core.vms.claim import Claim, DeviceClaim
from orchestrator.core.vms.vm import Vm, VmSpec
from orchestrator.services.fleet.view import FOREIGN, gpu_view
from orchestrator.services.vms.capacity import Question
from tests.fakes.fake_machine import FakeMachine, l40s, snapshot_of
from tests.unit.placement.fleets import host
from tests.unit.services.test_live_geometry import HOST

GPU = "0000:81:00.0"
FIRST, SECOND = "0000:81:01.0", "0000:81:01.1"
Q12, Q24 = "NVIDIA L40S-12Q", "NVIDIA L40S-24Q"
OURS = replace(HOST, managed_gpus=(GPU,))
DEVICE = Device(kind="vendor_vfio", gpu=GPU, parent=FIRST, type_name=Q12, name=FIRST, placement_id=36)


def vm(device: Device = DEVICE) -> Vm:
    spec = VmSpec(
        name="train", tenant="default", profile="l40s-12q-mixed", image="guest", vcpus=1, memory_mib=1024, disk_bytes=0,
        network="default",
    )  # fmt: skip
    return Vm(
        id="a", spec=spec, state="running", host="gpu1", devices=(device,), addresses=(), operation=None, created_at=0
    )


CLAIM = Claim(
    vm="a", host="gpu1", vcpus=1, memory_mib=1024, disk_bytes=0,
    devices=(DeviceClaim(gpu=GPU, cut="mixed", slots=tuple(range(36, 48)), function=FIRST),),
)  # fmt: skip


def machine(*, mixes: bool = True, **places: tuple[str, str | None, int]) -> FakeMachine:
    """VF number → (type, owner, where it lies)."""
    gpu = replace(l40s(GPU), enabled=True, mixes=mixes)
    made = FakeMachine(machine_id="m", gpus=[gpu], managed=(GPU,))
    for number, (kind, owner, start) in places.items():
        function = f"0000:81:01.{number[-1]}"
        made.vf_types[function] = (kind, owner)
        gpu.places[function] = start
    return made


def seen(made: FakeMachine) -> GpuSnapshot:
    return snapshot_of(made).gpus[0]


def view(gpu: GpuSnapshot, *claims: Claim) -> GpuView:
    return gpu_view(OURS, gpu, tables_of(gpu), claims, {"a": vm()})


def asked(profile: str, *, mixed: bool = True) -> Request:
    return Request(
        vm_id="new", profile=profile, vcpus=1, memory_mib=1, tenant="default",
        cut_kinds=("mixed", "mixable") if mixed else ("time_sliced",),
    )  # fmt: skip


def start_on(view_of_gpu: GpuView, request: Request) -> int | None:
    found = place(request, (host("gpu1", (view_of_gpu,)),))
    return found.parts[0].start if isinstance(found, Placement) else None


def test_what_others_made_takes_the_slots_that_the_driver_names() -> None:
    there = view(seen(machine(vf0=(Q24, None, 24))))
    assert [(one.vm_id, one.start, one.size) for one in there.occupied] == [(FOREIGN, 24, 24)]
    assert start_on(there, asked(Q24)) == 0
    both = view(seen(machine(vf1=(Q12, None, 0), vf0=(Q12, "a", 36))), CLAIM)
    assert start_on(both, asked(Q24)) is None
    assert start_on(both, asked(Q12)) in {12, 24}


def test_a_vgpu_of_ours_counts_where_it_lies_and_a_gpu_where_it_lies_elsewhere_takes_nothing() -> None:
    right = view(seen(machine(vf0=(Q12, "a", 36))), CLAIM)
    assert (right.usable, right.occupied[0].start) == (True, 36)
    wrong = view(seen(machine(vf0=(Q12, "a", 12))), CLAIM)
    assert (wrong.usable, wrong.occupied[0].start) == (False, 12)
    assert "lies at placement 12 and not at 36" in str(wrong.reason_unusable)


def test_a_stopped_vm_keeps_its_place_on_a_gpu_that_mixes_sizes_no_more() -> None:
    there = view(seen(machine(mixes=False)), CLAIM)
    assert start_on(there, asked(Q24)) == 0
    assert start_on(there, asked(Q12, mixed=False)) is None


def test_an_empty_gpu_is_switched_for_who_asks_for_that_alone() -> None:
    offering = Offering(name="x", origin="site", kind="time_sliced", vgpu_type=Q12, mixed_sizes=True)
    bare = Offering(name=Q12, origin="vgpu_type", kind="time_sliced", vgpu_type=Q12)
    cuts = {}
    for mixes in (True, False):
        for one in (offering, replace(offering, mixed_sizes=False), bare):
            asked = Question(profile=one.name, tenant="t", vcpus=1, memory_mib=1024)
            request = request_for(Wanted(vm_id="new", vm=asked, offering=one))
            found = place(request, (host("gpu1", (view(seen(machine(mixes=mixes))),)),))
            assert isinstance(found, Placement)
            cuts[mixes, one.name, one.mixed_sizes] = found.parts[0].cut
    assert cuts[False, "x", True] == "mixed"
    assert cuts[False, "x", False] == cuts[False, Q12, False] == "time_sliced:12288"
    assert (cuts[True, "x", True], cuts[True, "x", False]) == ("mixed", "time_sliced:12288")


@pytest.mark.parametrize(("mixes", "cut"), [(True, "mixed"), (False, "time_sliced:12288")])
def test_a_vgpu_that_is_adopted_is_claimed_where_it_lies(mixes: bool, cut: str) -> None:
    gpu = seen(machine(mixes=mixes, vf0=(Q12, None, 12)))
    (found,) = observed_on(gpu)
    assert found.device.placement_id == (12 if mixes else None)
    claimed = place_of(tables_of(gpu).now, found.device, (), "h")
    assert (claimed.cut, claimed.slots) == (cut, tuple(range(12, 24)) if mixes else (0,))


def test_the_mode_comes_before_the_vgpu_and_goes_after_it() -> None:
    assert [type(one).__name__ for one in make("a", DEVICE)] == ["SetMixedSizes", "MakeVgpu"]
    assert [type(one).__name__ for one in remove("a", DEVICE)] == ["ClearVgpuType", "RestoreMixedSizes"]


@pytest.mark.parametrize(
    ("mixes", "start", "code"),
    [(True, 36, None), (True, 0, "vm.placement_differs"), (False, 36, "vm.mixed_sizes_off")],
)
def test_a_vm_whose_gpu_is_otherwise_is_a_finding(mixes: bool, start: int, code: str | None) -> None:
    made = machine(mixes=mixes, vf0=(Q12, "a", start))
    domain = DomainSnapshot(uuid="a", name=vm().domain_name, state="running", owner="a", devices=(FIRST,))
    snapshot = replace(snapshot_of(made), domains=(domain,))
    found = {one.code for one in vm_findings(ExpectedVm(vm=vm(), claimed=True), snapshot)}
    assert found & {"vm.placement_differs", "vm.mixed_sizes_off"} == ({code} if code else set())
