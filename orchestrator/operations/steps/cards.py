# SPDX-License-Identifier: Apache-2.0
"""Steps that say where a host's cards are now; VMs and claims go with them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.actions.gpu_cards import AcceptGpus, GpuCard, cards_of, moves, strangers
from orchestrator.core.attachments import remove
from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True)
class _Change:
    moved: dict[str, str]
    """Old address → new one."""
    cards: tuple[GpuCard, ...]
    """All that are known, where they are now."""


def _change(context: Context, tx: Transaction, snapshot: HostSnapshot) -> _Change:
    """:raises Conflict: ``gpu.place_taken``, ``gpu.other_model``"""
    accepted, seen = tx.cards.of_host(context.host_name), cards_of(snapshot.gpus)
    moved, named = moves(accepted, seen), context.inputs.get("addresses")
    new = {
        address: card
        for address, (_, card) in strangers(accepted, seen).items()
        if isinstance(named, list) and address in named
    }
    for card in new.values():
        _check_offers(tx, context.host_name, snapshot, card)
    gone = {card.address for card in accepted} & set(moved.values()) - set(moved)
    for address in gone:
        if _on(tx, context.host_name, {address}):
            raise Conflict(
                "gpu.place_taken",
                f"another card is at {address} now, where VMs have a place on one that is not seen any more",
                hint=f"delete or deallocate the VMs of GPU {address}, or put its card back",
            )
    cards = tuple(
        new.get(card.address) or replace(card, address=moved.get(card.address, card.address))
        for card in accepted
        if card.address not in gone
    )
    return _Change(moved, cards)


def _check_offers(tx: Transaction, host: str, snapshot: HostSnapshot, card: GpuCard) -> None:
    """VMs keep their place on the GPU, so the new card must be able to carry them."""
    gpu = next(item for item in snapshot.gpus if item.address == card.address)
    offered = {item.name for item in gpu.types}
    for vm in _on(tx, host, {card.address}):
        for device in vm.devices:
            if device.gpu == card.address and not device.is_whole_gpu and device.type_name not in offered:
                raise Conflict(
                    "gpu.other_model",
                    f"{gpu.model} at {card.address} offers no {device.type_name}, which VM {vm.full_name} has there",
                    hint="delete or deallocate the VMs of that GPU first",
                )


def _on(tx: Transaction, host: str, gpus: set[str]) -> tuple[Vm, ...]:
    """VMs with a place on one of them."""
    claiming = {claim.vm for claim in tx.claims.of_host(host) if any(device.gpu in gpus for device in claim.devices)}
    return tuple(vm for vm in tx.vms.list(host=host) if vm.id in claiming)


def _check_at_rest(tx: Transaction, snapshot: HostSnapshot, vms: tuple[Vm, ...]) -> None:
    """:raises Conflict: ``vm.busy``, ``vm.running``"""
    active = {domain.uuid for domain in snapshot.domains if domain.active}
    for vm in vms:
        busy = next(
            (operation for operation in tx.operations.of_subject(vm.id) if operation.state not in {"done", "undone"}),
            None,
        )
        if busy is not None:
            raise Conflict(
                "vm.busy",
                f"operation {busy.id} works on VM {vm.full_name}",
                hint="its card was moved: wait, or abandon it",
            )
        if vm.id in active:
            raise Conflict("vm.running", f"VM {vm.full_name} runs, and its card was moved", hint="stop it first")


def _forget(context: Context) -> str:
    """The agent shall not make devices at the old addresses when the host boots: by then they are others'."""
    snapshot = context.observe()
    with context.world.store.read() as tx:
        moved = _change(context, tx, snapshot).moved
        vms = _on(tx, context.host_name, set(moved))
        _check_at_rest(tx, snapshot, vms)
    devices = [(vm.id, device) for vm in vms for device in vm.devices]
    devices += [(KEEPER, device) for layout in context.host().mig_layouts for device in layout.devices]
    for owner, device in devices:
        if device.gpu in moved:
            for action in remove(owner, device):
                context.perform(action)
    return f"{len(moved)} moved"


def _record(context: Context) -> str:
    snapshot = context.observe()
    with context.begin() as tx:
        change = _change(context, tx, snapshot)
        _check_at_rest(tx, snapshot, _on(tx, context.host_name, set(change.moved)))
        tx.gpu_health.keep_quarantines(context.host_name)
        tx.cards.put(context.host_name, change.cards, change.moved)
        tx.gpu_health.recall_quarantines(context.host_name)
    return ", ".join(f"{old} is at {new}" for old, new in change.moved.items())


def _tell(context: Context) -> str:
    with context.world.store.read() as tx:
        cards = tx.cards.of_host(context.host_name)
    context.perform(AcceptGpus(cards=cards))
    return f"{len(cards)} cards"


FORGET = Step(
    name="forget_places.1",
    title="forget the old addresses",
    do=_forget,
    no_undo_reason="starting a VM makes its devices",
)
RECORD = Step(name="record_cards.1", title="write down the cards", do=_record, no_undo_reason="it says what is so")
TELL = Step(
    name="accept_gpus.1",
    title="tell the host",
    do=_tell,
    no_undo_reason="it says what is so",
    remains=lambda context: (f"what the agent of host {context.host_name} knows of its cards",),
)
