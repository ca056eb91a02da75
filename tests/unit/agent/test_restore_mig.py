# SPDX-License-Identifier: Apache-2.0
"""GPU instances after a reboot of their host: gone, and made again before the VMs, with no controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.attachments.mig_backed import InstanceHolders, instance_key
from orchestrator.agent.nvml.gpu_instances import FoundInstance
from orchestrator.core.actions.host_actions import StartDomain, StopDomain
from orchestrator.core.attachments import make, remove
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.gpu.device import Device, InstancePlace
from orchestrator.core.hosts.mig_layout import KEEPER, MigLayout, empty
from orchestrator.operations.steps.mig_layout import actions
from tests.unit.agent.fake_a100 import A100, VFS, A100Host
from tests.unit.agent.test_restore import Machine


class MigMachine(Machine):
    """An A100 whose driver loses its MIG mode with the reboot, as Hopper's does."""

    mediated = False
    """As its kernel makes vGPUs."""

    def _new_host(self) -> None:
        self.boots += 1
        self.mig.mode, self.mig.there = {A100: False}, {}
        self.host = A100Host(self.root / f"boot-{self.boots}", self.mig, enabled=0, mediated=self.mediated)

    def device(self, vf: int, start: int) -> Device:
        assert isinstance(self.host, A100Host)
        return self.host.device(vf, start)

    def run_in_instance(self, vm: str, vf: int, start: int) -> None:
        device = self.device(vf, start)
        self.libvirt.devices[vm] = device.name
        for action in make(vm, device):
            self.do(action)
        self.do(StartDomain(vm=vm))


class MediatedMachine(MigMachine):
    mediated = True


@pytest.fixture(params=[MigMachine, MediatedMachine])
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> MigMachine:
    made: MigMachine = request.param(tmp_path)
    made.ledger.manage_gpus((A100,))
    return made


def places(machine: MigMachine) -> dict[str | None, int]:
    """VM → where its GPU instance begins, as ledger and driver have it."""
    found = {}
    for one in machine.mig.instances(A100):
        owner = machine.ledger.owner(instance_key(A100, one.start))
        found[None if owner is None else owner.vm] = one.start
    return found


@pytest.mark.fault("F76")
def test_mode_instances_and_vgpus_come_back_at_their_places_before_the_vms(machine: MigMachine) -> None:
    machine.run_in_instance("a", 0, start=4)
    machine.run_in_instance("b", 1, start=0)
    for _ in range(2):
        machine.reboot()
        machine.restorer.run()
        assert machine.mig.mode == {A100: True}
        assert places(machine) == {"a": 4, "b": 0}
        assert machine.libvirt.running == {"a", "b"}


@pytest.mark.fault("F76")
def test_a_mode_that_cannot_be_set_while_a_program_uses_the_gpu_is_set_when_that_is_over(machine: MigMachine) -> None:
    machine.run_in_instance("a", 0, start=4)
    machine.reboot()
    machine.mig.answers = {"set_mode": Conflict("gpu.in_use", "the GPU or a part of it is in use")}
    machine.restorer.run()
    assert places(machine) == {"a": 4}
    assert machine.libvirt.running == {"a"}


def test_the_instance_of_a_vm_that_was_stopped_does_not_come_back(machine: MigMachine) -> None:
    machine.run_in_instance("a", 0, start=4)
    machine.run_in_instance("b", 1, start=0)
    machine.do(StopDomain(vm="a", grace_seconds=0), *remove("a", machine.device(0, 4)))
    machine.reboot()
    machine.restorer.run()
    assert places(machine) == {"b": 0}
    assert machine.libvirt.running == {"b"}


def test_an_instance_that_cannot_come_back_keeps_no_other_from_it(machine: MigMachine) -> None:
    machine.run_in_instance("a", 0, start=4)
    machine.run_in_instance("b", 1, start=0)
    machine.reboot()
    machine.mig.answers["create"] = Fatal("gpu.instance_refused", "GPU takes no such GPU instance there now")
    assert machine.mig.mode == {A100: False}
    machine.restorer.run()
    assert machine.libvirt.running == {"a", "b"}  # the next round has it
    assert places(machine) == {"a": 4, "b": 0}


def test_a_layout_comes_back_without_any_vm_and_what_is_missing_of_it_is_told(machine: MigMachine) -> None:
    layout = MigLayout(gpu=A100, on=True, instances=(InstancePlace("1g.10gb", 0), InstancePlace("1g.20gb", 4)))
    for action in actions(empty(A100, on=False), layout):
        machine.do(action)
    machine.run_in_instance("a", 0, start=6)
    for _ in range(2):
        machine.reboot()
        machine.restorer.run()
        owners = {one.start: machine.ledger.owner(instance_key(A100, one.start)) for one in machine.mig.instances(A100)}
        assert {start: owner and owner.vm for start, owner in owners.items()} == {0: KEEPER, 4: KEEPER, 6: "a"}
        assert machine.libvirt.running == {"a"}
        assert machine.wanted.problems() == ()
    machine.reboot()
    machine.mig.mode = {A100: True}
    machine.mig.put(A100, FoundInstance(id=9, profile="1g.10gb", start=0, size=1, compute=(0,)))
    machine.restorer.run()
    assert sorted(one.start for one in machine.mig.instances(A100)) == [0, 4, 6]
    why = f"the GPU instance there is not this VM's (1g.10gb at slot 0 of {A100})"
    assert machine.wanted.problems() == (f"a MIG layout is not there again after the reboot: {why}",)


class SharingMachine(MigMachine):
    """Two vGPUs lie in one of its GPU instances, and the driver fills the first that it finds."""

    def _new_host(self) -> None:
        super()._new_host()
        self.mig.shared = frozenset({"1g.20gb"})
        self.host = A100Host(self.root / f"boot-{self.boots}-shared", self.mig, enabled=0, most=2)
        self.host.functions = 6


@pytest.mark.fault("F76")
def test_vgpus_that_share_an_instance_come_back_into_it_in_whatever_order(tmp_path: Path) -> None:
    machine = SharingMachine(tmp_path)
    machine.ledger.manage_gpus((A100,))
    for vf, (vm, start) in enumerate({"a": 4, "b": 0, "c": 4, "d": 0}.items()):
        machine.run_in_instance(vm, vf, start=start)
    machine.do(StopDomain(vm="b", grace_seconds=0), *remove("b", machine.device(1, 0)))
    for _ in range(2):
        machine.reboot()
        machine.restorer.run()
        assert machine.libvirt.running == {"a", "c", "d"}
        starts = {one.id: one.start for one in machine.mig.instances(A100)}
        assert isinstance(machine.host, A100Host)
        assert {VFS.index(vf): starts[one] for vf, one in machine.host.inside.items()} == {0: 4, 2: 4, 3: 0}
        assert [set(InstanceHolders(machine.ledger).of(A100, start)) for start in (0, 4)] == [{"d"}, {"a", "c"}]
