# SPDX-License-Identifier: Apache-2.0
"""GPU models as a host's driver presents them, from the catalogue. One object serves all GPUs of a model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from orchestrator.catalogue.catalogue import Catalogue
from orchestrator.catalogue.geometries import find_model
from orchestrator.core.errors import InvalidInput
from orchestrator.core.snapshot import HostVgpuType

_SOME_VFS = 16
"""Virtual functions of a model whose number is not published."""
_SERIES = ("Q", "C")
"""Types for work and compute; B and A types only differ in their licence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuKind:
    """What all GPUs of one model have in common."""

    model: str
    pci_device: str
    pci_subsystem: str
    memory_mib: int
    total_vfs: int
    """0: vGPUs are mediated devices on the GPU itself."""
    types: tuple[HostVgpuType, ...]

    def type_named(self, name: str) -> HostVgpuType | None:
        return next((one for one in self.types if one.name == name), None)

    def type_of_id(self, type_id: int) -> HostVgpuType | None:
        return next((one for one in self.types if one.type_id == type_id), None)


@lru_cache(maxsize=64)
def gpu_kind(catalogue: Catalogue, name: str) -> GpuKind:
    """The model that ``name`` means, with its time-sliced types.

    :raises InvalidInput: ``fleet.no_such_gpu``
    """
    model = find_model(catalogue, name)
    if isinstance(model, str):
        raise InvalidInput("fleet.no_such_gpu", model, hint="docs/reference/offerings.md lists the models")
    rows = [
        row
        for row in catalogue.types_of_model(model)
        if row.mode == "time_sliced" and row.series in _SERIES and row.max_per_gpu
    ]
    types = tuple(
        HostVgpuType(
            name=row.name,
            type_id=row.type_id_hint or 1000 + number,
            framebuffer_mib=row.framebuffer_mib,
            max_instances=row.max_per_gpu or 1,
        )
        for number, row in enumerate(rows)
    )
    return GpuKind(
        model=model.driver_names[0] if model.driver_names else model.name,
        pci_device=model.pci_device,
        pci_subsystem=model.pci_subsystems[0] if model.pci_subsystems else "0000",
        memory_mib=(model.memory_gib or 1) * 1024,
        total_vfs=0 if model.host_vgpu_mode == "mdev" else model.sriov_total_vfs or _SOME_VFS,
        types=types,
    )
