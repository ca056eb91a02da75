# SPDX-License-Identifier: Apache-2.0
"""Checks the tables against themselves. What does not hold is a gap: listed, never papered over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from orchestrator.catalogue.catalogue import Catalogue
from orchestrator.catalogue.tables import TableRow, read_table
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.mig_profile import MigProfile, parse_mig_profile_name
from orchestrator.core.gpu.model import GpuModel
from orchestrator.core.gpu.vgpu_type import VgpuType, parse_vgpu_type_name


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Gap:
    """A rule that does not hold for one thing, and what was found."""

    rule: str
    subject: str
    finding: str


class KnownGapRow(TableRow):
    """known_gaps.csv: gaps that the sources leave open, each with the reason for living with it."""

    rule: str
    subject: str
    finding: str
    reason: str

    def to_gap(self) -> Gap:
        """The gap without its reason, for comparing with what the checker finds."""
        return Gap(rule=self.rule, subject=self.subject, finding=self.finding)


def known_gaps(catalogue: Catalogue) -> tuple[KnownGapRow, ...]:
    """The list that is kept beside the tables."""
    return read_table(catalogue.directory / "known_gaps.csv", KnownGapRow)


def find_gaps(catalogue: Catalogue) -> tuple[Gap, ...]:
    """Every gap in the tables, sorted."""
    return tuple(sorted({gap for check in CHECKS for gap in check(catalogue)}))


def _names_are_unique(catalogue: Catalogue) -> Iterator[Gap]:
    keys = Counter(
        [f"GPU model {model.name}" for model in catalogue.gpu_models]
        + [f"vGPU type {vgpu_type.name}" for vgpu_type in catalogue.vgpu_types]
        + [f"MIG profile {profile.name} of {profile.board}" for profile in catalogue.mig_profiles]
    )
    for key, count in keys.items():
        if count > 1:
            yield Gap(rule="name.unique", subject=key, finding=f"{count} rows")


def _type_names_round_trip(catalogue: Catalogue) -> Iterator[Gap]:
    for vgpu_type in catalogue.vgpu_types:
        try:
            name = parse_vgpu_type_name(vgpu_type.name)
        except InvalidInput as error:
            yield Gap(rule="vgpu_type.name", subject=vgpu_type.name, finding=error.message)
            continue
        if str(name) != vgpu_type.name or name.series != vgpu_type.series or name.mode != vgpu_type.mode:
            yield Gap(rule="vgpu_type.name", subject=vgpu_type.name, finding=f"reads as {name!r}")
        if name.framebuffer_mib != vgpu_type.framebuffer_mib:
            finding = f"name says {name.framebuffer_mib} MiB, table {vgpu_type.framebuffer_mib}"
            yield Gap(rule="vgpu_type.nominal_framebuffer", subject=vgpu_type.name, finding=finding)


def _framebuffer_fits(catalogue: Catalogue) -> Iterator[Gap]:
    for vgpu_type, model in _types_with_models(catalogue):
        if vgpu_type.max_per_gpu is None:
            yield Gap(rule="vgpu_type.max_unknown", subject=vgpu_type.name, finding="no maximum per GPU")
        elif model.memory_gib is not None:
            used, there = vgpu_type.framebuffer_mib * vgpu_type.max_per_gpu, model.memory_gib * 1024
            if used > there:
                finding = f"{vgpu_type.framebuffer_mib} MiB x {vgpu_type.max_per_gpu} = {used}, GPU has {there}"
                yield Gap(rule="vgpu_type.framebuffer_times_max", subject=vgpu_type.name, finding=finding)


def _placement_ids_match(catalogue: Catalogue) -> Iterator[Gap]:
    for vgpu_type in catalogue.vgpu_types:
        ids, size, region = vgpu_type.placement_ids, vgpu_type.placement_size, vgpu_type.placement_region
        if vgpu_type.max_per_gpu_mixed is not None and vgpu_type.max_per_gpu_mixed != len(ids):
            finding = f"mixed maximum {vgpu_type.max_per_gpu_mixed}, {len(ids)} placement ids"
            yield Gap(rule="vgpu_type.mixed_maximum", subject=vgpu_type.name, finding=finding)
        if bool(ids) != (size is not None and region is not None):
            yield Gap(rule="vgpu_type.placement_incomplete", subject=vgpu_type.name, finding="ids, size or region")
        if ids and size is not None and region is not None and _overlapping_or_outside(ids, size, region):
            finding = f"{size} units at {ids} of {region}"
            yield Gap(rule="vgpu_type.placement_outside", subject=vgpu_type.name, finding=finding)


def _overlapping_or_outside(starts: tuple[int, ...], size: int, total: int) -> bool:
    apart = all(abs(a - b) >= size for a, b in combinations(starts, 2))
    return not apart or any(start + size > total for start in starts)


def _mig_placements_fit(catalogue: Catalogue) -> Iterator[Gap]:
    for profile in catalogue.mig_profiles:
        subject = f"{profile.name} of {profile.board}"
        if str(parse_mig_profile_name(profile.name)) != profile.name:
            yield Gap(rule="mig_profile.name", subject=subject, finding="does not print back")
        if profile.size is None or profile.total_slots is None or not profile.starts:
            yield Gap(rule="mig_profile.placements_unknown", subject=subject, finding="ask the driver")
        elif any(start + profile.size > profile.total_slots for start in profile.starts):
            finding = f"{profile.size} slots at {profile.starts} of {profile.total_slots}"
            yield Gap(rule="mig_profile.start_outside", subject=subject, finding=finding)
        elif not _mig_maximum_holds(profile, profile.size):
            finding = f"{profile.max_instances} instances, {len(profile.starts)} starts"
            yield Gap(rule="mig_profile.maximum", subject=subject, finding=finding)


def _mig_maximum_holds(profile: MigProfile, size: int) -> bool:
    """As many fit as there are disjoint starts; profiles with media engines may be limited to one."""
    disjoint, end = 0, 0
    for start in sorted(profile.starts):
        if start >= end:
            disjoint, end = disjoint + 1, start + size
    limited = "+me" in profile.name and profile.max_instances == 1
    return limited or profile.max_instances == disjoint


def _mig_backed_types_match(catalogue: Catalogue) -> Iterator[Gap]:
    for vgpu_type, model in _types_with_models(catalogue):
        if vgpu_type.mode != "mig_backed":
            continue
        profiles = [p for p in catalogue.profiles_of_model(model) if p.name == vgpu_type.gi_profile]
        if not profiles:
            finding = f"no profile {vgpu_type.gi_profile} in the MIG table"
            yield Gap(rule="vgpu_type.gi_profile_unknown", subject=vgpu_type.name, finding=finding)
        for profile in profiles:
            if vgpu_type.max_per_gi is None:
                yield Gap(rule="vgpu_type.max_per_gi_unknown", subject=vgpu_type.name, finding="blank")
            elif vgpu_type.max_per_gpu != vgpu_type.max_per_gi * profile.max_instances:
                finding = f"{vgpu_type.max_per_gi} x {profile.max_instances} != {vgpu_type.max_per_gpu}"
                yield Gap(rule="vgpu_type.max_per_gi", subject=vgpu_type.name, finding=finding)
            if profile.backs_vgpu is False:
                finding = f"{profile.name} is said to back no vGPU"
                yield Gap(rule="vgpu_type.gi_profile_no_vgpu", subject=vgpu_type.name, finding=finding)


def _models_are_complete(catalogue: Catalogue) -> Iterator[Gap]:
    known = {model.pci_device for model in catalogue.gpu_models}
    for device in sorted({device for p in catalogue.mig_profiles for device in p.pci_devices} - known):
        yield Gap(rule="mig_profile.device_unknown", subject=device, finding="no GPU model has this device id")
    for model in catalogue.gpu_models:
        if model.memory_gib is None:
            yield Gap(rule="gpu_model.memory_unknown", subject=model.name, finding="blank")
        if model.mig_capable and not catalogue.profiles_of_model(model):
            yield Gap(rule="gpu_model.mig_profiles_missing", subject=model.name, finding="MIG-capable, no profiles")
        if model.mig_capable and len({p.board for p in catalogue.profiles_of_model(model)}) > 1:
            yield Gap(rule="gpu_model.mig_tables", subject=model.name, finding="two tables for one device id")
        if model.vgpu_capable and not catalogue.types_of_model(model):
            yield Gap(rule="gpu_model.vgpu_types_missing", subject=model.name, finding="vGPU-capable, no types")


def _pci_ids_tell_models_apart(catalogue: Catalogue) -> Iterator[Gap]:
    for model in catalogue.gpu_models:
        for subsystem in model.pci_subsystems:
            found = catalogue.model_of_pci(model.pci_device, subsystem)
            if found is not model:
                finding = f"resolves to {found.name if found else 'nothing'}"
                subject = f"{model.name} {model.pci_device}:{subsystem}"
                yield Gap(rule="gpu_model.pci_ids", subject=subject, finding=finding)


def _partitions_agree(catalogue: Catalogue) -> Iterator[Gap]:
    for a, b in combinations(catalogue.fabric_partitions, 2):
        first, second = set(a.module_ids), set(b.module_ids)
        nested = first <= second or second <= first or not first & second
        if a.baseboard == b.baseboard and not nested:
            subject = f"{a.baseboard} {a.partition_id}/{b.partition_id}"
            yield Gap(rule="fabric.nested", subject=subject, finding="partitions cross")


def _types_with_models(catalogue: Catalogue) -> Iterator[tuple[VgpuType, GpuModel]]:
    for vgpu_type in catalogue.vgpu_types:
        model = catalogue.model(vgpu_type.gpu_model)
        if model is not None:
            yield vgpu_type, model


def _types_have_models(catalogue: Catalogue) -> Iterator[Gap]:
    for vgpu_type in catalogue.vgpu_types:
        if catalogue.model(vgpu_type.gpu_model) is None:
            yield Gap(rule="vgpu_type.gpu_model", subject=vgpu_type.name, finding=f"no model {vgpu_type.gpu_model}")


CHECKS: tuple[Callable[[Catalogue], Iterator[Gap]], ...] = (
    _names_are_unique,
    _type_names_round_trip,
    _types_have_models,
    _framebuffer_fits,
    _placement_ids_match,
    _mig_placements_fit,
    _mig_backed_types_match,
    _models_are_complete,
    _pci_ids_tell_models_apart,
    _partitions_agree,
)
