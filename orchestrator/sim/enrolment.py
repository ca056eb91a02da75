# SPDX-License-Identifier: Apache-2.0
"""Simulated machines as hosts of the database."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.adapters.store.database import SqlStore
from orchestrator.core.host import Host
from orchestrator.sim.look import snapshot_of
from orchestrator.sim.machine import Machine


def record_enrolled(store: SqlStore, machines: Sequence[tuple[str, str, Machine]], now: float) -> None:
    """Hosts as ``host add`` leaves them, all in one transaction: (name, address, machine that is enrolled)."""
    with store.begin() as tx:
        for name, address, machine in machines:
            gpus = tuple(gpu.address for gpu in machine.kernel.gpus)
            tx.hosts.add(
                Host(
                    name=name, address=address, port=22, provisioning_user="root", host_key="ssh-ed25519 AAAA",
                    state="ready", state_reason=None, cordoned=False, machine_id=machine.machine_id, epoch=1,
                    managed_gpus=gpus, last_seen_at=now,
                )
            )  # fmt: skip
            for gpu in gpus:
                tx.hosts.mark_enabled(name, gpu, by_us=True)
            tx.hosts.put_snapshot(name, snapshot_of(machine), now)
