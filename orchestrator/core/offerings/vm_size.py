# SPDX-License-Identifier: Apache-2.0
"""How big a VM is that asks for no vCPUs, memory or disk of its own: as its offering says, else by its framebuffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.core.offerings.offering import Offering
from orchestrator.core.units import GIB
from orchestrator.core.vms.vm import DEFAULT_DISK_BYTES, DEFAULT_MEMORY_MIB, DEFAULT_VCPUS, disk_bytes, memory_mib

MAX_COUNTED_MIB: Final = 48 * 1024
"""Of one device: hosts with bigger GPUs do not have memory and CPUs in proportion."""
ANY_GPU_MIB: Final = 32 * 1024
"""What a whole GPU of an unknown model counts as."""
_MIB_FOR_A_VCPU: Final = 8 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class VmSize:
    vcpus: int
    memory_mib: int
    disk_bytes: int


def vm_size(offering: Offering, framebuffer_mib: int | None) -> VmSize:
    """What a VM of the offering has that asks for nothing.

    For each 8 GiB of framebuffer a vCPU, for each GiB half a GiB of memory and a GiB of disk, at least the smallest
    VM's. ``framebuffer_mib``: of one of its devices; None: unknown.
    """
    unknown = ANY_GPU_MIB if offering.gpu_count else 0
    each = min(unknown if framebuffer_mib is None else framebuffer_mib, MAX_COUNTED_MIB)
    counted = offering.devices * each
    gib = counted // 1024
    return VmSize(
        vcpus=offering.vcpus or max(DEFAULT_VCPUS, counted // _MIB_FOR_A_VCPU),
        memory_mib=max(DEFAULT_MEMORY_MIB, gib // 2 * 1024) if offering.memory is None else memory_mib(offering.memory),
        disk_bytes=max(DEFAULT_DISK_BYTES, gib * GIB) if offering.disk is None else disk_bytes(offering.disk),
    )
