# SPDX-License-Identifier: Apache-2.0
"""What cannot come back after a reboot of its host: it is said, and the rest comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal
from tests.unit.agent.test_restore import L40S, T4, VF1, Machine


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


def test_of_a_function_whose_gpu_may_be_the_one_that_is_gone_that_gpu_is_named(machine: Machine) -> None:
    machine.run_vm("a")
    machine.run_typed_vm("b")
    machine.reboot()
    shutil.rmtree(machine.host.paths.pci(L40S))
    machine.switches.failures = 100
    machine.restorer.run()
    assert machine.libvirt.running == {"a"}
    (problem,) = machine.wanted.problems()
    assert problem.endswith(f"the virtual function cannot be read ({VF1}; GPU {L40S} is not on the host's bus)")


def opened_by(machine: Machine, program: str) -> Path:
    """The T4's device node; the program's directory in /proc."""
    proc = machine.host.paths.proc
    machine.host.text(proc / f"driver/nvidia/gpus/{T4}/information", "Device Minor: \t 3")
    machine.host.text(proc / "4242/comm", program)
    machine.host.hold_open("/dev/nvidia3")
    return proc / "4242"


def test_a_gpu_that_a_program_has_open_while_the_host_boots_is_taken_when_it_is_closed(machine: Machine) -> None:
    machine.run_whole_vm("a")
    machine.run_typed_vm("b")
    machine.reboot()
    process = opened_by(machine, "nvidia-vgpud")
    machine.timing.while_waiting = lambda: shutil.rmtree(process, ignore_errors=True)
    machine.restorer.run()
    assert machine.libvirt.running == {"a", "b"}
    assert machine.wanted.problems() == ()
    assert machine.timing.slept == [1]


def test_a_gpu_that_stays_in_use_is_told_with_what_uses_it(machine: Machine) -> None:
    machine.run_whole_vm("a")
    machine.reboot()
    opened_by(machine, "python3")
    machine.restorer.run()
    (problem,) = machine.wanted.problems()
    assert problem.endswith(f"GPU {T4} is in use: python3 (4242)")
