# SPDX-License-Identifier: Apache-2.0
"""The catalogue: every table read once, when first asked for, and the look-ups over them."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TypeVar

from orchestrator.catalogue.nvidia_rows import (
    DriverRow,
    FabricPartitionRow,
    GpuModelRow,
    HealthSignalRow,
    MigProfileRow,
    VgpuTypeRow,
    XidActionRow,
    to_matrix,
)
from orchestrator.catalogue.tables import profiles_directory, read_table
from orchestrator.core.drivers.matrix import DriverMatrix
from orchestrator.core.gpu.health import HealthRule, Meaning
from orchestrator.core.gpu.mig_profile import MigProfile, parse_mig_profile_name
from orchestrator.core.gpu.model import FabricPartition, GpuModel
from orchestrator.core.gpu.vgpu_type import VgpuType

T = TypeVar("T")


class Catalogue:
    """NVIDIA's facts from the tables of one directory. Reading raises ``InvalidInput`` ``catalogue.invalid``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @cached_property
    def gpu_models(self) -> tuple[GpuModel, ...]:
        """All GPU models, in the table's order."""
        return tuple(row.to_core() for row in read_table(self.directory / "gpu_models.csv", GpuModelRow))

    @cached_property
    def vgpu_types(self) -> tuple[VgpuType, ...]:
        """All vGPU types, in the table's order."""
        return tuple(row.to_core() for row in read_table(self.directory / "vgpu_types.csv", VgpuTypeRow))

    @cached_property
    def mig_profiles(self) -> tuple[MigProfile, ...]:
        """All GPU-instance profiles; a name appears once per table of boards."""
        return tuple(row.to_core() for row in read_table(self.directory / "mig_profiles.csv", MigProfileRow))

    @cached_property
    def fabric_partitions(self) -> tuple[FabricPartition, ...]:
        """Partitions of the baseboards that are known; others must be read from the host."""
        return tuple(row.to_core() for row in read_table(self.directory / "fabric_partitions.csv", FabricPartitionRow))

    @cached_property
    def driver_matrix(self) -> DriverMatrix:
        """Releases, branches, CUDA toolkits, host systems."""
        return to_matrix(read_table(self.directory / "driver_matrix.csv", DriverRow))

    @cached_property
    def health_rules(self) -> tuple[HealthRule, ...]:
        """What each signal of a GPU means: the driver's Xids, then the others."""
        xids = read_table(self.directory / "xid_actions.csv", XidActionRow)
        others = read_table(self.directory / "health_signals.csv", HealthSignalRow)
        return (*(row.to_core() for row in xids), *(row.to_core() for row in others))

    @cached_property
    def signal_meanings(self) -> dict[str, Meaning]:
        """Signal → what it concerns, and what helps."""
        return {rule.signal: rule.meaning for rule in self.health_rules}

    @cached_property
    def _models_by_name(self) -> dict[str, GpuModel]:
        return {model.name: model for model in self.gpu_models}

    @cached_property
    def _types_by_name(self) -> dict[str, VgpuType]:
        return {vgpu_type.name: vgpu_type for vgpu_type in self.vgpu_types}

    @cached_property
    def _types_by_model(self) -> dict[str, tuple[VgpuType, ...]]:
        return _grouped((vgpu_type.gpu_model, vgpu_type) for vgpu_type in self.vgpu_types)

    @cached_property
    def _profiles_by_device(self) -> dict[str, tuple[MigProfile, ...]]:
        return _grouped((device, profile) for profile in self.mig_profiles for device in profile.pci_devices)

    @cached_property
    def _profiles_by_name(self) -> dict[str, tuple[MigProfile, ...]]:
        return _grouped((profile.name, profile) for profile in self.mig_profiles)

    @cached_property
    def _models_by_device(self) -> dict[str, tuple[GpuModel, ...]]:
        return _grouped((model.pci_device, model) for model in self.gpu_models)

    @cached_property
    def _models_by_alias(self) -> dict[tuple[str, str], GpuModel]:
        return {alias: model for model in self.gpu_models for alias in model.aliases}

    def model(self, name: str) -> GpuModel | None:
        return self._models_by_name.get(name)

    def model_of_pci(self, device: str, subsystem: str, memory_mib: int = 0) -> GpuModel | None:
        """The model with these lower-case PCI ids; None when no row, or more than one, could be meant.

        Several boards share a device id (A16 and A2), so the subsystem decides where the table has it, and a row for
        another size than ``memory_mib`` (0: not told) is never meant.
        """
        here = tuple(model for model in self._models_by_device.get(device, ()) if model.may_have(memory_mib))
        exact = [model for model in here if subsystem in model.pci_subsystems]
        if exact:
            return exact[0]
        alias = self._models_by_alias.get((device, subsystem))
        if alias is not None and alias.may_have(memory_mib):
            return alias
        return here[0] if len(here) == 1 else None

    def vgpu_type(self, name: str) -> VgpuType | None:
        """The type of exactly that name."""
        return self._types_by_name.get(name)

    def types_of_model(self, model: GpuModel) -> tuple[VgpuType, ...]:
        """The types a model offers, or those of the model it is an alias of."""
        own = self._types_by_model.get(model.name, ())
        if own:
            return own
        bases = (self._models_by_alias.get((model.pci_device, subsystem)) for subsystem in model.pci_subsystems)
        base = next((b for b in bases if b is not None), None)
        return self._types_by_model.get(base.name, ()) if base is not None else ()

    def profiles_of_model(self, model: GpuModel) -> tuple[MigProfile, ...]:
        """The GPU-instance profiles of a model, of boards with its memory by the name of their largest profile.

        GB200 has two tables under one id: the driver must decide.
        """
        profiles = self._profiles_by_device.get(model.pci_device, ())
        sizes: dict[str, int] = {}
        for profile in profiles:
            size = parse_mig_profile_name(profile.name).memory_gb
            sizes[profile.board] = max(sizes.get(profile.board, 0), size)
        return tuple(profile for profile in profiles if model.may_have(sizes[profile.board] * 1024))

    def profiles_named(self, name: str) -> tuple[MigProfile, ...]:
        """All tables' entries for a GPU-instance profile name."""
        return self._profiles_by_name.get(name, ())

    def partitions_of(self, baseboard: str) -> tuple[FabricPartition, ...]:
        """Partitions of a baseboard named as GPU models name it (``HGX H100``); empty: ask the host."""
        return tuple(p for p in self.fabric_partitions if _is_board(p.baseboard, baseboard))

    @property
    def type_names(self) -> tuple[str, ...]:
        return tuple(self._types_by_name)

    @property
    def profile_names(self) -> tuple[str, ...]:
        """Names of all GPU-instance profiles, each once."""
        return tuple(self._profiles_by_name)


