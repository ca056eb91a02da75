# SPDX-License-Identifier: Apache-2.0
"""A host's cards were moved or replaced: VMs are where their card is, or are started nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from orchestrator.api.schemas.hosts import HostAnswer
from orchestrator.core.errors import NotFound
from orchestrator.core.operation import Operation
from orchestrator.core.vms.vm import Vm
from orchestrator.store.tables import gpus
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_actions import lose_ledger
from tests.fakes.recount import miscounted
from tests.operations.gpu_cards import PROFILES, SWAPPED, maintain

HOSTS = (T4_HOST, L40S_HOST)
FREE = {T4_HOST: "0000:a1:00.0", L40S_HOST: "0000:a2:00.0"}
"""Where nothing was so far."""


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def plane(tmp_path: Path, host: str) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, host) as made:
        made.services.vms.create(create_vm(profile=PROFILES[host]))
        made.engine.drain()
        yield made
        made.reconciler.close()


def _vm(plane: ControlPlane) -> Vm:
    return plane.services.vms.get("default", "train")


def _codes(plane: ControlPlane, host: str) -> set[str]:
    return {one.finding.code for one in plane.findings.observe(host)}


def _start(plane: ControlPlane) -> Operation:
    started = plane.services.vms.start("default", "train")
    plane.engine.drain()
    return plane.services.operations.get(str(started.operation))


def _accept(plane: ControlPlane, host: str, *addresses: str) -> Operation:
    started = plane.services.gpu_cards.accept(host, addresses)
    plane.engine.drain()
    return plane.services.operations.get(str(started.operation))


def _other(plane: ControlPlane, host: str) -> tuple[str, str]:
    """The address of the VM's card, and that of the other one."""
    its_own = _vm(plane).devices[0].gpu
    return its_own, SWAPPED[host][its_own]


@pytest.mark.fault("F25")
def test_where_cards_have_changed_places_nothing_starts_by_address_and_then_vms_follow_their_card(
    plane: ControlPlane, host: str
) -> None:
    before, (_, there) = _vm(plane), _other(plane, host)
    maintain(plane.machine(host), SWAPPED[host])
    assert {"gpu.moved", "vm.not_running"} <= _codes(plane, host)
    refused = _start(plane)
    assert (refused.state, refused.error and refused.error["code"]) == ("undone", "gpu.replaced")
    assert _accept(plane, host).state == "done"
    assert _codes(plane, host) - {"vm.definition_changed"} == {"vm.not_running"}
    assert _start(plane).state == "done"
    (device,) = _vm(plane).devices
    assert device.gpu == there
    assert (device.type_name, device.kind) == (before.devices[0].type_name, before.devices[0].kind)
    assert _codes(plane, host) == set()
    with plane.store.read() as tx:
        (claim,) = tx.claims.of_host(host)
        assert [(one.gpu, one.function) for one in claim.devices] == [(device.gpu, device.function)]
        assert list(miscounted(tx)) == []


@pytest.mark.fault("F25")
def test_a_card_at_an_address_where_none_was_is_found_by_asking_for_repairs(plane: ControlPlane, host: str) -> None:
    its_own, other = _other(plane, host)
    maintain(plane.machine(host), {its_own: FREE[host]})
    assert "gpu.moved" in _codes(plane, host)
    plane.engine.drain()
    assert plane.machine(host).managed == (its_own, other), "nobody has asked for it"
    plane.findings.repair(host=host)
    plane.engine.drain()
    plane.findings.observe(host)
    assert set(plane.services.hosts.get(host).host.managed_gpus) == {FREE[host], other}
    plane.findings.repair(host=host)
    plane.engine.drain()
    assert _codes(plane, host) == set()
    assert _vm(plane).state == "running"
    assert _vm(plane).devices[0].gpu == FREE[host]


@pytest.mark.fault("F24")
def test_another_card_takes_nothing_before_an_operator_has_said_that_it_is_right(
    plane: ControlPlane, host: str
) -> None:
    its_own, _ = _other(plane, host)
    maintain(plane.machine(host), {}, {its_own: "GPU-new"})
    assert "gpu.replaced" in _codes(plane, host)
    assert _start(plane).state == "undone"
    assert _accept(plane, host).state == "done"
    assert "gpu.replaced" in _codes(plane, host), "a stranger is accepted by its address alone"
    assert _accept(plane, host, its_own).state == "done"
    assert _start(plane).state == "done"
    assert _codes(plane, host) == set()


