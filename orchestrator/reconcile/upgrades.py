# SPDX-License-Identifier: Apache-2.0
"""When the agent of a host may be replaced by itself."""

from __future__ import annotations

from typing import Final

from orchestrator.store.transaction import Transaction

MAX_AT_A_TIME: Final = 4
"""Hosts that something is installed on, removed from or replaced on, all together."""


def upgrade_in_turn(tx: Transaction, host: str) -> bool:
    """No operation works on the host or on a VM there, and only a few are being upgraded. What is stuck waits for a
    person, and does not keep an agent from being replaced."""
    due = tx.operations.due()
    return not any(one.host == host for one in due) and sum(one.subject == one.host for one in due) < MAX_AT_A_TIME
