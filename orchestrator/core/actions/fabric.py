# SPDX-License-Identifier: Apache-2.0
"""Host actions on the partitions of an NVSwitch baseboard."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.actions.host_actions import HostAction, MakesDevice, RemovesDevice


@dataclass(frozen=True, kw_only=True)
class ActivateFabricPartition(MakesDevice):
    """Join the GPUs that the VM has as a whole, once it has all of them and before it starts. Refused unless the
    partition is of exactly these GPUs, and while one that overlaps it is active, whoever activated that."""

    since = 7
    partition: int
    modules: tuple[int, ...]
    """Module ids of ``gpus``, in their order."""
    gpus: tuple[str, ...]

    @property
    def function(self) -> str:
        return self.gpus[0]

    def inverse(self) -> HostAction:
        return DeactivateFabricPartition(vm=self.vm, partition=self.partition, gpus=self.gpus)


@dataclass(frozen=True, kw_only=True)
class DeactivateFabricPartition(RemovesDevice):
    """Reset the partition's GPUs while vfio-pci still has them, and part them. Refused while anything has one of them
    open; a partition that is not the VM's is left as it is."""

    since = 7
    partition: int
    gpus: tuple[str, ...]
