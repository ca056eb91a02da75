# SPDX-License-Identifier: Apache-2.0
"""Bodies about NVSwitch baseboards."""

from __future__ import annotations

from orchestrator.api.schemas.base import AnswerBody
from orchestrator.core.hosts.snapshot import HostSnapshot


class FabricPartitionAnswer(AnswerBody):
    """A set of GPUs that the host's NVSwitches can join."""

    id: int
    """Stays the same for ever."""
    modules: tuple[int, ...]
    """Module ids of its GPUs, as NVML tells them."""
    active: bool
    """Its GPUs are joined now, and parted from all others."""
    ours: bool
    """Activated for a VM of ours."""


class FabricAnswer(AnswerBody):
    """The fabric manager of a host whose GPUs hang on NVSwitches."""

    version: str | None
    """Its version."""
    problem: str | None
    """Why no GPU of the host is given out as a whole now; null: they are."""
    partitions: tuple[FabricPartitionAnswer, ...]
    """All that the fabric manager knows."""

    @classmethod
    def of(cls, snapshot: HostSnapshot) -> FabricAnswer | None:
        fabric = snapshot.fabric
        if fabric is None:
            return None
        partitions = tuple(
            FabricPartitionAnswer(
                id=partition.id, modules=partition.modules, active=partition.active, ours=partition.owner is not None
            )
            for partition in fabric.partitions
        )
        return cls(version=fabric.version, problem=fabric.problem, partitions=partitions)
