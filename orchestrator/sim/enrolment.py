# SPDX-License-Identifier: Apache-2.0
"""Simulated machines as hosts of the database."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.adapters.store.database import SqlStore
from orchestrator.core.host import Host
from orchestrator.core.snapshot import HostSnapshot


def record_enrolled(store: SqlStore, seen: Iterable[tuple[str, str, HostSnapshot]], now: float) -> None:
    """Hosts as ``host add`` leaves them, all in one transaction: (name, address, a look at it)."""
    with store.begin() as tx:
        for name, address, snapshot in seen:
            gpus = tuple(gpu.address for gpu in snapshot.gpus)
            host = new_host(name, address, snapshot.machine_id, gpus, now)
            tx.hosts.add(host)
            for gpu in gpus:
                tx.hosts.mark_enabled(name, gpu, by_us=True)
            tx.hosts.put_snapshot(name, snapshot, now)


def new_host(name: str, address: str, machine_id: str | None, gpus: tuple[str, ...], now: float) -> Host:
    """As ``host add`` leaves it."""
    return Host(
        name=name, address=address, port=22, provisioning_user="root", host_key="ssh-ed25519 AAAA",
        state="ready", state_reason=None, cordoned=False, machine_id=machine_id, epoch=1,
        managed_gpus=gpus, last_seen_at=now,
    )  # fmt: skip
