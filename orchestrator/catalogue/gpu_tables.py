# SPDX-License-Identifier: Apache-2.0
"""How an observed GPU can be cut now, and in the other modes it could be switched to while it is empty.

What the driver says wins; the catalogue adds what drivers are not asked for: where GPU instances and mixed sizes
may lie, and the partitions of a baseboard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.catalogue.catalogue import Catalogue, shipped
from orchestrator.catalogue.geometries import mig_rows, type_rows
from orchestrator.core.geometry.build import MigRow, TypeRow, build_geometry
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.gpu_model import GpuModel
from orchestrator.core.snapshot import GpuSnapshot

_NONE: frozenset[str] = frozenset()
_EQUAL = frozenset({"time_sliced"})
_MIXED = frozenset({"time_sliced", "mixed"})
_MIG = frozenset({"mig"})


@dataclass(frozen=True, kw_only=True)
class GpuTables:
    """What one GPU could be."""

    now: Geometry
    others: tuple[tuple[str, Geometry], ...]
    """(words for people, geometry) of each mode that it may be switched to."""
    partitions: tuple[tuple[int, ...], ...]
    """Module ids of its baseboard's partitions; empty: no fabric, or one that is not known."""


Tables = Callable[[GpuSnapshot], GpuTables]


def tables_of(gpu: GpuSnapshot, catalogue: Catalogue | None = None) -> GpuTables:
    """The tables of a GPU, from the shipped catalogue unless another is given.

    A model that the catalogue lacks has the driver's types only.
    """
    known = catalogue or shipped()
    model = _model(known, gpu)
    types = _types(gpu, type_rows(known, model) if model is not None else [])
    mig = mig_rows(known, model) if model is not None else []

    def cut(kinds: frozenset[str]) -> Geometry:
        name = model.name if model is not None else gpu.model
        return build_geometry(name, gpu.memory_mib, types=types, mig=mig, kinds=kinds)

    board = model.baseboard if model is not None else None
    partitions = tuple(p.module_ids for p in known.partitions_of(board)) if board is not None else ()
    others = tuple((words, cut(kinds)) for words, kinds in _others(gpu, types, mig))
    return GpuTables(now=cut(_now(gpu)), others=others, partitions=partitions)


def _model(catalogue: Catalogue, gpu: GpuSnapshot) -> GpuModel | None:
    found = catalogue.model_of_pci(gpu.pci_device, gpu.pci_subsystem_device)
    if found is not None:
        return found
    named = [model for model in catalogue.gpu_models if gpu.model in model.driver_names]
    return named[0] if len(named) == 1 else None


def _types(gpu: GpuSnapshot, rows: list[TypeRow]) -> list[TypeRow]:
    """In MIG mode drivers list MIG-backed types and otherwise time-sliced ones: those of the other mode stay known."""
    listed = {one.name: one for one in gpu.types}
    backed = gpu.mig_enabled is True
    kept = [row for row in rows if not listed or (row.gi_profile is not None) != backed]
    known = {row.name: row for row in rows}
    for one in listed.values():
        row = known.get(one.name, TypeRow(name=one.name, framebuffer_mib=one.framebuffer_mib))
        kept.append(replace(row, framebuffer_mib=one.framebuffer_mib, max_per_gpu=one.max_instances))
    return kept


def _now(gpu: GpuSnapshot) -> frozenset[str]:
    if gpu.mig_enabled:
        return _MIG
    if gpu.framework == "none":
        return _NONE
    return _MIXED if gpu.heterogeneous else _EQUAL


def _others(gpu: GpuSnapshot, types: list[TypeRow], mig: list[MigRow]) -> list[tuple[str, frozenset[str]]]:
    if gpu.mig_enabled:
        return [("MIG off", _EQUAL)]
    found: list[tuple[str, frozenset[str]]] = []
    if gpu.heterogeneous is False and gpu.framework != "none" and any(row.placement_ids for row in types):
        found.append(("mixed sizes on", _MIXED))
    if gpu.mig_enabled is False and mig:
        found.append(("MIG on", _MIG))
    return found
