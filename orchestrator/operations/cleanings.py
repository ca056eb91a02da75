# SPDX-License-Identifier: Apache-2.0
"""Pieces of GPUs of which nobody knew that they are clean when their claim ended: an observation that began later and
shows their GPU without them settles it."""

from __future__ import annotations

from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.vms.cleaning import is_gone
from orchestrator.store.transaction import Transaction


def settle_cleanings(tx: Transaction, host: str, snapshot: HostSnapshot, began: float) -> None:
    """``began``: when the observation did."""
    for cleaning in tx.cleanings.open_on((host,)):
        if cleaning.ended_at <= began and is_gone(cleaning, snapshot, tx.vms.find_id(cleaning.vm)):
            tx.cleanings.settle(cleaning, "seen_gone", began)
