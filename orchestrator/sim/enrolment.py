# SPDX-License-Identifier: Apache-2.0
"""Simulated machines as hosts of the database."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.store.database import Store

_AT_ONCE: Final = 200
"""Snapshots in memory at a time."""


def record_enrolled(store: Store, seen: Iterable[tuple[str, str, HostSnapshot]], now: float) -> None:
    """Hosts as ``host add`` leaves them, all in one transaction: (name, address, a look at it)."""
    left = iter(seen)
    with store.begin() as tx:
        while some := list(islice(left, _AT_ONCE)):
            tx.fleet.add_enrolled([(_host_seen(*row, now), row[2]) for row in some], tx.operations.turn())


def _host_seen(name: str, address: str, snapshot: HostSnapshot, now: float) -> Host:
    gpus = tuple(gpu.address for gpu in snapshot.gpus)
    return new_host(name, address, snapshot.machine_id, gpus, now)


def new_host(name: str, address: str, machine_id: str | None, gpus: tuple[str, ...], now: float) -> Host:
    """As ``host add`` leaves it."""
    return Host(
        name=name, address=address, port=22, provisioning_user="root", host_key="ssh-ed25519 AAAA",
        state="ready", state_reason=None, cordoned=False, machine_id=machine_id, epoch=1,
        managed_gpus=gpus, last_seen_at=now,
    )  # fmt: skip