@pytest.mark.fault("F24")
def test_a_new_card_that_cannot_carry_what_has_a_place_there_is_refused(plane: ControlPlane, host: str) -> None:
    its_own, _ = _other(plane, host)
    maintain(plane.machine(host), {}, {its_own: "GPU-new"})
    gpu = next(one for one in plane.machine(host).gpus if one.address == its_own)
    gpu.types = tuple(one for one in gpu.types if one.name != PROFILES[host])
    plane.findings.observe(host)
    operation = _accept(plane, host, its_own)
    assert (operation.state, operation.error and operation.error["code"]) == ("undone", "gpu.other_model")


@pytest.mark.fault("F24")
def test_a_card_that_is_gone_is_named_until_it_is_there_again(plane: ControlPlane, host: str) -> None:
    its_own, other = _other(plane, host)
    machine = plane.machine(host)
    with plane.store.read() as tx:
        words = {card.address: card.words for card in tx.cards.of_host(host)}
    maintain(machine, {})
    cards, machine.gpus = machine.gpus, [one for one in machine.gpus if one.address == other]
    found = {one.finding.code: one.finding for one in plane.findings.observe(host)}
    assert set(found) == {"gpu.missing", "vm.not_running"}
    missing = found["gpu.missing"]
    assert (missing.subject, missing.wanted, missing.repair) == (f"GPU {its_own}", words[its_own], None)
    assert found["vm.not_running"].observed == f"shut off: GPU {its_own} is not on the host's bus"
    shown = HostAnswer.of(plane.services.hosts.get(host))
    assert shown.problems == (f"GPU {its_own} is not on the host's bus",)
    machine.gpus = cards
    assert _codes(plane, host) == {"vm.not_running"}
    assert _start(plane).state == "done"
    assert _codes(plane, host) == set()


def test_a_card_in_the_place_of_one_that_is_gone_waits_for_the_vms_of_that(plane: ControlPlane, host: str) -> None:
    its_own, other = _other(plane, host)
    machine = plane.machine(host)
    machine.gpus = [one for one in machine.gpus if one.address == other]
    maintain(machine, {other: its_own})
    plane.findings.observe(host)
    operation = _accept(plane, host)
    assert (operation.state, operation.error and operation.error["code"]) == ("undone", "gpu.place_taken")
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert _accept(plane, host).state == "done"
    assert plane.services.hosts.get(host).host.managed_gpus == (its_own,)
    assert _codes(plane, host) == set()


def test_a_lost_ledger_learns_from_the_database_which_cards_were_ours(plane: ControlPlane, host: str) -> None:
    its_own, _ = _other(plane, host)
    maintain(plane.machine(host), {}, {its_own: "GPU-new"})
    lose_ledger(plane.machine(host))
    plane.findings.observe(host)
    plane.findings.repair(host=host)
    plane.engine.drain()
    assert plane.machine(host).ledger.cards[its_own] != "GPU-new"
    plane.findings.observe(host)
    assert _start(plane).state == "undone"


def test_a_gpu_that_was_not_given_to_us_cannot_be_accepted(plane: ControlPlane, host: str) -> None:
    with pytest.raises(NotFound) as caught:
        plane.services.gpu_cards.accept(host, ("0000:ff:00.0",))
    assert caught.value.code == "gpu.not_ours"


def test_a_host_that_was_enrolled_before_cards_were_known_teaches_them(plane: ControlPlane, host: str) -> None:
    with plane.store.begin() as tx:
        known = tx.cards.of_host(host)
        tx.connection.execute(update(gpus).values(uuid=None, serial=None))
        assert len(known) == 2
        assert tx.cards.of_host(host) == ()
    plane.machine(host).driver_version = "580.105.06"
    plane.findings.observe(host)
    with plane.store.read() as tx:
        assert tx.cards.of_host(host) == known
