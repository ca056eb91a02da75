# SPDX-License-Identifier: Apache-2.0
"""Images that exist by name alone, keys that simulated machines show, and these machines as hosts of the database."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Final

from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.vms.image import Image, NewImage
from orchestrator.ports.files import TakenFile
from orchestrator.services.messages import HostKey
from orchestrator.store.database import Store


class InMemoryImages:
    """Implements ports.files.ImageFiles."""

    def take(self, wanted: NewImage, now: float) -> AbstractContextManager[TakenFile[Image]]:
        return nullcontext(TakenFile(self.named(wanted, now), lambda: None))

    def named(self, wanted: NewImage, now: float) -> Image:
        digest = wanted.sha256 or hashlib.sha256(str(wanted.source).encode()).hexdigest()
        return Image(
            name=wanted.name,
            sha256=digest,
            format=wanted.format or "qcow2",
            size_bytes=1024,
            virtual_size_bytes=64 * 1024**2,
            created_at=now,
        )

    def path(self, sha256: str, image_format: ImageFormat) -> Path:
        return Path(f"{sha256}.{image_format}")

    def local(self, sha256: str, image_format: ImageFormat) -> Path | None:
        return None

    def remove(self, sha256: str, image_format: ImageFormat) -> None:
        """Nothing is kept."""


def fingerprint_of(address: str) -> str:
    """Of the key that the machine at ``address`` shows."""
    return f"SHA256:{hashlib.sha256(address.encode()).hexdigest()[:43]}"


def scan(address: str, _port: int) -> HostKey:
    """As a machine of the fleet answers."""
    return HostKey(type="ssh-ed25519", key="AAAA", fingerprint=fingerprint_of(address))


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
