# SPDX-License-Identifier: Apache-2.0
"""What cannot come back after a reboot of its host: it is said, and the rest comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal
from tests.unit.agent.test_restore import T4, VF1, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_of_a_gpu_that_is_gone_the_vms_say_so_and_the_rest_comes_back(machine: Machine) -> None:
    machine.run_vm("a")
    machine.run_typed_vm("b")
    machine.reboot()
    shutil.rmtree(machine.host.paths.pci(T4))
    machine.restorer.run()
    assert machine.libvirt.running == {"b"}
    assert machine.wanted.problems() == (
        "VM a is not running again after the reboot: GPU 0000:01:00.0 is not on the host's bus",
    )
    machine.reboot()
    machine.restorer.run()
    assert machine.libvirt.running == {"a", "b"}
    assert machine.wanted.problems() == ()


def test_what_qemu_said_and_which_function_it_is_stand_in_the_problem_in_one_line(machine: Machine) -> None:
    machine.run_vm("a")
    machine.run_typed_vm("b")
    machine.reboot()
    machine.switches.failures = 100
    said = Fatal("vm.start_failed", "the VM did not start", details="QEMU:\n no memory " + "x" * 1000)
    machine.libvirt.refusals = [said] * 100
    machine.restorer.run()
    assert machine.wanted.problems() == (
        f"VM a is not running again after the reboot: the VM did not start (QEMU: no memory {'x' * 284})",
        f"VM b is not running again after the reboot: the virtual function cannot be read ({VF1})",
    )
