# SPDX-License-Identifier: Apache-2.0
"""What is known of a GPU model before any driver is asked. None means unknown, never a default."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from orchestrator.core.errors import NotFound
from orchestrator.core.names import closest

Architecture = Literal[
    "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"
]  # fmt: skip
_SHORTFALL, _EXCESS = 8, 32
"""Memory reported by a driver may be an eighth below the nominal size (ECC, reservations), hardly above."""
HostVgpuMode = Literal["sriov", "non_sriov"]
"""As NVML has it. ``sriov``: vGPUs sit on virtual functions; ``non_sriov``: on the GPU itself (Turing and before)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuModel:
    """One GPU as a board carries it. PCI ids are four lower-case hex digits; NVIDIA's vendor id is 10de."""

    name: str
    architecture: Architecture
    pci_device: str
    pci_subsystems: tuple[str, ...]
    """Subsystem device ids of this model; empty: not known, or the device id alone tells."""
    aliases: tuple[tuple[str, str], ...]
    """(device, subsystem) pairs of other boards that carry this model's vGPU types."""
    driver_names: tuple[str, ...]
    """What the driver may call it (``NVIDIA A100-SXM4-80GB``)."""
    memory_gib: int | None
    gpus_per_board: int
    mig_capable: bool
    vgpu_capable: bool | None
    host_vgpu_mode: HostVgpuMode | None
    sriov_total_vfs: int | None
    baseboard: str | None
    """NVSwitch baseboard it sits on (``HGX H100``): whole GPUs then come in fabric partitions."""
    nvlink: bool
    """Whether NVLink may join it to others."""
    ecc: bool | None
    fractional_multi_vgpu: bool | None
    """Whether a VM may hold several vGPUs that are smaller than the GPU."""
    source: str
    notes: str

    @property
    def has_no_functions(self) -> bool:
        """Its vGPUs sit on the GPU itself."""
        return self.host_vgpu_mode == "non_sriov"

    @property
    def named_by_id(self) -> bool:
        """Of which no more is known than its device id: ``A100 40GB (20B1)``. A part of the name never means it."""
        return self.name.endswith(f"({self.pci_device.upper()})")

    def may_have(self, memory_mib: int) -> bool:
        """Whether a card with so much memory may be of this model; where either is not known (0: not told), it may.

        Boards of one device id come in several sizes, and what fits one is wrong for the other.
        """
        nominal = (self.memory_gib or 0) * 1024
        if not nominal or not memory_mib:
            return True
        return nominal - nominal // _SHORTFALL <= memory_mib <= nominal + nominal // _EXCESS


@dataclass(frozen=True, kw_only=True, slots=True)
class FabricPartition:
    """A set of GPUs of one baseboard that NVSwitch can join. Module ids are not in PCI order."""

    baseboard: str
    partition_id: int
    module_ids: tuple[int, ...]
    nvlinks_per_gpu: int
    source: str
    notes: str


def models_meant(wanted: str | None, models: Iterable[str]) -> frozenset[str]:
    """Of ``models``, those of all GPUs there are: the one of that name, as ``A10`` is not ``A100``, else those with it
    in their name, in any case. None is wanted: all.

    :raises NotFound: ``gpu.model_unknown``: there are GPUs, and no such ones"""
    known = frozenset(models)
    if wanted is None:
        return known
    text = wanted.casefold()
    named = frozenset(model for model in known if model.casefold() == text)
    meant = named or frozenset(model for model in known if text in model.casefold())
    if known and not meant:
        alike = closest(wanted, sorted(known))
        hint = f"did you mean {', '.join(alike)}?" if alike else f"there are {', '.join(sorted(known))[:300]}"
        raise NotFound("gpu.model_unknown", f"no GPU here is of model {ascii(wanted)[:60]}", hint=hint)
    return meant
