# SPDX-License-Identifier: Apache-2.0
"""Cards of a host in memory, as its agent's ledger knows them."""

from __future__ import annotations

from orchestrator.core.actions.gpu_cards import AcceptGpus
from orchestrator.core.actions.host_actions import ManageGpus
from tests.fakes.fake_machine import FakeMachine


def manage(machine: FakeMachine, action: ManageGpus) -> None:
    """Which card a GPU is that is new is seen now. One that is given back has the MIG mode that it had."""
    for gpu in machine.gpus:
        if gpu.address in set(machine.managed) - set(action.gpus) and gpu.mig_before is not None:
            gpu.mig, gpu.mig_before = gpu.mig_before, None
    machine.managed = action.gpus
    there = {gpu.address: gpu.uuid for gpu in machine.gpus}
    machine.ledger.cards = {gpu: machine.ledger.cards.get(gpu, there[gpu]) for gpu in action.gpus}


def accept(machine: FakeMachine, action: AcceptGpus) -> None:
    """A card that is elsewhere now is there no more."""
    now = {card.address: card.uuid for card in action.cards}
    stay = {address: uuid for address, uuid in machine.ledger.cards.items() if uuid not in now.values()}
    others = set(machine.managed) - machine.ledger.cards.keys()
    machine.ledger.cards = dict(sorted((stay | now).items()))
    machine.managed = tuple(sorted({*others, *machine.ledger.cards}))
