# SPDX-License-Identifier: Apache-2.0
"""The rows of vgpu_profiles/nvidia/*.csv and how each becomes a model of the core."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, StringConstraints

from orchestrator.catalogue.tables import TableRow
from orchestrator.core.drivers.matrix import CudaToolkit, DriverBranch, DriverMatrix, HostSystem, VgpuRelease
from orchestrator.core.gpu.health import HealthRule, Maturity, Meaning, Remedy, Scope
from orchestrator.core.gpu.mig_profile import CiProfile, MigProfile, parse_placements
from orchestrator.core.gpu.model import Architecture, FabricPartition, GpuModel, HostVgpuMode
from orchestrator.core.gpu.vgpu_type import Series, VgpuType

Hex = Annotated[str, StringConstraints(pattern=r"^(?:0x)?[0-9A-F]{4}$")]
HexList = Annotated[str, StringConstraints(pattern=r"^[0-9A-F]{4}(?:[ ,][0-9A-F]{4})*$")]
AliasList = Annotated[str, StringConstraints(pattern=r"^[0-9A-F]{4}:[0-9A-F]{4}(?: [0-9A-F]{4}:[0-9A-F]{4})*$")]
IntList = Annotated[str, StringConstraints(pattern=r"^[0-9]+(?: [0-9]+)*$")]
NvmlEnum = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]+\(0x[0-9A-F]+\)$")]
CiList = Annotated[str, StringConstraints(pattern=r"^[0-9a-z.]+(?: x[0-9]+)?(?:; [0-9a-z.]+(?: x[0-9]+)?)*$")]
Placements = Annotated[str, StringConstraints(pattern=r"^\{[0-9]+(?:,[0-9]+)*\}:[1-9][0-9]*$")]


def _pci_id(text: str) -> str:
    return text.removeprefix("0x").lower()


def _ints(text: str | None) -> tuple[int, ...]:
    return tuple(map(int, text.split())) if text else ()


class GpuModelRow(TableRow):
    """gpu_models.csv"""

    gpu_model: str
    arch: Architecture
    pci_vendor_id: Literal["10DE"]
    pci_device_id: Hex
    pci_subsystem_ids: HexList | None = None
    vgpu_alias_subsystems: AliasList | None = None
    driver_marketing_names: str | None = None
    memory_gib: PositiveInt | None = None
    gpus_per_board: PositiveInt
    mig_capable: bool
    vgpu_capable: bool | None = None
    host_vgpu_mode: HostVgpuMode | None = None
    sriov_total_vfs: PositiveInt | None = None
    nvlink_p2p_vgpu_full: bool | None = None
    nvswitch_baseboard: str | None = None
    ecc: bool | None = None
    power_limit_max_w: PositiveInt | None = None
    fractional_multi_vgpu: bool | None = None
    source: str
    notes: str = ""

    def to_core(self) -> GpuModel:
        aliases = (pair.lower().split(":") for pair in (self.vgpu_alias_subsystems or "").split())
        return GpuModel(
            name=self.gpu_model,
            architecture=self.arch,
            pci_device=_pci_id(self.pci_device_id),
            pci_subsystems=tuple((self.pci_subsystem_ids or "").lower().split()),
            aliases=tuple((device, subsystem) for device, subsystem in aliases),
            driver_names=tuple(n.strip() for n in (self.driver_marketing_names or "").split(";") if n.strip()),
            memory_gib=self.memory_gib,
            gpus_per_board=self.gpus_per_board,
            mig_capable=self.mig_capable,
            vgpu_capable=self.vgpu_capable,
            host_vgpu_mode=self.host_vgpu_mode,
            sriov_total_vfs=self.sriov_total_vfs,
            baseboard=self.nvswitch_baseboard,
            nvlink=self.nvlink_p2p_vgpu_full is True or self.nvswitch_baseboard is not None or "SXM" in self.gpu_model,
            ecc=self.ecc,
            fractional_multi_vgpu=self.fractional_multi_vgpu,
            source=self.source,
            notes=self.notes,
        )


class VgpuTypeRow(TableRow):
    """vgpu_types.csv. ``type_id_inferred`` is read and dropped: it was computed, not seen."""

    gpu_model: str
    arch: Architecture
    pf_pci_device_id: Hex
    pf_pci_subsystem_id: Hex | None = None
    type_name: str
    series: Series
    mode: Literal["time-sliced", "mig-backed"]
    type_id: PositiveInt | None = None
    type_id_inferred: PositiveInt | None = None
    type_id_inference_basis: str | None = None
    framebuffer_mib: PositiveInt
    guest_fb_mib: PositiveInt | None = None
    max_per_gpu_equal: PositiveInt | None = None
    max_per_gpu_mixed: PositiveInt | None = None
    max_per_gi: PositiveInt | None = None
    gi_profile: str | None = None
    gi_slices: PositiveInt | None = None
    compute_instances: PositiveInt | None = None
    placement_size_gb: PositiveInt | None = None
    placement_region_gb: PositiveInt | None = None
    placement_ids_mixed: IntList | None = None
    num_heads: PositiveInt | None = None
    max_resolution: str | None = None
    max_pixels: PositiveInt | None = None
    frl_fps: PositiveInt | None = None
    cuda_enabled: bool | None = None
    multi_vgpu: bool | None = None
    license: str | None = None
    bar1_mib: PositiveInt | None = None
    fb_reservation_mib: NonNegativeInt | None = None
    gsp_heap_mib: PositiveInt | None = None
    vgpu_pci_device_id: Hex | None = None
    vgpu_pci_subsystem_id: Hex | None = None
    gpus_per_board: PositiveInt
    source: str
    notes: str = ""

    def to_core(self) -> VgpuType:
        return VgpuType(
            name=self.type_name,
            gpu_model=self.gpu_model,
            series=self.series,
            mode="time_sliced" if self.mode == "time-sliced" else "mig_backed",
            type_id_hint=self.type_id,
            framebuffer_mib=self.framebuffer_mib,
            guest_framebuffer_mib=self.guest_fb_mib,
            max_per_gpu=self.max_per_gpu_equal,
            max_per_gpu_mixed=self.max_per_gpu_mixed,
            max_per_gi=self.max_per_gi,
            gi_profile=self.gi_profile,
            placement_size=self.placement_size_gb,
            placement_region=self.placement_region_gb,
            placement_ids=_ints(self.placement_ids_mixed),
            cuda=self.cuda_enabled,
            multi_vgpu=self.multi_vgpu,
            pci_device=_pci_id(self.vgpu_pci_device_id) if self.vgpu_pci_device_id else None,
            pci_subsystem=_pci_id(self.vgpu_pci_subsystem_id) if self.vgpu_pci_subsystem_id else None,
            source=self.source,
            notes=self.notes,
        )


class MigProfileRow(TableRow):
    """mig_profiles.csv"""

    gpu_model: str
    pf_pci_device_ids: HexList
    gi_profile: str
    profile_id: NonNegativeInt | None = None
    nvml_profile_enum: NvmlEnum
    compute_slices: PositiveInt
    memory_slices: PositiveInt | None = None
    total_memory_slices: PositiveInt | None = None
    memory_gib: float | None = Field(default=None, gt=0)
    memory_mib: PositiveInt | None = None
    sm_count: PositiveInt | None = None
    copy_engines: NonNegativeInt | None = None
    nvdec: NonNegativeInt | None = None
    nvenc: NonNegativeInt | None = None
    jpeg: NonNegativeInt | None = None
    ofa: NonNegativeInt | None = None
    placements: Placements | None = None
    max_instances: PositiveInt
    variant: Literal["+me", "+me.all", "-me", "+gfx", "double-memory"] | None = None
    compute_instance_profiles: CiList | None = None
    vgpu_capable: bool | None = None
    confidence: str
    source: str
    notes: str = ""

    def to_core(self) -> MigProfile:
        """The row as the core knows it. The placements' size is kept apart for the consistency check."""
        starts = parse_placements(self.placements)[0] if self.placements else ()
        memory = self.memory_mib or (round(self.memory_gib * 1024) if self.memory_gib else None)
        return MigProfile(
            name=self.gi_profile,
            board=self.gpu_model,
            pci_devices=tuple(self.pf_pci_device_ids.lower().split(",")),
            profile_id=self.profile_id,
            compute_slices=self.compute_slices,
            size=self.memory_slices,
            total_slots=self.total_memory_slices,
            starts=starts,
            max_instances=self.max_instances,
            memory_mib=memory,
            sm_count=self.sm_count,
            copy_engines=self.copy_engines,
            decoders=self.nvdec,
            encoders=self.nvenc,
            jpeg_engines=self.jpeg,
            optical_flow_engines=self.ofa,
            compute_instances=_compute_instances(self.compute_instance_profiles),
            backs_vgpu=self.vgpu_capable,
            confidence=self.confidence,
            source=self.source,
            notes=self.notes,
        )


