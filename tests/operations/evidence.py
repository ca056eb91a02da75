# SPDX-License-Identifier: Apache-2.0
"""That no claim ends without evidence of how each of its pieces was cleaned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from orchestrator.core.operation import Operation
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

ASK_NOTHING: Final = frozenset({"evacuate_vm", "evacuate_stopped_vm", "resize_vm"})
"""Kinds that leave a host which is dead, or were taken up again by a process that did not hear how the one before had
cleaned: what the VM left there is not known to be clean until the host is observed."""
_RESIZES: Final = frozenset({"resize_vm", "resize_running_vm"})
"""One that is stuck in its undo may have given the other size back already."""
MOVES_CARDS: Final = "accept_gpus"
"""Claims go on at the address that their GPU's card has now."""


class Slot(NamedTuple):
    host: str
    gpu: str
    cut: str
    number: int


def claimed_slots(store: Store) -> frozenset[Slot]:
    with store.read() as tx:
        return _claimed(tx)


def _claimed(tx: Transaction) -> frozenset[Slot]:
    devices = ((claim.host, device) for claim in tx.claims.list() for device in claim.devices)
    return frozenset(Slot(host, item.gpu, item.cut, slot) for host, item in devices for slot in item.slots)


def without_evidence(tx: Transaction, held: frozenset[Slot], by: Operation) -> Iterator[str]:
    """``held``: what was claimed when that operation was begun. A GPU that is cut otherwise since numbers its slots
    anew."""
    rows, claimed = tx.cleanings.list(limit=1000, operation=by.id), _claimed(tx)
    cleanings = Counter((row.host, row.gpu, number) for row in rows for number in row.slots)
    cuts = {(slot.host, slot.gpu): slot.cut for slot in claimed}
    goes_on = by.kind == MOVES_CARDS or (by.kind in _RESIZES and by.state == "stuck")
    for slot in sorted(held - claimed) if not goes_on else ():
        renumbered = cuts.get((slot.host, slot.gpu), slot.cut) != slot.cut
        count = sum(row.gpu == slot.gpu for row in rows) if renumbered else cleanings[slot.host, slot.gpu, slot.number]
        if count != 1:
            yield f"the claim on {slot} has ended with {count} rows of evidence"
    for row in rows:
        if row.method is None and by.kind not in ASK_NOTHING:
            yield f"{row.device} on GPU {row.gpu} of {row.host} is not known to be clean after {by.kind}"
