# SPDX-License-Identifier: Apache-2.0
"""Which VMs hold a GPU instance of ours. Where the driver lets several vGPUs lie in one, it is there for each of their
VMs: made for the first and destroyed with the last."""

from __future__ import annotations

from orchestrator.agent.ledger import Ledger


def instance_key(gpu: str, start: int) -> str:
    """Name of a GPU instance in the ledger. Who comes when somebody holds it already has this and his id for a name."""
    return f"gi:{gpu}:{start}"


class InstanceHolders:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def of(self, gpu: str, start: int) -> dict[str, str]:
        """VM → the profile that it made the instance as, or found it with."""
        key = instance_key(gpu, start)
        first, others = self._ledger.owner(key), self._ledger.owned(f"{key}:")
        return {holder.vm: holder.detail for holder in (first, *others.values()) if holder is not None}

    def hold(self, gpu: str, start: int, vm: str, profile: str) -> None:
        """Nothing changes for one that holds it."""
        key = instance_key(gpu, start)
        if vm not in self.of(gpu, start):
            key = key if self._ledger.owner(key) is None else f"{key}:{vm}"
            self._ledger.claim(key, vm, detail=profile, until_reboot=True)

    def drop(self, gpu: str, start: int, vm: str) -> None:
        """Nobody else's hold."""
        key = instance_key(gpu, start)
        for held in (key, f"{key}:{vm}"):
            owner = self._ledger.owner(held)
            if owner is not None and owner.vm == vm:
                self._ledger.release(held)
