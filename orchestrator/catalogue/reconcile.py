# SPDX-License-Identifier: Apache-2.0
"""Puts what a host's driver says beside what the tables say. The host wins; every difference is reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.catalogue.catalogue import Catalogue
from orchestrator.core.gpu.model import GpuModel
from orchestrator.core.gpu.vgpu_type import Series, VgpuMode, VgpuType, is_vgpu_type_name, parse_vgpu_type_name
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostVgpuType

Kind = Literal[
    "gpu_unknown",
    "memory",
    "type_unknown",
    "type_of_other_model",
    "type_missing",
    "type_id",
    "framebuffer",
    "max_instances",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """One difference between a host and the tables."""

    kind: Kind
    subject: str
    """GPU address, or name of the vGPU type."""
    host: str
    catalogue: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReconciledTypes:
    """The vGPU types that a GPU really offers, in the driver's order, and where the tables differ."""

    model: GpuModel | None
    types: tuple[VgpuType, ...]
    disagreements: tuple[Disagreement, ...]


def reconcile_types(catalogue: Catalogue, observed: GpuSnapshot) -> ReconciledTypes:
    """Types of one GPU: sizes, maxima and ids from its driver, everything else from the tables.

    A GPU or type that the tables lack works from what the driver says. A driver that lists no types (vGPU
    software not loaded) is no disagreement about types.
    """
    model = catalogue.model_of_pci(observed.pci_device, observed.pci_subsystem_device, observed.memory_mib or 0)
    known = {vgpu_type.name: vgpu_type for vgpu_type in catalogue.types_of_model(model)} if model else {}
    disagreements: list[Disagreement] = [*_about_gpu(catalogue, observed, model)]
    types: list[VgpuType] = []
    for host_type in observed.types:
        entry = known.get(host_type.name)
        if entry is None:
            disagreements += _about_stranger(catalogue, host_type, observed)
            entry = catalogue.vgpu_type(host_type.name) or _from_driver_alone(host_type, observed)
        else:
            disagreements += _about_type(host_type, entry)
        types.append(_as_host_says(entry, host_type))
    offered = {host_type.name for host_type in observed.types}
    if offered and model is not None:
        disagreements += [
            Disagreement(kind="type_missing", subject=name, host="not offered", catalogue=f"a type of {model.name}")
            for name in known
            if name not in offered
        ]
    return ReconciledTypes(model=model, types=tuple(types), disagreements=tuple(disagreements))


def _about_gpu(catalogue: Catalogue, observed: GpuSnapshot, model: GpuModel | None) -> Iterator[Disagreement]:
    if model is not None:
        return
    other_size = catalogue.model_of_pci(observed.pci_device, observed.pci_subsystem_device)
    if other_size is not None and other_size.memory_gib is not None:
        host, table = f"{observed.memory_mib} MiB", f"{other_size.memory_gib * 1024} MiB ({other_size.name})"
        yield Disagreement(kind="memory", subject=observed.address, host=host, catalogue=table)
        return
    host = f"{observed.model} ({observed.pci_device}:{observed.pci_subsystem_device})"
    yield Disagreement(kind="gpu_unknown", subject=observed.address, host=host, catalogue="no such GPU")


def _about_stranger(catalogue: Catalogue, host_type: HostVgpuType, observed: GpuSnapshot) -> Iterator[Disagreement]:
    elsewhere = catalogue.vgpu_type(host_type.name)
    host = f"offered by {observed.model}"
    if elsewhere is None:
        yield Disagreement(kind="type_unknown", subject=host_type.name, host=host, catalogue="no such type")
    else:
        catalogue_says = f"a type of {elsewhere.gpu_model}"
        yield Disagreement(kind="type_of_other_model", subject=host_type.name, host=host, catalogue=catalogue_says)


def _about_type(host_type: HostVgpuType, entry: VgpuType) -> Iterator[Disagreement]:
    pairs: tuple[tuple[Kind, int, int | None], ...] = (
        ("type_id", host_type.type_id, entry.type_id_hint),
        ("framebuffer", host_type.framebuffer_mib, entry.framebuffer_mib),
        ("max_instances", host_type.max_instances, entry.max_per_gpu),
    )
    for kind, host, table in pairs:
        if table is not None and host != table:
            yield Disagreement(kind=kind, subject=entry.name, host=str(host), catalogue=str(table))


def _as_host_says(entry: VgpuType, host_type: HostVgpuType) -> VgpuType:
    """The entry with the host's numbers. Placement ids computed for another size or maximum are dropped."""
    same = (entry.framebuffer_mib, entry.max_per_gpu) == (host_type.framebuffer_mib, host_type.max_instances)
    return replace(
        entry,
        type_id_hint=host_type.type_id,
        framebuffer_mib=host_type.framebuffer_mib,
        max_per_gpu=host_type.max_instances,
        max_per_gpu_mixed=entry.max_per_gpu_mixed if same else None,
        placement_size=entry.placement_size if same else None,
        placement_region=entry.placement_region if same else None,
        placement_ids=entry.placement_ids if same else (),
    )


def _from_driver_alone(host_type: HostVgpuType, observed: GpuSnapshot) -> VgpuType:
    series: Series | None = None
    mode: VgpuMode = "time_sliced"
    if is_vgpu_type_name(host_type.name):
        name = parse_vgpu_type_name(host_type.name)
        series, mode = name.series, name.mode
    return VgpuType(
        name=host_type.name,
        gpu_model=observed.model,
        series=series,
        mode=mode,
        type_id_hint=host_type.type_id,
        framebuffer_mib=host_type.framebuffer_mib,
        guest_framebuffer_mib=None,
        max_per_gpu=host_type.max_instances,
        max_per_gpu_mixed=None,
        max_per_gi=None,
        gi_profile=None,
        placement_size=None,
        placement_region=None,
        placement_ids=(),
        cuda=None,
        multi_vgpu=None,
        pci_device=None,
        pci_subsystem=None,
        source="driver of the host",
        notes="",
    )
