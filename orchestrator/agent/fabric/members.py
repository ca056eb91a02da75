# SPDX-License-Identifier: Apache-2.0
"""Which GPUs the members of a fabric partition are.

The fabric manager numbers GPUs itself (nv_fm_types.h, fmFabricPartitionGpuInfo_t.physicalId) and tells UUID and PCI
address of those that the NVIDIA driver has. On HGX A100 its number is not NVML's module id; from Hopper on it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.agent.ledger import Ledger

PREFIX = "fabric-member:"
_FIRST_HOPPER = 0x2300
"""PCI device ids of GPUs on NVSwitches: V100 1dxx, A100 20xx, Hopper 23xx, Blackwell 29xx and above."""
_ADDRESS = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class PartitionMember:
    """``uuid`` and ``address`` are empty where the fabric manager does not tell them."""

    physical: int
    uuid: str
    address: str


@dataclass(frozen=True, kw_only=True)
class ListedPartition:
    """As the fabric manager has it."""

    id: int
    members: tuple[PartitionMember, ...]
    active: bool


@dataclass(frozen=True, kw_only=True)
class BoardGpu:
    """A GPU as NVML told it."""

    address: str
    uuid: str
    module: int | None


class PartitionMembers:
    """``gpus``: those that members may be. ``devices``: PCI device ids of theirs, in hexadecimal."""

    def __init__(self, gpus: Iterable[BoardGpu], devices: Iterable[str], remembered: Mapping[int, int]) -> None:
        self._gpus, self._remembered = tuple(gpus), remembered
        ids = [int(device, 16) for device in devices]
        others = any(number != module for number, module in remembered.items())
        self._same_numbers = bool(ids) and min(ids) >= _FIRST_HOPPER and not others

    def module_of(self, member: PartitionMember) -> int | None:
        """Its module id; None: nothing tells which GPU it is, or it is told to be none of these."""
        if member.address or member.uuid:
            return self.told(member)
        return self._remembered.get(member.physical, member.physical if self._same_numbers else None)

    def is_unknown(self, member: PartitionMember) -> bool:
        """The fabric manager does not tell which GPU it is, and nothing else does."""
        return not member.address and not member.uuid and self.module_of(member) is None

    def told(self, member: PartitionMember) -> int | None:
        """By UUID and PCI address alone. Where they contradict each other, it is none of the GPUs."""
        if not member.address and not member.uuid:
            return None
        matching = [
            gpu for gpu in self._gpus if member.address in {"", gpu.address} and member.uuid in {"", gpu.uuid}
        ]  # fmt: skip
        return matching[0].module if len(matching) == 1 else None


def remembered(ledger: Ledger) -> dict[int, int]:
    """Module ids by the fabric manager's numbers, as told in this boot while the driver had the GPUs."""
    return {int(number): int(owner.detail) for number, owner in ledger.owned(PREFIX).items()}


def remember(ledger: Ledger, members: PartitionMembers, partitions: Iterable[ListedPartition]) -> None:
    """A GPU that a VM gets later is not told of any more."""
    known = remembered(ledger)
    for member in {member for partition in partitions for member in partition.members}:
        module = members.told(member)
        if module is not None and known.get(member.physical) != module:
            ledger.claim(f"{PREFIX}{member.physical}", "", detail=str(module), until_reboot=True)


def address_from(text: str) -> str:
    """``00000000:1B:00.0`` as sysfs writes it; empty stays empty.

    :raises ValueError: it is no PCI address"""
    if not text:
        return ""
    match = _ADDRESS.fullmatch(text.lower())
    if match is None:
        raise ValueError(f"{ascii(text)[:40]} where a PCI address is expected")
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.{match[4]}"
