# SPDX-License-Identifier: Apache-2.0
"""What a host tells of network functions: whether it is believed, kept, and as its VMs want it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.actions.nics import TakeNicFunction
from orchestrator.core.attachments.host_facts import facts_of, things_of
from orchestrator.core.diff.finding import ExpectedVm, Finding
from orchestrator.core.diff.vms import vm_findings
from orchestrator.core.errors import Unknown
from orchestrator.core.hosts.nic import HostNic, NicFunction, NicPlace
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot
from orchestrator.core.hosts.snapshot_rules import checked
from orchestrator.core.vms.vm import Vm
from orchestrator.store.snapshots import facts_from_text, facts_text
from tests.fakes.fake_machine import FakeMachine, snapshot_of, t4
from tests.fakes.fake_nics import CARD
from tests.unit.core.test_diff import GPU, KNOWN, vm

PLACE = NicPlace(card=CARD.address, function=CARD.functions[0].address, functions=2, mac="52:54:01:00:00:01")
WANTED = replace(vm(KNOWN[0]), nic=PLACE)


def observed(*nics: HostNic) -> HostSnapshot:
    return replace(snapshot_of(FakeMachine(machine_id="m", gpus=[t4(GPU)])), nics=nics)


def card(owner: str | None = None, held: str | None = None) -> HostNic:
    first, second = CARD.functions
    return replace(CARD, functions=(replace(first, owner=owner, held=held), second))


def found(wanted: Vm, snapshot: HostSnapshot, *, running: bool) -> list[Finding]:
    domain = DomainSnapshot(
        uuid=wanted.id, name=wanted.domain_name, state="running" if running else "shut_off", owner=wanted.id, devices=()
    )
    expected = ExpectedVm(vm=replace(wanted, wanted="running" if running else "stopped"), claimed=True)
    findings = vm_findings(expected, replace(snapshot, domains=(domain,)))
    return [one for one in findings if ".nic_" in one.code]


@pytest.mark.parametrize(
    ("nics", "running", "code"),
    [
        ((card(owner=WANTED.id),), True, None),
        ((card(),), False, None),
        ((), True, None),
        ((replace(CARD, functions=CARD.functions[1:]),), True, "vm.nic_gone"),
        ((replace(CARD, functions=CARD.functions[1:]),), False, "vm.nic_gone"),
        ((card(),), True, "vm.nic_foreign"),
        ((card(owner="other"),), False, "vm.nic_foreign"),
        ((card(held="vfio-pci has it, and we did not give it there"),), False, "vm.nic_foreign"),
        ((card(owner=WANTED.id),), False, "vm.nic_left"),
    ],
)
def test_a_function_that_is_gone_or_not_the_vms_alone_is_a_finding(
    nics: tuple[HostNic, ...], running: bool, code: str | None
) -> None:
    findings = found(WANTED, observed(*nics), running=running)
    assert [one.code for one in findings] == ([] if code is None else [code])
    repairs = [one.repair.actions for one in findings if one.repair is not None]
    given_back = (TakeNicFunction(vm=WANTED.id, card=CARD.address, vf=PLACE.function),)
    assert repairs == ([given_back] if code == "vm.nic_left" else [])


def test_a_vm_without_one_is_not_judged_and_what_a_vm_has_is_told_with_its_things() -> None:
    assert found(vm(KNOWN[0]), observed(CARD), running=True) == []
    assert f"network function {PLACE.function}" in things_of(observed(card(owner="somebody")), "somebody")


def test_what_placement_keeps_of_cards_is_read_again_without_owners() -> None:
    facts = facts_of(observed(card(owner="somebody"), replace(CARD, address="0000:06:00.0", functions=())))
    again, another = (facts_from_text(facts_text(facts), facts.disk_bytes) for _ in range(2))
    assert again == facts
    assert again.nics[0] is another.nics[0]
    assert again.nics[0] == CARD


@pytest.mark.parametrize(
    "nics",
    [
        (CARD, CARD),
        (CARD, replace(CARD, address="0000:06:00.0")),
        (replace(CARD, address="eth0"),),
        (replace(CARD, functions=(NicFunction(address="../.."),)),),
        (replace(CARD, bridges=("0",)),),
        (replace(CARD, numa_node=-3),),
        (replace(CARD, interface="x" * 300),),
        tuple(replace(CARD, address=f"0000:{number:02x}:00.0", functions=()) for number in range(65)),
    ],
    ids=["a card twice", "a function of two", "no address", "no function", "no port", "below zero", "long", "many"],
)
def test_cards_that_cannot_be_so_are_not_believed(nics: tuple[HostNic, ...]) -> None:
    assert checked(observed(CARD)).nics == (CARD,)
    with pytest.raises(Unknown) as caught:
        checked(observed(*nics))
    assert caught.value.code == "agent.answer_invalid"
