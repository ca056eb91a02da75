# SPDX-License-Identifier: Apache-2.0
"""A GPU is reset: only without VMs, tried before VMs get it again, and a person's where it is not well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Fatal, NotFound, VgpuctlError
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.gpu.health_states import CLEAN_S, GpuHealth
from orchestrator.core.hosts.snapshot import HostVgpuType
from orchestrator.core.operation import Operation
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_host import no_fault
from tests.fakes.fake_machine import FakeGpu, FakeMachine
from tests.operations.fabric import HOST as HGX
from tests.operations.fabric import with_board

XID_95 = GpuSignal(name="xid-95", text="uncontained", at=1_700_000_000)
REBOOT = GpuSignal(
    name="xid-154", text="GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", at=9
)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, L40S_HOST) as made:
        yield made


def ill(plane: ControlPlane, *signals: GpuSignal) -> FakeGpu:
    gpu = plane.machine(L40S_HOST).gpus[0]
    gpu.signals = signals or (XID_95,)
    plane.findings.observe(L40S_HOST)
    return gpu


def health(plane: ControlPlane, gpu: FakeGpu) -> GpuHealth:
    return plane.services.gpu_health.get(L40S_HOST, gpu.address).health


def reset(plane: ControlPlane, gpu: FakeGpu) -> Operation:
    started = plane.services.gpu_cards.reset(L40S_HOST, gpu.address)
    plane.engine.drain()
    return plane.services.operations.get(str(started.operation))


def test_an_unfit_gpu_is_reset_tried_and_on_watch_for_a_day_as_it_was_before(plane: ControlPlane) -> None:
    before = plane.machine(L40S_HOST).state()
    gpu = ill(plane)
    ended = reset(plane, gpu)
    assert ended.state == "done"
    messages = {step.name: step.message for step in ended.steps}
    assert messages["probe_gpu.1"].startswith("NVIDIA L40S-12Q on GPU ")
    assert messages["gpu_quiet.1"] == "it is on watch"
    assert [name for name in plane.hosts.effects if name in {"BindVfio", "RestoreDriver"}] == [
        "BindVfio",
        "RestoreDriver",
    ]
    assert plane.machine(L40S_HOST).state() == before
    assert (health(plane, gpu).state, health(plane, gpu).by) == ("watch", None)
    plane.world.clock.sleep(float(CLEAN_S))
    plane.findings.observe(L40S_HOST)
    assert health(plane, gpu).state == "healthy"


def test_a_gpu_with_vms_is_not_reset_and_they_are_named_with_the_way_out(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm("train", profile="NVIDIA L40S-12Q", start=False))
    plane.engine.drain()
    used = plane.services.vms.get("default", "train").devices[0].gpu
    with pytest.raises(Conflict) as refused:
        plane.services.gpu_cards.reset(L40S_HOST, used)
    assert refused.value.code == "gpu.in_use"
    assert "default/train" in refused.value.message
    assert f"vgpuctl health empty {L40S_HOST} {used}" in str(refused.value.hint)
    assert plane.services.gpu_health.get(L40S_HOST, used).health.state == "healthy"


def test_where_only_a_reboot_helps_a_reset_is_refused(plane: ControlPlane) -> None:
    gpu = ill(plane, REBOOT)
    with pytest.raises(Conflict) as refused:
        reset(plane, gpu)
    assert refused.value.code == "gpu.needs_reboot"
    with pytest.raises(NotFound):
        plane.services.gpu_cards.reset(L40S_HOST, "0000:ff:00.0")


def test_a_trial_of_an_hour_ends_with_the_first_fault_that_is_told_in_it(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, paused = ill(plane), plane.world.clock.sleep
    began, again = plane.world.clock.now(), GpuSignal(name="xid-63", at=5)
    object.__setattr__(plane.world, "limits", replace(plane.world.limits, gpu_trial=3600))

    def sleep(seconds: float) -> None:
        paused(seconds)
        if plane.world.clock.now() > began + 1800:
            gpu.signals = (again,)

    monkeypatch.setattr(plane.world.clock, "sleep", sleep)
    assert reset(plane, gpu).state == "undone"
    assert health(plane, gpu).state == "quarantined"
    assert 1800 < plane.world.clock.now() - began < 2000


@pytest.mark.parametrize("again", [GpuSignal(name="xid-79", at=5), GpuSignal(name="xid-63", at=5)])
def test_one_of_which_something_new_is_told_after_its_reset_is_quarantined(
    plane: ControlPlane, again: GpuSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = ill(plane)
    paused = plane.world.clock.sleep

    def sleep(seconds: float) -> None:
        gpu.signals = (again,)
        paused(seconds)

    monkeypatch.setattr(plane.world.clock, "sleep", sleep)
    ended = reset(plane, gpu)
    assert (ended.state, ended.error and ended.error["code"]) == ("undone", "gpu.not_well")
    assert health(plane, gpu).state == "quarantined"
    assert "its reset failed: " in health(plane, gpu).cause
    assert again.words in health(plane, gpu).cause
    report = f"bug report of the driver, on its host: /reports/{ended.id}.log.gz"
    assert health(plane, gpu).evidence == (again.words, report), "not what had it reset"
    (failed,) = (one for one in plane.services.tenancy.audit.list(limit=20) if one.action == "reset_failed")
    assert failed.outcome.endswith(f"; {again.words}; {report}")


def test_one_that_does_not_come_back_from_its_reset_is_quarantined_and_the_operation_tells_why(
    plane: ControlPlane,
) -> None:
    gpu = ill(plane)
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("gpu.reset_failed", "it reads as ff", details="PCI")
        if (moment, name) == ("before", "RestoreDriver")
        else None
    )
    ended = reset(plane, gpu)
    plane.hosts.strike = no_fault
    assert ended.state == "stuck"
    assert "reads as ff" in health(plane, gpu).cause
    assert (health(plane, gpu).state, health(plane, gpu).evidence[0]) == ("quarantined", "PCI")


def test_a_host_without_the_drivers_script_says_so_in_the_evidence_and_the_reset_ends_all_the_same(
    plane: ControlPlane,
) -> None:
    gpu = ill(plane)

    def strike(_number: int, moment: str, name: str) -> VgpuctlError | None:
        if moment == "before" and name == "BindVfio":
            return Fatal("gpu.stubborn", "no")
        missing = (moment, name) == ("before", "CollectBugReport")
        return NotFound("host.no_bug_report", "the host has no nvidia-bug-report.sh") if missing else None

    plane.hosts.strike = strike
    assert reset(plane, gpu).state == "undone"
    plane.hosts.strike = no_fault
    assert health(plane, gpu).evidence == ("no bug report of the driver: the host has no nvidia-bug-report.sh",)


def test_what_a_person_has_quarantined_stays_so_after_a_reset_that_went_well(plane: ControlPlane) -> None:
    gpu = plane.machine(L40S_HOST).gpus[0]
    plane.services.gpu_health.quarantine(L40S_HOST, gpu.address, "fan 3 is loud")
    assert reset(plane, gpu).state == "done"
    assert (health(plane, gpu).state, health(plane, gpu).cause) == ("quarantined", "fan 3 is loud")
    plane.services.gpu_cards.reset(L40S_HOST, gpu.address)
    with pytest.raises(Conflict, match="works on host"):
        plane.services.gpu_cards.reset(L40S_HOST, gpu.address)


def test_a_gpu_that_is_being_reset_is_not_returned_and_the_operation_is_named(plane: ControlPlane) -> None:
    gpu = ill(plane)
    started = plane.services.gpu_cards.reset(L40S_HOST, gpu.address)
    with pytest.raises(Conflict) as refused:
        plane.services.gpu_health.give_back(L40S_HOST, gpu.address, "it is fine")
    assert (refused.value.code, str(started.operation) in refused.value.message) == ("gpu.in_use", True)
    plane.services.operations.cancel(str(started.operation))
    plane.engine.drain()
    assert plane.services.gpu_health.give_back(L40S_HOST, gpu.address, "it is fine").health.state == "watch"


def test_a_gpu_that_no_driver_has_is_not_reset(plane: ControlPlane) -> None:
    gpu = plane.machine(L40S_HOST).gpus[0]
    gpu.driver = None
    plane.findings.observe(L40S_HOST)
    with pytest.raises(Conflict) as refused:
        reset(plane, gpu)
    assert refused.value.code == "gpu.needs_driver"
    assert health(plane, gpu).state == "healthy"


def linked(name: str, framework: str, host: ControlPlane) -> None:
    """A host with two GPUs that NVLink may join, and a VM on the second."""
    types = (HostVgpuType(name=name, type_id=105, framebuffer_mib=16384, max_instances=1),)
    gpus = [FakeGpu(address=f"0000:{bus}:00.0", framework=framework, types=types) for bus in ("41", "61")]
    host.hosts.machines["nvlink.test"] = FakeMachine(machine_id="m9", gpus=gpus)
    host.add_host("nvlink")
    host.services.vms.create(replace(create_vm("train", profile=name), host="nvlink", gpu=gpus[1].address))
    host.engine.drain()


def test_a_gpu_of_before_ampere_is_not_reset_while_one_that_nvlink_joins_it_to_works(plane: ControlPlane) -> None:
    linked("GRID V100X-16Q", "mdev", plane)
    with pytest.raises(Conflict) as refused:
        plane.services.gpu_cards.reset("nvlink", "0000:41:00.0")
    assert "0000:61:00.0 (default/train)" in refused.value.message
    assert refused.value.hint == "'vgpuctl health empty nvlink 0000:61:00.0' first"
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert plane.services.gpu_cards.reset("nvlink", "0000:41:00.0").operation


def test_one_without_nvlink_is_reset_beside_others_that_work(plane: ControlPlane) -> None:
    linked("GRID T4-16Q", "mdev", plane)
    assert plane.services.gpu_cards.reset("nvlink", "0000:41:00.0").operation


def test_a_gpu_of_an_active_fabric_partition_is_not_reset(plane: ControlPlane) -> None:
    with_board(plane)
    gpu = plane.machine(HGX).gpus[0]
    plane.machine(HGX).active_partitions[3] = None
    plane.observer.observe(HGX)
    with pytest.raises(Conflict, match="fabric partition 3, which is active"):
        plane.services.gpu_cards.reset(HGX, gpu.address)
    plane.machine(HGX).active_partitions.clear()
    plane.observer.observe(HGX)
    assert plane.services.gpu_cards.reset(HGX, gpu.address).operation
