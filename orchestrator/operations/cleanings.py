# SPDX-License-Identifier: Apache-2.0
"""Pieces of GPUs of which nobody knew that they are clean when their claim ended: an observation that began later and
shows their GPU without them settles it."""

from __future__ import annotations

from orchestrator.core.errors import NotFound
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.vms.cleaning import is_gone
from orchestrator.store.transaction import Transaction


def settle_cleanings(tx: Transaction, host: str, snapshot: HostSnapshot, turn: int, now: float) -> None:
    """``turn``: the newest when the observation began. Which came first is told by the turns of operations: the
    clock of the controller that ended a claim is not that of the one that observes."""
    for cleaning in tx.cleanings.open_on((host,)):
        if _is_over(tx, cleaning.operation, turn) and is_gone(cleaning, snapshot, tx.vms.find_id(cleaning.vm)):
            tx.cleanings.settle(cleaning, "seen_gone", now)


def _is_over(tx: Transaction, operation: str | None, turn: int) -> bool:
    """Whether the observation has seen all that the operation did. One that is not stored any more ended long ago."""
    if operation is None:
        return True
    try:
        return tx.operations.get(operation).operation.over_by(turn)
    except NotFound:
        return True
