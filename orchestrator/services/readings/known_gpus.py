# SPDX-License-Identifier: Apache-2.0
"""Which GPUs hosts have, as they were observed last: what readings of all hosts are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.catalogue.gpu_tables import model_name
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """As much of one as readings need."""

    address: str
    uuid: str
    model: str


class KnownGpus:
    """Keeps those of each host until another snapshot is stored: whole ones are parsed for a millisecond each. Safe to
    call from many threads."""

    def __init__(self) -> None:
        self._kept: Mapping[str, tuple[str, tuple[KnownGpu, ...]]] = {}

    def of_all(self, tx: Transaction) -> dict[str, tuple[KnownGpu, ...]]:
        """By host; without those that were never observed."""
        before, now = self._kept, dict[str, tuple[str, tuple[KnownGpu, ...]]]()
        for host, digest in tx.hosts.digests().items():
            kept = before.get(host)
            now[host] = kept if kept is not None and kept[0] == digest else (digest, self.of(tx, host))
        self._kept = now
        return {host: gpus for host, (_, gpus) in now.items()}

    def of(self, tx: Transaction, host: str) -> tuple[KnownGpu, ...]:
        """None of one that was never observed. Where the driver did not say which cards there are, as while one of them
        hangs, they are those that were ours: frames go on naming GPUs, and what is on them, by UUID."""
        snapshot = tx.hosts.snapshot(host)
        gpus = () if snapshot is None else snapshot.gpus
        ours = {} if all(gpu.uuid for gpu in gpus) else {card.address: card.uuid for card in tx.cards.of_host(host)}
        return tuple(KnownGpu(gpu.address, gpu.uuid or ours.get(gpu.address, ""), model_name(gpu)) for gpu in gpus)
