# SPDX-License-Identifier: Apache-2.0
"""How large a VM is, and what it holds for that on its host, while it is to become another size there.

Until it has settled it can go either way: what it has is its own, and what the other size takes beyond that is held
beside it, by a place of its own, so that nobody else gets it meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.cpus import CpuPlace
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.hosts.nic import NicPlace
from orchestrator.core.vms.claim import Claim, DeviceClaim
from orchestrator.core.vms.vm import Vm

SlotsOf = Callable[[str, str], int]
"""How many slots a GPU (its address) has under a cut."""


@dataclass(frozen=True, kw_only=True)
class HeldSize:
    """Of two sizes of a VM on one host the one, and what it has to do with the other."""

    profile: str
    vcpus: int
    memory_mib: int
    devices: tuple[Device, ...]
    cpus: CpuPlace | None
    nic: NicPlace | None
    claim: Claim
    """What it takes."""
    held: Claim
    """The same, with as many vCPUs and as much memory as the larger size has."""
    place: str
    """Id of the place that has what it holds beside the VM."""
    beside: Claim | None
    """What the other size takes of GPUs beyond it; None: nothing."""
    beside_devices: tuple[Device, ...]
    """Of ``beside``, in its order."""
    disk_limits: DiskLimits | None = None

    def of(self, vm: Vm) -> Vm:
        """The VM of that size."""
        spec = replace(
            vm.spec, profile=self.profile, vcpus=self.vcpus, memory_mib=self.memory_mib, disk_limits=self.disk_limits
        )
        return replace(vm, spec=spec, devices=self.devices, cpus=self.cpus, nic=self.nic)

    def place_for(self, vm: Vm) -> Vm:
        """What has ``beside``."""
        aside = replace(vm, id=self.place, devices=self.beside_devices, cpus=None, nic=None, ports=())
        return replace(aside, state="moving", lease_end=None)


def sizes_of(
    before: tuple[Vm, Claim], after: tuple[Vm, Claim], place: str, slots_of: SlotsOf
) -> tuple[HeldSize, HeldSize]:
    """As it is and as it is to be, each with its claim. ``place``: id of the place beside it."""
    return _size(before, after, place, slots_of), _size(after, before, place, slots_of)


def _size(own: tuple[Vm, Claim], other: tuple[Vm, Claim], place: str, slots_of: SlotsOf) -> HeldSize:
    (vm, claim), (_, theirs) = own, other
    beside = tuple(_beyond(claim, other, slots_of))
    held = replace(
        claim,
        vcpus=max(claim.vcpus, theirs.vcpus),
        memory_mib=max(claim.memory_mib, theirs.memory_mib),
        cpus=tuple(sorted({*claim.cpus, *theirs.cpus})),
        nic=claim.nic or theirs.nic,
    )
    kept = Claim(
        vm=place, host=claim.host, devices=tuple(part for part, _ in beside), vcpus=0, memory_mib=0, disk_bytes=0
    )
    return HeldSize(
        profile=vm.spec.profile,
        vcpus=vm.spec.vcpus,
        memory_mib=vm.spec.memory_mib,
        devices=vm.devices,
        cpus=vm.cpus,
        nic=vm.nic,
        claim=claim,
        held=held,
        place=place,
        beside=kept if beside else None,
        beside_devices=tuple(device for _, device in beside),
        disk_limits=vm.spec.disk_limits,
    )


def _beyond(claim: Claim, other: tuple[Vm, Claim], slots_of: SlotsOf) -> Iterator[tuple[DeviceClaim, Device]]:
    """A GPU that the two sizes cut differently has nobody else on it, and is filled: the cut cannot change then."""
    filled: set[str] = set()
    functions = {part.function for part in claim.devices}
    for part, device in zip(other[1].devices, other[0].devices, strict=True):
        own = [mine for mine in claim.devices if mine.gpu == part.gpu]
        taken = {slot for mine in own for slot in mine.slots}
        cut, slots, function = part.cut, part.slots, None if part.function in functions else part.function
        if own and own[0].cut != cut:
            cut, function = own[0].cut, None
            slots = tuple(range(0 if part.gpu in filled else slots_of(part.gpu, cut)))
            filled.add(part.gpu)
        left = tuple(slot for slot in slots if slot not in taken)
        if left:
            yield DeviceClaim(gpu=part.gpu, cut=cut, slots=left, function=function), device


def with_functions_of(before: tuple[Device, ...], drawn: tuple[Device, ...]) -> tuple[Device, ...]:
    """On a GPU where it has functions they stay its own, so that there is nothing to hold beside them."""
    free = [device for device in before if device.function is not None]
    kept = []
    for device in drawn:
        same = next((old for old in free if (old.gpu, old.kind) == (device.gpu, device.kind)), None)
        if device.function is not None and same is not None:
            free.remove(same)
            name = same.parent if device.name == device.parent else device.name
            kept.append(replace(device, parent=same.parent, name=name))
        else:
            kept.append(device)
    return tuple(kept)
