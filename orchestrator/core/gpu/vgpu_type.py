# SPDX-License-Identifier: Apache-2.0
"""vGPU types. NVIDIA's name is the key; numeric ids change with the driver and are at best a hint."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from orchestrator.core.errors import InvalidInput

Series = Literal["A", "B", "C", "Q"]
"""A applications, B desktops, C compute, Q workstations."""
VgpuMode = Literal["time_sliced", "mig_backed"]

TYPE_NUMBER = re.compile(r"(?:nvidia-)?[0-9]+", re.ASCII | re.IGNORECASE)
"""As directories of sysfs and ``current_vgpu_type`` have it."""
_NAME = re.compile(
    r"(?P<brand>GRID|NVIDIA) (?P<board>[A-Za-z0-9]+(?:[ -][A-Za-z0-9]+)*?)"
    r"(?:-(?P<slices>[1-7]))?-(?P<gb>0|[1-9][0-9]{0,3})(?P<series>[ABCQ])(?P<suffix>ME|4)?",
    re.ASCII,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class VgpuTypeName:
    """The parts of a name: ``NVIDIA H100-1-10CME`` is brand, board, GI slices, size, series, suffix."""

    brand: Literal["GRID", "NVIDIA"]
    board: str
    gi_slices: int | None
    """Compute slices of the GPU instance behind it; None: time-sliced."""
    size_gb: int
    """Nominal framebuffer in GiB; 0 stands for 512 MiB."""
    series: Series
    suffix: Literal["", "ME", "4"] = ""
    """``ME``: GPU instance with the media engines. ``4``: a B type with four displays."""

    def __str__(self) -> str:
        slices = "" if self.gi_slices is None else f"-{self.gi_slices}"
        return f"{self.brand} {self.board}{slices}-{self.size_gb}{self.series}{self.suffix}"

    @property
    def framebuffer_mib(self) -> int:
        """Nominal size. What the driver reports may differ a little."""
        return self.size_gb * 1024 if self.size_gb else 512

    @property
    def mode(self) -> VgpuMode:
        """Names with a slice count are MIG-backed."""
        return "time_sliced" if self.gi_slices is None else "mig_backed"


def is_vgpu_type_name(text: str) -> bool:
    """Whether ``text`` has the shape of a vGPU type name."""
    return _NAME.fullmatch(text) is not None


def parse_vgpu_type_name(text: str) -> VgpuTypeName:
    """The inverse of ``str``.

    :raises InvalidInput: ``vgpu_type.name_invalid``
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise InvalidInput(
            "vgpu_type.name_invalid",
            f"{text[:80]!a} is not the name of a vGPU type",
            hint="write it as the driver does, for example 'NVIDIA L40S-12Q' or 'NVIDIA H100-1-10C'",
        )
    return VgpuTypeName(
        brand=cast('Literal["GRID", "NVIDIA"]', match["brand"]),
        board=match["board"],
        gi_slices=int(match["slices"]) if match["slices"] else None,
        size_gb=int(match["gb"]),
        series=cast("Series", match["series"]),
        suffix=cast('Literal["", "ME", "4"]', match["suffix"] or ""),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class VgpuType:
    """Facts about one vGPU type on one GPU model. Sizes are MiB; None means unknown."""

    name: str
    gpu_model: str
    series: Series | None
    """None: the name does not tell (a type newer than our facts)."""
    mode: VgpuMode
    type_id_hint: int | None
    framebuffer_mib: int
    guest_framebuffer_mib: int | None
    max_per_gpu: int | None
    """Most on one GPU when all are of one size."""
    max_per_gpu_mixed: int | None
    """Most on one GPU whose vGPUs may differ in size."""
    max_per_gi: int | None
    """MIG-backed: most in one GPU instance."""
    gi_profile: str | None
    placement_size: int | None
    """Units that it takes in mixed-size mode; a unit is 1 GB of profile size."""
    placement_region: int | None
    """Units that a GPU has in mixed-size mode."""
    placement_ids: tuple[int, ...]
    """Legal starts in mixed-size mode, in units; empty: no mixed sizes, or unknown."""
    cuda: bool | None
    multi_vgpu: bool | None
    """Whether a VM may hold several of them."""
    pci_device: str | None
    pci_subsystem: str | None
    """What the guest sees."""
    source: str
    notes: str

    @property
    def is_full_size(self) -> bool:
        """Whether one of them takes the whole GPU, time-sliced."""
        return self.mode == "time_sliced" and self.max_per_gpu == 1
