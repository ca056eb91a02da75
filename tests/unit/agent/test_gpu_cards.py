# SPDX-License-Identifier: Apache-2.0
"""Another card sits where a GPU of ours was: nothing is made there, or started, by the address alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.mdev import mdev_devices
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.reading import Nvml, NvmlReading
from orchestrator.agent.observing import observe_gpus
from orchestrator.core.actions.gpu_cards import AcceptGpus, GpuCard
from orchestrator.core.actions.host_actions import (
    EnableVirtualFunctions,
    MakeVgpu,
    ManageGpus,
    RemoveMdev,
    StartDomain,
)
from orchestrator.core.errors import Conflict, Retryable
from tests.unit.agent.bench import Bench
from tests.unit.agent.fake_timing import FakeTiming
from tests.unit.agent.test_mig_backed import NOTHING_SAID
from tests.unit.agent.test_restore import L40S, T4, UUID, Machine

OURS = GpuCard(address=T4, uuid="GPU-ours", serial="1320221001")
ALSO_OURS = GpuCard(address=L40S, uuid="GPU-also")
NEW = GpuCard(address=T4, uuid="GPU-new", serial="1320229999")
MADE = MakeVgpu(vm="a", uuid=UUID, parent=T4, type_name="GRID T4-2Q")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Whose driver has said which cards are ours."""
    made = Machine(tmp_path)
    made.sees(OURS, ALSO_OURS)
    return made


def _at(card: GpuCard, address: str) -> GpuCard:
    return GpuCard(address=address, uuid=card.uuid, serial=card.serial)


@pytest.mark.fault("F24")
def test_a_vm_is_not_restored_on_another_card_and_both_are_named(machine: Machine) -> None:
    machine.run_vm("a")
    machine.reboot(NEW, ALSO_OURS)
    machine.restorer.run()
    assert machine.libvirt.started == []
    assert list(mdev_devices(machine.host.paths).iterdir()) == []
    (problem,) = machine.wanted.problems()
    assert "GPU-new (serial 1320229999) and not GPU-ours (serial 1320221001)" in problem
    with pytest.raises(Conflict) as caught:
        machine.do(MADE)
    assert caught.value.code == "gpu.replaced"


@pytest.mark.fault("F24")
def test_a_card_that_an_operator_has_accepted_is_ours_and_the_former_one_no_more(machine: Machine) -> None:
    machine.run_vm("a")
    machine.reboot(NEW, ALSO_OURS)
    machine.restorer.run()
    machine.do(AcceptGpus(cards=(NEW, ALSO_OURS)), MADE, StartDomain(vm="a"))
    assert machine.libvirt.running == {"a"}
    machine.reboot(OURS, ALSO_OURS)
    machine.restorer.run()
    assert machine.libvirt.running == set()


@pytest.mark.fault("F25")
def test_where_addresses_are_numbered_anew_nothing_starts_by_them(machine: Machine) -> None:
    machine.run_vm("a")
    machine.run_typed_vm("b")
    machine.reboot(_at(OURS, L40S), _at(ALSO_OURS, T4))
    machine.restorer.run()
    assert machine.libvirt.started == []
    assert len(machine.wanted.problems()) == 2
    assert not (machine.host.paths.pci(L40S) / "virtfn0").exists(), "functions are not switched on either"


@pytest.mark.fault("F25")
def test_what_is_known_of_a_card_goes_with_it_to_its_new_address(machine: Machine) -> None:
    machine.do(EnableVirtualFunctions(gpu=L40S))
    machine.reboot(_at(OURS, L40S), _at(ALSO_OURS, T4))
    machine.restorer.run()
    machine.do(AcceptGpus(cards=(_at(OURS, L40S), _at(ALSO_OURS, T4))))
    assert machine.wanted.functions() == (T4,)
    assert machine.ledger.managed_gpus() == {T4, L40S}
    machine.do(AcceptGpus(cards=(_at(OURS, "0000:05:00.0"),)))
    assert machine.ledger.managed_gpus() == {T4, "0000:05:00.0"}, "what is not named stays"


@pytest.mark.fault("F25")
def test_a_driver_that_does_not_say_yet_which_card_it_is_is_waited_for(machine: Machine) -> None:
    machine.run_vm("a")
    machine.reboot()
    machine.silent = 2
    with pytest.raises(Retryable) as caught:
        machine.do(MADE)
    assert caught.value.code == "gpu.not_identified"
    machine.restorer.run()
    assert machine.libvirt.running == {"a"}
    assert machine.timing.slept == [1]


def test_what_a_former_card_carried_can_be_removed(machine: Machine) -> None:
    machine.run_vm("a")
    machine.reboot(NEW, ALSO_OURS)
    machine.restorer.run()
    machine.do(RemoveMdev(vm="a", uuid=UUID))
    found = machine.wanted.find("a")
    assert found is not None
    assert found.devices == ()


def test_the_gpu_of_a_former_card_is_given_back_with_the_new_cards_mode_as_it_is(bare: Bench) -> None:
    bare.ledger.cards.saw((OURS,))
    bare.ledger.note_mig_mode(T4, before=True)
    bare.ledger.cards.saw((NEW,))
    assert bare.do(ManageGpus(gpus=(L40S,))).changed
    assert bare.ledger.mig_mode_before(T4) is None


def test_a_card_is_remembered_as_long_as_its_gpu_is_ours(machine: Machine) -> None:
    machine.ledger.manage_gpus((L40S,))
    machine.ledger.manage_gpus((T4, L40S))
    machine.reboot(NEW, ALSO_OURS)
    machine.sees(NEW, ALSO_OURS)
    machine.do(MADE)


def test_an_agent_that_starts_again_while_a_vm_has_the_card_knows_it_still(machine: Machine) -> None:
    machine.run_whole_vm("a")
    machine.cards = ()
    machine.restart_agent()
    machine.run_whole_vm("a")


def test_observing_tells_of_the_stranger_first_so_that_nothing_new_is_put_there(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    files = DeviceFiles(machine.host.paths, machine.ledger, FakeTiming(), dict, machine.host.write)
    kinds = kinds_of(files, machine.mig, Nvml())

    def problems(ledger: Ledger, uuid: str | None) -> tuple[str, ...]:
        reading = NvmlReading(gpus={T4: replace(NOTHING_SAID, uuid=uuid, serial="1")})
        return observe_gpus(machine.host.paths, ledger, kinds, reading)[0].problems

    assert problems(machine.ledger, None) == ()
    assert problems(machine.ledger, "GPU-ours") == ()
    said = "another card is there than was accepted: GPU-new (serial 1) and not GPU-ours (serial 1)"
    assert problems(machine.ledger, "GPU-new") == (said,)
