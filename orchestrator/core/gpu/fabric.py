# SPDX-License-Identifier: Apache-2.0
"""NVSwitch baseboards: a tenant's GPUs must be one of the sets that the fabric manager can join, a partition.

Partitions name GPUs by module id, which NVML tells and which does not follow the order of PCI addresses
(nvml.h, nvmlDeviceGetModuleId; nv_fm_types.h, fmFabricPartitionGpuInfo_t.physicalId).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

FabricState = Literal["not_started", "in_progress", "completed", "failed"]
"""How far a GPU is in joining its fabric; ``failed``: that has ended, in an error."""


@dataclass(frozen=True, kw_only=True)
class GpuFabric:
    """How a GPU is joined to others over NVLink, as its driver says (nvml.h, nvmlGpuFabricInfoV_t)."""

    state: FabricState
    """How far it is in joining its fabric: not_started, in_progress, completed, or failed: it ended in an error."""
    cluster: str | None
    """UUID of what its NVLink domain is in; None: the driver tells none, as on a single baseboard."""
    clique: int
    """Those GPUs of the cluster reach each other that have the same."""


@dataclass(frozen=True)
class FabricPlace:
    """The partition that a VM's whole GPUs are."""

    partition: int
    modules: tuple[int, ...]
    """Module ids of ``gpus``, in their order."""
    gpus: tuple[str, ...]
    """PCI addresses."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> FabricPlace:
        """What ``dataclasses.asdict`` made of one, which JSON may have held."""
        return cls(fields["partition"], tuple(fields["modules"]), tuple(fields["gpus"]))


@dataclass(frozen=True, kw_only=True)
class ObservedPartition:
    """One that the host's fabric manager offers. ``owner``: VM id from the agent's ledger; None: not by us."""

    id: int
    modules: tuple[int, ...]
    active: bool
    owner: str | None = None


@dataclass(frozen=True, kw_only=True)
class FabricSnapshot:
    """What a host's fabric manager said."""

    version: str | None
    """Of the fabric manager; None: it could not be asked."""
    partitions: tuple[ObservedPartition, ...] = ()
    problem: str | None = None
    """Why no partition can be activated there now."""

    def made_of(self, modules: Iterable[int]) -> ObservedPartition | None:
        """The partition of exactly these GPUs."""
        wanted = set(modules)
        return next((partition for partition in self.partitions if set(partition.modules) == wanted), None)

    def partition(self, number: int) -> ObservedPartition | None:
        return next((partition for partition in self.partitions if partition.id == number), None)


def nvlink_domain(machine_id: str, gpus: Iterable[GpuFabric | None]) -> str | None:
    """What names the GPUs that can reach each other: CLUSTER.CLIQUE, as NVIDIA's node label ``nvidia.com/gpu.clique``
    has it. A baseboard whose driver tells no cluster is a domain of its own, and its machine names it. ``gpus``: of a
    host with a fabric. None: they are in several."""
    names = {f"{gpu.cluster}.{gpu.clique}" for gpu in gpus if gpu is not None and gpu.cluster is not None}
    return (next(iter(names)) if names else machine_id) if len(names) <= 1 else None
