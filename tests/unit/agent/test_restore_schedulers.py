# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.core.host_actions import RemoveMdev, StopDomain
from orchestrator.core.vgpu_settings import RestoreVgpuScheduler, SetVgpuScheduler
from tests.fakes.fake_schedulers import BEST_EFFORT
from tests.unit.agent.test_restore import T4, UUID, Machine


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
