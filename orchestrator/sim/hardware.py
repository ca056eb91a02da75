# SPDX-License-Identifier: Apache-2.0
"""GPU models as a host's driver presents them, from the catalogue. One object serves all GPUs of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from orchestrator.catalogue.catalogue import Catalogue
from orchestrator.catalogue.geometries import find_model, mig_rows
from orchestrator.core.errors import InvalidInput
from orchestrator.core.geometry.build import MigRow
from orchestrator.core.hosts.snapshot import HostVgpuType

_LEAST_VFS = 16
"""Virtual functions of a model whose number is not published, where its smallest type needs no more of them."""
_POWER_WATTS = 350
"""The limit of power of a card; one with much memory takes twice as much. About what data sheets say."""
_LARGE_GIB = 80
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
    mediated: bool = False
    """Those on virtual functions are mediated devices, as older kernels have them."""
    types: tuple[HostVgpuType, ...]
    """Of both modes."""
    profiles: tuple[MigRow, ...] = ()
    """Of GPU instances; empty: no MIG."""
    backed: tuple[tuple[str, str, int], ...] = ()
    """(MIG-backed type, profile of its GPU instance, how many of them an instance takes)"""
    places: tuple[tuple[str, tuple[int, ...], int], ...] = ()
    """(type, where it may begin among other sizes, its size)"""
    power_max_watts: int = _POWER_WATTS
    keeps_mig: bool = True
    """Whether the MIG mode outlives a reboot: it does on Ampere, where it takes a reset."""

    @property
    def power_min_watts(self) -> int:
        """The lowest limit of power that its driver takes: the share that it is of an H100 SXM (200 of 700 W)."""
        return self.power_max_watts * 2 // 7

    def profile_of(self, type_name: str) -> str | None:
        """None: time-sliced."""
        return next((profile for name, profile, _ in self.backed if name == type_name), None)

    def per_instance(self, type_name: str) -> int:
        """Of a MIG-backed type."""
        return next(most for name, _, most in self.backed if name == type_name)

    def shares(self, profile: str) -> bool:
        """Whether several vGPUs may lie in one instance of it."""
        return any(most > 1 for _, name, most in self.backed if name == profile)

    def places_of(self, type_name: str) -> Iterator[range]:
        """Where it may lie among other sizes."""
        for name, starts, size in self.places:
            if name == type_name:
                yield from (range(start, start + size) for start in starts)

    def type_named(self, name: str) -> HostVgpuType | None:
        return next((vgpu_type for vgpu_type in self.types if vgpu_type.name == name), None)

    def type_of_id(self, type_id: int) -> HostVgpuType | None:
        return next((vgpu_type for vgpu_type in self.types if vgpu_type.type_id == type_id), None)


@lru_cache(maxsize=64)
def gpu_kind(catalogue: Catalogue, name: str) -> GpuKind:
    """The model that ``name`` means, with its time-sliced types and those that lie in GPU instances of known places.

    :raises InvalidInput: ``fleet.no_such_gpu``
    """
    model = find_model(catalogue, name)
    if isinstance(model, str):
        raise InvalidInput("fleet.no_such_gpu", model, hint="docs/reference/offerings.md lists the models")
    profiles = tuple(mig_rows(catalogue, model, (model.memory_gib or 1) * 1024))
    instances = {one.name for one in profiles}
    rows = [
        row
        for row in catalogue.types_of_model(model)
        if row.series in _SERIES and row.max_per_gpu and (row.gi_profile is None or row.gi_profile in instances)
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
    most = max((vgpu_type.max_instances for vgpu_type in types), default=0)
    return GpuKind(
        model=model.driver_names[0] if model.driver_names else model.name,
        pci_device=model.pci_device,
        pci_subsystem=model.pci_subsystems[0] if model.pci_subsystems else "0000",
        memory_mib=(model.memory_gib or 1) * 1024,
        total_vfs=0 if model.has_no_functions else model.sriov_total_vfs or max(_LEAST_VFS, most),
        types=types,
        profiles=profiles,
        backed=tuple((row.name, row.gi_profile, row.max_per_gi or 1) for row in rows if row.gi_profile is not None),
        places=tuple((row.name, row.placement_ids, row.placement_size) for row in rows if row.placement_size),
        power_max_watts=2 * _POWER_WATTS if (model.memory_gib or 0) >= _LARGE_GIB else _POWER_WATTS,
        keeps_mig=model.architecture == "ampere",
    )
