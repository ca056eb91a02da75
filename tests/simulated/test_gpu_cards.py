# SPDX-License-Identifier: Apache-2.0
"""Hosts in memory have functions for all vGPUs of a card, can have cards moved, and know them as real agents do."""

from __future__ import annotations

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.actions.gpu_cards import AcceptGpus, cards_of, moves
from orchestrator.core.actions.host_actions import FencingToken, HostAction, MakeVgpu
from orchestrator.core.errors import Conflict
from orchestrator.sim.agent import perform
from orchestrator.sim.fleet import enrolled, new_machine
from orchestrator.sim.hardware import gpu_kind
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.observing import snapshot_of

FIRST, SECOND = "0000:41:00.0", "0000:43:00.0"
MADE = MakeVgpu(vm="a", uuid="0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11", parent=FIRST, type_name="GRID T4-2Q")


@pytest.fixture
def machine() -> SimulatedMachine:
    return enrolled(new_machine(1, [gpu_kind(shipped(), "Tesla T4")] * 2), "site")


def _do(machine: SimulatedMachine, action: HostAction) -> None:
    perform(machine, action, FencingToken(site="site", epoch=1, operation="op", attempt=1))


@pytest.mark.fault("F25")
def test_cards_that_changed_places_take_nothing_until_they_are_accepted(machine: SimulatedMachine) -> None:
    before = cards_of(snapshot_of(machine).gpus)
    machine.place_cards({FIRST: SECOND, SECOND: FIRST})
    now = snapshot_of(machine)
    assert moves(before, cards_of(now.gpus)) == {FIRST: SECOND, SECOND: FIRST}
    assert all(gpu.problems for gpu in now.gpus)
    with pytest.raises(Conflict) as caught:
        _do(machine, MADE)
    assert caught.value.code == "gpu.replaced"
    _do(machine, AcceptGpus(cards=cards_of(now.gpus)))
    _do(machine, MADE)
    assert not any(gpu.problems for gpu in snapshot_of(machine).gpus)


@pytest.mark.fault("F24")
def test_a_card_that_was_put_back_is_ours_again(machine: SimulatedMachine) -> None:
    machine.place_cards({FIRST: "another"})
    with pytest.raises(Conflict):
        _do(machine, MADE)
    machine.place_cards({FIRST: FIRST})
    _do(machine, MADE)


def test_each_model_has_functions_for_as_many_vgpus_as_its_types_allow() -> None:
    kinds = [gpu_kind(shipped(), model.name) for model in shipped().gpu_models]
    on_functions = [kind for kind in kinds if kind.total_vfs]
    assert "NVIDIA L40S" in {kind.model for kind in on_functions}
    short = {kind.model for kind in on_functions for one in kind.types if one.max_instances > kind.total_vfs}
    assert short == set()
