# SPDX-License-Identifier: Apache-2.0
"""How an observed GPU can be cut; modes that are switched for whoever asks count, while it is empty.

What the driver says wins; the catalogue adds what drivers are not asked for: where GPU instances and mixed sizes
may lie, and the partitions of a baseboard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.catalogue.catalogue import Catalogue, shipped
from orchestrator.catalogue.geometries import mig_rows, type_rows
from orchestrator.core.byte_cache import ByteCache
from orchestrator.core.geometry.build import TypeRow, build_geometry
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.gpu.device import MAKES_VGPUS
from orchestrator.core.gpu.model import GpuModel
from orchestrator.core.gpu.vgpu_type import is_vgpu_type_name, parse_vgpu_type_name
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostVgpuType
from orchestrator.core.units import MIB

_NONE: frozenset[str] = frozenset()
_EQUAL = frozenset({"time_sliced"})
_MIXED = frozenset({"time_sliced", "mixed"})
_MIXABLE = frozenset({"time_sliced", "mixable"})
_MIG = frozenset({"mig"})
_ALL = _MIXED | _MIG
_NO_PROFILE = "unknown"
"""Of a MIG-backed type that the tables lack: it can be placed nowhere, and least of all as a time-sliced one."""


@dataclass(frozen=True, kw_only=True)
class GpuTables:
    """What one GPU could be."""

    now: Geometry
    ever: Geometry
    """Every way in which it can be cut in any mode: for what is held under a cut that its driver does not offer now."""
    partitions: tuple[tuple[int, ...], ...]
    """Module ids of its baseboard's partitions; empty: no fabric, or one that is not known."""
    on_nvswitch: bool = False
    """Whether its model sits on NVSwitch baseboards."""

    @property
    def size(self) -> int:
        """About how many bytes they take: a host's driver says how many types there are."""
        return 16384 + 2048 * (len(self.now.options) + len(self.ever.options))


Tables = Callable[[GpuSnapshot], GpuTables]


def model_name(gpu: GpuSnapshot) -> str:
    """The catalogue's, as the map, offerings and quotas have it; of one that the catalogue lacks, the driver's."""
    model = model_of(gpu)
    return gpu.model if model is None else model.name


def model_of(gpu: GpuSnapshot) -> GpuModel | None:
    """What the catalogue has of its model."""
    return _model(shipped(), gpu.model, gpu.memory_mib or 0, gpu.pci_device, gpu.pci_subsystem_device)


def tables_of(gpu: GpuSnapshot) -> GpuTables:
    """The tables of a GPU, from the shipped catalogue.

    A model that the catalogue lacks has the driver's types only. Where the driver does not tell the GPU's memory, the
    model's counts.
    """
    seen = _Seen(
        gpu.model, gpu.memory_mib or 0, gpu.pci_device, gpu.pci_subsystem_device, gpu.types,
        gpu.framework in MAKES_VGPUS, gpu.mig_enabled is True,
        gpu.backs_vgpus_with_mig, gpu.heterogeneous, gpu.mig_profiles, gpu.sriov_enabled_vfs,
    )  # fmt: skip
    known = shipped()
    kept = _KEPT.get((known, seen))
    if kept is None:
        kept = _tables(known, seen)
        _KEPT.put((known, seen), kept, kept.size)
    return kept


_KEPT: Final = ByteCache[GpuTables](64 * MIB)
"""A fleet has few kinds of GPUs, and much is asked about all of them."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What of a GPU decides how it can be cut."""

    model: str
    memory_mib: int
    device: str
    subsystem: str
    types: tuple[HostVgpuType, ...]
    offers_vgpus: bool
    mig: bool
    switches_mig: bool
    heterogeneous: bool | None
    mig_profiles: tuple[str, ...]
    functions: int


def _tables(known: Catalogue, seen: _Seen) -> GpuTables:
    model = _model(known, seen.model, seen.memory_mib, seen.device, seen.subsystem)
    rows = type_rows(known, model) if model is not None else []
    types = _types(seen.types, rows)
    types = [_among_others(row) for row in types] if seen.heterogeneous else types
    types = [replace(row, functions=seen.functions) for row in types]
    memory_mib = seen.memory_mib or ((model.memory_gib or 0) * 1024 if model is not None else 0)
    mig = mig_rows(known, model, memory_mib, seen.mig_profiles) if model is not None else []

    def cut(kinds: frozenset[str]) -> Geometry:
        name = model.name if model is not None else seen.model
        return build_geometry(name, memory_mib, types=types, mig=mig, kinds=kinds, for_vms=True)

    board = model.baseboard if model is not None else None
    partitions = tuple(p.module_ids for p in known.partitions_of(board)) if board is not None else ()
    return GpuTables(now=cut(_now(seen)), ever=cut(_ALL), partitions=partitions, on_nvswitch=board is not None)


def _model(catalogue: Catalogue, name: str, memory_mib: int, device: str, subsystem: str) -> GpuModel | None:
    model = catalogue.model_of_pci(device, subsystem, memory_mib)
    if model is not None:
        return model
    named = [m for m in catalogue.gpu_models if name in m.driver_names and m.may_have(memory_mib)]
    return named[0] if len(named) == 1 else None


def _types(listed: tuple[HostVgpuType, ...], rows: list[TypeRow]) -> list[TypeRow]:
    """Drivers list the types of both modes, or of the one that is on: those of the other mode stay known.

    Which GPU-instance profile a type needs is the tables' to say.
    """
    by_name = {listed_type.name: listed_type for listed_type in listed}
    known = {row.name: row for row in rows}
    modes = {_is_backed(name, known) for name in by_name}
    kept = [row for row in rows if row.name not in by_name and (row.gi_profile is not None) not in modes]
    for name, listed_type in by_name.items():
        row = known.get(name) or TypeRow(name=name, framebuffer_mib=0, gi_profile=_unlisted_profile(name))
        kept.append(replace(row, framebuffer_mib=listed_type.framebuffer_mib, max_per_gpu=listed_type.max_instances))
    return kept


def _among_others(row: TypeRow) -> TypeRow:
    """A GPU that mixes sizes has as many places for each as the tables say, also while it has only one of them."""
    most = min(row.max_per_gpu or 0, len(row.placement_ids))
    return replace(row, max_per_gpu=most) if most else row


def _is_backed(name: str, known: dict[str, TypeRow]) -> bool:
    row = known.get(name)
    return (_unlisted_profile(name) if row is None else row.gi_profile) is not None


def _unlisted_profile(name: str) -> str | None:
    """None: time-sliced, which is what a name that says nothing is taken for."""
    backed = is_vgpu_type_name(name) and parse_vgpu_type_name(name).mode == "mig_backed"
    return _NO_PROFILE if backed else None


def _now(seen: _Seen) -> frozenset[str]:
    """The modes of an empty GPU are switched when a vGPU is made (core/attachments), so all count."""
    if not seen.offers_vgpus or (seen.mig and not seen.switches_mig):
        return _NONE
    sliced = _MIXED if seen.heterogeneous else _EQUAL if seen.heterogeneous is None else _MIXABLE
    return sliced | _MIG if seen.switches_mig else sliced
