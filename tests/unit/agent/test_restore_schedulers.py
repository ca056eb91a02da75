# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.attachments.mdev import mdev_devices
from orchestrator.core.actions.host_actions import MakeVgpu, RemoveMdev, StartDomain, StopDomain
from orchestrator.core.actions.vgpu_settings import RestoreVgpuScheduler, SetPowerLimit, SetVgpuScheduler
from tests.fakes.fake_gpu_settings import BEST_EFFORT
from tests.unit.agent.test_restore import OTHER, T4, UUID, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.fault("F18")
def test_after_a_reboot_a_gpu_divides_its_time_as_its_vms_want_before_any_of_them_has_its_vgpu(
    machine: Machine,
) -> None:
    fixed = SetVgpuScheduler(vm="a", gpu=T4, policy="fixed_share", time_slice_ms=None)
    machine.do(fixed)
    machine.run_vm("a")
    machine.reboot()
    machine.restorer.run()
    assert machine.libvirt.running == {"a"}
    assert machine.switches.driver.now[T4].policy == "fixed_share"
    machine.do(StopDomain(vm="a", grace_seconds=0), RemoveMdev(vm="a", uuid=UUID), RestoreVgpuScheduler(vm="a", gpu=T4))
    assert machine.switches.driver.now[T4] == BEST_EFFORT
    machine.reboot()
    machine.restorer.run()
    assert machine.switches.driver.sets == []


@pytest.mark.fault("F18")
def test_a_vgpu_made_anew_beside_another_of_its_vm_does_not_come_before_the_gpus_scheduler_after_a_reboot(
    machine: Machine,
) -> None:
    def is_used(_gpu: str) -> bool:
        return any(mdev_devices(machine.host.paths).iterdir())

    def made(uuid: str) -> tuple[SetVgpuScheduler, MakeVgpu]:
        fixed = SetVgpuScheduler(vm="a", gpu=T4, policy="fixed_share", time_slice_ms=None)
        return fixed, MakeVgpu(vm="a", uuid=uuid, parent=T4, type_name="GRID T4-2Q")

    machine.switches.driver.busy = is_used
    anew = OTHER.replace("12", "13")
    machine.do(*made(UUID), *made(OTHER))
    machine.do(RemoveMdev(vm="a", uuid=OTHER), RestoreVgpuScheduler(vm="a", gpu=T4), *made(anew))
    machine.libvirt.devices["a"] = UUID
    machine.do(StartDomain(vm="a"))
    machine.reboot()
    machine.switches.driver.busy = is_used
    machine.restorer.run()
    assert machine.libvirt.running == {"a"}
    assert machine.switches.driver.now[T4].policy == "fixed_share"
    assert {link.name for link in mdev_devices(machine.host.paths).iterdir()} == {UUID, anew}


@pytest.mark.fault("F18")
def test_after_a_reboot_a_gpu_keeps_to_its_limit_of_power_again_with_no_controller(machine: Machine) -> None:
    machine.do(SetPowerLimit(gpu=T4, watts=62))
    machine.reboot()
    assert machine.switches.limits.now[T4].now == 70_000
    machine.restorer.run()
    assert machine.switches.limits.now[T4].now == 62_000
    machine.do(SetPowerLimit(gpu=T4, watts=0))
    machine.reboot()
    machine.restorer.run()
    assert machine.switches.limits.sets == []