def _compute_instances(text: str | None) -> tuple[CiProfile, ...]:
    """``1c.2g x2; 2g x1``; without a count, one."""
    parts = (part.partition(" x") for part in text.split("; ")) if text else ()
    return tuple(CiProfile(name=name, max_instances=int(count or 1)) for name, _, count in parts)


class FabricPartitionRow(TableRow):
    """fabric_partitions.csv"""

    baseboard: str
    partition_id: NonNegativeInt
    num_gpus: PositiveInt
    gpu_module_ids: IntList
    nvlinks_per_gpu: NonNegativeInt
    confidence: str
    source: str
    notes: str = ""

    def to_core(self) -> FabricPartition:
        return FabricPartition(
            baseboard=self.baseboard,
            partition_id=self.partition_id,
            module_ids=_ints(self.gpu_module_ids),
            nvlinks_per_gpu=self.nvlinks_per_gpu,
            source=self.source,
            notes=self.notes,
        )


class XidActionRow(TableRow):
    """xid_actions.csv"""

    xid: PositiveInt
    name: str
    nvsentinel_action: str | None = None
    nvsentinel_severity: Literal["FATAL", "NONFATAL"] | None = None
    quarantine_suggestion: Literal["yes", "no", "read nvmlDeviceGetGpuRecoveryAction"] | None = None
    scope: Scope
    action: Remedy
    maturity: Maturity
    source: str
    notes: str = ""

    def to_core(self) -> HealthRule:
        meaning = Meaning(self.scope, self.action)
        return HealthRule(f"xid-{self.xid}", meaning, self.maturity, self.source, self.name)


