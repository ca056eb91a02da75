# SPDX-License-Identifier: Apache-2.0
"""A GPU's MIG layout that an operator asked for: its mode and GPU instances that stand without VMs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

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