def _is_board(table_name: str, baseboard: str) -> bool:
    """``HGX H100/H200 8-GPU`` is the table of ``HGX H100`` and of ``HGX H200``."""
    maker, _, chips = table_name.removesuffix(" 8-GPU").partition(" ")
    return baseboard in {f"{maker} {chip}" for chip in chips.split("/")}


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, tuple[T, ...]]:
    groups: dict[str, list[T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in groups.items()}


def near_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Known names that look like ``name``, best first, without regard to case. For hints.

    Names that differ in a number only come first, the nearest number before the others: who writes ``3g.41gb``
    means ``3g.40gb``, although ``3g.71gb`` has as many letters in common.
    """
    by_folded: dict[str, str] = {}
    folded = name[:80].casefold()
    words = frozenset(_WORD.findall(folded))
    parts: list[str] = []
    for candidate in known:
        by_folded.setdefault(candidate.casefold(), candidate)
        by_folded.setdefault(candidate.rpartition(" ")[2].casefold(), candidate)
        if words and words <= frozenset(_WORD.findall(candidate.casefold())):
            parts.append(candidate)
    if parts:  # nothing is as like a name as one that holds all of it
        return tuple(dict.fromkeys(parts))[:_SHOWN]
    matches = difflib.get_close_matches(folded, list(by_folded), n=_LOOKED_AT, cutoff=0.6)
    matches.sort(key=lambda match: _number_distance(folded, match))
    return tuple(dict.fromkeys(by_folded[match] for match in matches))[:_SHOWN]


_SHOWN = 3
_LOOKED_AT = 60
"""Similar names among which those with the nearest numbers are looked for."""


def _number_distance(name: str, match: str) -> float:
    """Sum of the differences of the numbers in two names; infinite when they differ in more than numbers."""
    if _NUMBER.sub("#", name) != _NUMBER.sub("#", match):
        return math.inf
    pairs = zip(_NUMBER.findall(name), _NUMBER.findall(match), strict=True)
    return sum(abs(int(number) - int(other)) for number, other in pairs)


_NUMBER = re.compile(r"[0-9]+")
_WORD = re.compile(r"[a-z0-9.+]+")


@lru_cache(maxsize=1)
def shipped() -> Catalogue:
    """The catalogue that comes with vgpuctl. Nothing is read before it is asked for."""
    return Catalogue(profiles_directory() / "nvidia")