class HealthSignalRow(TableRow):
    """health_signals.csv"""

    signal: str
    scope: Scope
    action: Remedy
    maturity: Maturity
    source: str
    notes: str = ""

    def to_core(self) -> HealthRule:
        return HealthRule(self.signal, Meaning(self.scope, self.action), self.maturity, self.source, self.notes)


_LEADING_NUMBER = re.compile(r"[^0-9]*([0-9]+)", re.ASCII)


class DriverRow(TableRow):
    """One row; which fields are filled depends on ``kind``."""

    kind: Literal["vgpu_release", "datacenter_branch", "cuda_toolkit", "cuda_minor_compat", "host_os"]
    name: str
    driver_branch: str | None = None
    host_driver_linux_kvm: str | None = None
    guest_driver_linux: str | None = None
    guest_driver_windows: str | None = None
    release_date: str | None = None
    support_class: str | None = None
    end_of_support: str | None = None
    supported_guest_releases: str | None = None
    cuda_max: str | None = None
    cuda_minor_compat_range: str | None = None
    host_os: str | None = None
    kernel: str | None = None
    vfio_framework: str | None = None
    notes: str = ""
    source: str
    cuda_packaged_driver_linux: str | None = None


def to_matrix(rows: Iterable[DriverRow]) -> DriverMatrix:
    """All rows as the core knows them."""
    by_kind: dict[str, list[DriverRow]] = {}
    for row in rows:
        by_kind.setdefault(row.kind, []).append(row)
    return DriverMatrix(
        releases=tuple(_release(row) for row in by_kind.get("vgpu_release", [])),
        branches=tuple(_branch(row) for row in by_kind.get("datacenter_branch", [])),
        toolkits=tuple(
            CudaToolkit(name=row.name, packaged_driver=row.cuda_packaged_driver_linux, source=row.source)
            for row in by_kind.get("cuda_toolkit", [])
        ),
        cuda_min_branch=tuple(
            (_number(row.name), _number(row.cuda_minor_compat_range or ""))
            for row in by_kind.get("cuda_minor_compat", [])
        ),
        host_systems=tuple(_host_system(row) for row in by_kind.get("host_os", [])),
    )


def _release(row: DriverRow) -> VgpuRelease:
    guests = row.supported_guest_releases or ""
    return VgpuRelease(
        name=row.name,
        branch=row.driver_branch or "",
        host_driver=row.host_driver_linux_kvm,
        guest_driver_linux=row.guest_driver_linux,
        guest_driver_windows=row.guest_driver_windows,
        release_date=row.release_date,
        end_of_support=row.end_of_support,
        long_term=row.support_class == "LTS",
        guest_releases=tuple(name.strip() for name in guests.split(",") if name.strip()),
        source=row.source,
        notes=row.notes,
    )


def _branch(row: DriverRow) -> DriverBranch:
    return DriverBranch(
        name=row.name,
        support_class=row.support_class,
        end_of_support=row.end_of_support,
        cuda_max=row.cuda_max,
        source=row.source,
    )


def _host_system(row: DriverRow) -> HostSystem:
    return HostSystem(
        name=row.name, kernel=row.kernel, framework=row.vfio_framework, source=row.source, notes=row.notes
    )


def _number(text: str) -> int:
    """13 for ``13.x``, 580 for ``>=580``; 0 when there is none."""
    match = _LEADING_NUMBER.match(text)
    return int(match[1]) if match else 0
