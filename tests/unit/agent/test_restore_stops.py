# SPDX-License-Identifier: Apache-2.0
"""A VM is stopped while its host's agent restores after a boot."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from orchestrator.core.actions.host_actions import ClearVgpuType, StopDomain
from tests.unit.agent.test_restore import VF1, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_stop_that_arrives_while_its_vm_is_started_waits_and_wins(machine: Machine) -> None:
    machine.run_vm("a")
    machine.reboot()
    machine.libvirt.while_starting = threading.Event()
    machine.restorer.start()
    assert machine.libvirt.while_starting.wait(60)
    stop = threading.Thread(target=machine.do, args=(StopDomain(vm="a", grace_seconds=0),))
    stop.start()
    machine.libvirt.go_on.set()
    stop.join(60)
    machine.performer.finish()
    assert machine.libvirt.running == set()
    assert machine.wanted.vms() == ()


def test_a_stop_that_arrives_first_keeps_the_vm_from_being_started(machine: Machine) -> None:
    machine.run_vm("a")
    machine.reboot()
    machine.do(StopDomain(vm="a", grace_seconds=0), ClearVgpuType(vm="a", vf=VF1))
    machine.restorer.run()
    assert machine.libvirt.started == []
