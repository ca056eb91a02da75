# SPDX-License-Identifier: Apache-2.0
"""What an offering asks for that no host action sets so far. Such an offering is refused, never given in part."""

from __future__ import annotations

from orchestrator.core.errors import InvalidInput
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.units import MIB, show_size


def unsupported(offering: Offering) -> tuple[str, ...]:
    """In words, one for each property; empty: all that the offering promises is done."""
    asked = {
        "a scheduler": offering.scheduler is not None and offering.kind != "time_sliced",
        "mixed sizes": offering.mixed_sizes and offering.kind != "time_sliced",
        "a GPU for each VM": offering.anti_affinity == "gpu" and offering.kind != "passthrough",
    }
    return tuple(name for name, wanted in asked.items() if wanted)


def has_whole_pages(offering: Offering, memory_mib: int) -> bool:
    """Whether so much memory is whole huge pages, where the offering asks for those."""
    return offering.page_kib == 0 or memory_mib * 1024 % offering.page_kib == 0


def check_whole_pages(offering: Offering, memory_mib: int) -> None:
    """:raises InvalidInput: ``memory.not_whole_pages``"""
    if not has_whole_pages(offering, memory_mib):
        raise InvalidInput(
            "memory.not_whole_pages",
            f"{show_size(memory_mib * MIB)} of memory are not whole huge pages of {offering.hugepages}",
            hint=f"profile {offering.name} has memory in huge pages: ask for a multiple of {offering.hugepages}iB",
        )


def check_supported(offering: Offering) -> Offering:
    """The offering itself. :raises InvalidInput: ``profile.unsupported``"""
    missing = unsupported(offering)
    if missing:
        raise InvalidInput(
            "profile.unsupported",
            f"profile {offering.name} asks for what is not set on hosts so far: {', '.join(missing)}",
            hint="'vgpuctl profile list' shows what this site can give",
        )
    return offering
