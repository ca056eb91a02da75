# SPDX-License-Identifier: Apache-2.0
"""MIG: GPU-instance profiles, their names and where on a GPU they may start."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from orchestrator.core.errors import InvalidInput

MigAttribute = Literal["", "+me", "+me.all", "-me", "+gfx"]
"""``+me`` with media engines, ``+me.all`` with all of the GPU's, ``-me`` with none, ``+gfx`` graphics."""

_NAME = re.compile(
    r"(?:(?P<ci>[1-7])c\.)?(?P<gi>[1-7])g\.(?P<gb>[1-9][0-9]{0,3})gb(?P<attribute>\+me\.all|\+me|-me|\+gfx)?",
    re.ASCII,
)
_PLACEMENTS = re.compile(r"\{(?P<starts>[0-9]+(?:,[0-9]+)*)\}:(?P<size>[1-9][0-9]*)", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class MigProfileName:
    """The parts of ``1c.3g.20gb+me``: compute instance, GPU instance, nominal memory, attribute."""

    compute_slices: int
    memory_gb: int
    attribute: MigAttribute = ""
    ci_slices: int | None = None
    """Compute slices of a compute instance inside; None: the whole GPU instance."""

    def __str__(self) -> str:
        ci = "" if self.ci_slices is None else f"{self.ci_slices}c."
        return f"{ci}{self.compute_slices}g.{self.memory_gb}gb{self.attribute}"


def is_mig_profile_name(text: str) -> bool:
    """Whether ``text`` has the shape of a MIG profile name."""
    return _NAME.fullmatch(text) is not None


def parse_mig_profile_name(text: str) -> MigProfileName:
    """The inverse of ``str``.

    :raises InvalidInput: ``mig_profile.name_invalid``
    """
    match = _NAME.fullmatch(text)
    if match is None or int(match["ci"] or 0) > int(match["gi"]):
        raise InvalidInput(
            "mig_profile.name_invalid",
            f"{text[:80]!a} is not the name of a MIG profile",
            hint="write it as nvidia-smi does, for example 1g.10gb, 2g.20gb or 1g.10gb+me",
        )
    return MigProfileName(
        compute_slices=int(match["gi"]),
        memory_gb=int(match["gb"]),
        attribute=cast("MigAttribute", match["attribute"] or ""),
        ci_slices=int(match["ci"]) if match["ci"] else None,
    )


def parse_placements(text: str) -> tuple[tuple[int, ...], int]:
    """``{0,2,4}:2`` as ((0, 2, 4), 2): legal starts and size, in memory slots; as ``mig -lgipp`` prints.

    :raises InvalidInput: ``mig_profile.placements_invalid``
    """
    match = _PLACEMENTS.fullmatch(text)
    if match is None:
        raise InvalidInput(
            "mig_profile.placements_invalid",
            f"{text[:80]!a} is not a list of placements",
            hint="write starts and size like {0,2,4}:2",
        )
    return tuple(int(start) for start in match["starts"].split(",")), int(match["size"])


@dataclass(frozen=True, kw_only=True, slots=True)
class CiProfile:
    """A compute instance that fits in the GPU instance: ``1c.2g``, two of them."""

    name: str
    max_instances: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MigProfile:
    """Facts about one GPU-instance profile on the GPUs that share a table. None means unknown."""

    name: str
    board: str
    """What the table is called; join by ``pci_devices``, not by this."""
    pci_devices: tuple[str, ...]
    profile_id: int | None
    """For ``mig -cgi`` and NVML; the driver's own answer wins."""
    compute_slices: int
    size: int | None
    """Memory slots that one instance takes."""
    total_slots: int | None
    """Memory slots of the GPU."""
    starts: tuple[int, ...]
    """Legal starts; empty: unknown, ask the driver."""
    max_instances: int
    memory_mib: int | None
    """As one driver printed it; varies a little, never compare it exactly."""
    sm_count: int | None
    copy_engines: int | None
    decoders: int | None
    encoders: int | None
    jpeg_engines: int | None
    optical_flow_engines: int | None
    compute_instances: tuple[CiProfile, ...]
    backs_vgpu: bool | None
    """Whether vGPUs may be made on it; None: follows from the vGPU types that name it."""
    confidence: str
    source: str
    notes: str
