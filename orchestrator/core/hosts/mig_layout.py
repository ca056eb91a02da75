# SPDX-License-Identifier: Apache-2.0
"""A GPU's MIG layout that an operator asked for: its mode and GPU instances that stand without VMs. What a
configuration of mig-parted wants of a host's GPUs (NVIDIA/mig-parted, api/spec/v1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.device import Device, InstancePlace
from orchestrator.core.hosts.snapshot import GpuSnapshot

KEEPER: Final = "6d69672d-6c61-796f-7574-000000000000"
"""Stands in ledgers where a VM's id does: GPU instances of layouts are its own. No VM and no domain has it."""
CUT: Final = "layout"
"""What the GPU is claimed as, so that no VM can claim a part of it."""


@dataclass(frozen=True, kw_only=True)
class MigLayout:
    gpu: str
    """PCI address."""
    on: bool
    instances: tuple[InstancePlace, ...] = ()
    """By first slot."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """Its GPU instances as devices of the keeper, without a vGPU in them."""
        bare = Device(kind="mig_backed", gpu=self.gpu, parent=self.gpu, type_name="", name=self.gpu)
        return tuple(replace(bare, type_name=place.profile).inside(place) for place in self.instances)


def empty(gpu: str, *, on: bool) -> MigLayout:
    """The GPU in that mode with nothing of a layout on it."""
    return MigLayout(gpu=gpu, on=on)


def difference(wanted: MigLayout, gpu: GpuSnapshot) -> str | None:
    """What is otherwise on the GPU than its layout says, for people; None: nothing."""
    if gpu.mig_enabled is not wanted.on:
        return f"MIG mode {'on' if gpu.mig_enabled else 'off'}"
    if gpu.mig_pending is not None and gpu.mig_pending is not wanted.on:
        return f"MIG mode {'on' if wanted.on else 'off'}, which is pending to change"
    present = {
        InstancePlace(instance.profile, instance.start) for instance in gpu.instances if instance.owner == KEEPER
    }
    missing = [place for place in wanted.instances if place not in present]
    return None if not missing else f"no {', no '.join(shown(place) for place in missing)}"


def shown(place: InstancePlace) -> str:
    return f"{place.profile} at slot {place.start}"


@dataclass(frozen=True, kw_only=True)
class MigEntry:
    """One entry. Where several speak of a GPU, the last one counts."""

    devices: tuple[int, ...] | None
    """Numbers of GPUs in the order of their PCI addresses; None: all."""
    filters: tuple[str, ...]
    """``0x<device><vendor>`` or ``0x<device><vendor>:0x<subdevice><subvendor>``; empty: any GPU."""
    enabled: bool
    counts: tuple[tuple[str, int], ...]
    """(profile, how many), by profile; none of them 0."""


@dataclass(frozen=True, kw_only=True)
class WantedMig:
    """Of one GPU."""

    gpu: GpuSnapshot
    enabled: bool
    counts: tuple[tuple[str, int], ...]

    @property
    def profiles(self) -> tuple[str, ...]:
        """A name for each GPU instance."""
        return tuple(name for name, count in self.counts for _ in range(count))


def wanted_of(
    entries: Sequence[MigEntry], gpus: Sequence[GpuSnapshot], managed: Sequence[str], host: str
) -> tuple[WantedMig, ...]:
    """What is wanted of each GPU that the entries speak of. GPUs without MIG are left out where all
    are meant, or off is.

    :raises InvalidInput: ``mig.config_no_such_gpu``, ``mig.config_no_mig``, ``mig.config_not_managed``,
        ``mig.config_no_gpu``
    """
    ordered = sorted(gpus, key=lambda gpu: gpu.address)
    layouts: dict[str, WantedMig] = {}
    for entry in entries:
        for number in range(len(ordered)) if entry.devices is None else entry.devices:
            gpu = _numbered(ordered, number, host)
            if _filtered(entry, gpu) and _counts(entry, gpu, managed):
                layouts[gpu.address] = WantedMig(gpu=gpu, enabled=entry.enabled, counts=entry.counts)
    if not layouts:
        raise InvalidInput(
            "mig.config_no_gpu",
            "the configuration speaks of none of the host's GPUs that we manage",
            hint=f"'vgpuctl mig show {host}' numbers them; device-filter compares PCI ids",
        )
    return tuple(layouts[address] for address in sorted(layouts))


def _numbered(gpus: Sequence[GpuSnapshot], number: int, host: str) -> GpuSnapshot:
    if number >= len(gpus):
        raise InvalidInput(
            "mig.config_no_such_gpu",
            f"the configuration speaks of GPU {number}, and the host has {len(gpus)}",
            hint=f"they are numbered from 0 in the order of their PCI addresses: 'vgpuctl mig show {host}'",
        )
    return gpus[number]


def _counts(entry: MigEntry, gpu: GpuSnapshot, managed: Sequence[str]) -> bool:
    """Whether the entry is for the GPU, which its filter and its number let through."""
    named = entry.devices is not None
    if gpu.mig_enabled is None:
        if named and entry.enabled:
            raise InvalidInput(
                "mig.config_no_mig", f"GPU {gpu.address} ({gpu.model}) has no MIG", hint="name other devices"
            )
        return False
    if gpu.address not in managed and named:
        raise InvalidInput(
            "mig.config_not_managed",
            f"GPU {gpu.address} was not given to vgpuctl at 'host add'",
            hint="name other devices; no GPU is touched that was not given",
        )
    return gpu.address in managed


def _filtered(entry: MigEntry, gpu: GpuSnapshot) -> bool:
    bare = int(gpu.pci_device, 16), int(gpu.pci_vendor, 16)
    whole = (*bare, int(gpu.pci_subsystem_device, 16), int(gpu.pci_subsystem_vendor, 16))
    return not entry.filters or any(_ids(gpu_filter) in {bare, whole} for gpu_filter in entry.filters)


def _ids(text: str) -> tuple[int, ...]:
    numbers = [int(part, 16) for part in text.split(":")]
    return tuple(half for number in numbers for half in (number >> 16, number & 0xFFFF))
