# SPDX-License-Identifier: Apache-2.0
"""What the cards of hosts in memory are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Board:
    model: str
    device: str
    subsystem: str
    memory_mib: int


def board_of(first_type: str, module_id: int | None, framework: str, *, has_mig: bool) -> Board:
    """By the first vGPU type of a GPU, its place on a baseboard, and what it can."""
    if module_id is not None:
        return Board("NVIDIA H100 80GB HBM3", "2330", "16c1", 81559)
    if first_type.startswith("NVIDIA RTX Pro"):
        return Board("NVIDIA RTX PRO 6000 Blackwell Server Edition", "2bb5", "204e", 98304)
    if has_mig:
        return Board("NVIDIA A100 80GB PCIe", "20b5", "1533", 81920)
    if first_type.startswith("GRID V100X"):
        return Board("Tesla V100-SXM2-16GB", "1db1", "1212", 16384)
    if framework == "mdev":
        return Board("Tesla T4", "1eb8", "12a2", 16384)
    return Board("NVIDIA L40S", "26b9", "1851", 46068)
