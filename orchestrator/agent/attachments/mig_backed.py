# SPDX-License-Identifier: Apache-2.0
"""GPU instances of VMs, and vGPUs in them, whichever framework makes those. Instances are known by GPU and first memory
slot; ids change.

The driver alone chooses in which instance of a type's profile with room a vGPU comes to lie. So it is made while the
VM's instance is the only one of ours with room: empty ones are gone meanwhile, and in those that vGPUs share the room
is taken. What came to lie elsewhere all the same is taken back, and so is what the driver does not tell the place of.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from orchestrator.agent.attachments.device_files import DeviceFiles, check_ours, not_as_seen
from orchestrator.agent.attachments.kind import Handlers, Kind, Observation, ObservedKind
from orchestrator.agent.attachments.placing import FoundVgpu
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.gpu_instances import FoundInstance
from orchestrator.agent.nvml.mig import Mig
from orchestrator.agent.sysfs import pci
from orchestrator.core.actions.host_actions import (
    ActionResult,
    CreateGpuInstance,
    DestroyGpuInstance,
    MakeVgpu,
    VgpuPosition,
)
from orchestrator.core.errors import Conflict, Fatal, Retryable, Unknown
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.core.names import is_uuid

_PREFIX: Final = "gi:"


def instance_key(gpu: str, start: int) -> str:
    """Name of a GPU instance in the ledger. Who comes when somebody holds it already has this and his id for a name."""
    return f"{_PREFIX}{gpu}:{start}"


class InstanceHolders:
    """Which VMs hold a GPU instance of ours. Where the driver lets several vGPUs lie in one, it is there for each of
    their VMs: made for the first and destroyed with the last."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def of(self, gpu: str, start: int) -> dict[str, str]:
        """VM → the profile that it made the instance as, or found it with."""
        key = instance_key(gpu, start)
        first, others = self._ledger.owner(key), self._ledger.owned(f"{key}:")
        return {holder.vm: holder.detail for holder in (first, *others.values()) if holder is not None}

    def hold(self, gpu: str, start: int, vm: str, profile: str) -> None:
        """Nothing changes for one that holds it."""
        key = instance_key(gpu, start)
        if vm not in self.of(gpu, start):
            key = key if self._ledger.owner(key) is None else f"{key}:{vm}"
            self._ledger.claim(key, vm, detail=profile, until_reboot=True)

    def drop(self, gpu: str, start: int, vm: str) -> None:
        """Nobody else's hold."""
        key = instance_key(gpu, start)
        for held in (key, f"{key}:{vm}"):
            owner = self._ledger.owner(held)
            if owner is not None and owner.vm == vm:
                self._ledger.release(held)


@dataclass(frozen=True)
class _Wanted:
    """A vGPU in the GPU instance of ``gpu`` that begins at the memory slot ``start``."""

    vgpu: MakeVgpu
    """Wherever the driver puts it."""
    gpu: str
    start: int


class Carrier(Kind, Protocol):
    """A kind that makes vGPUs itself, wherever on their GPU they come to lie."""

    def make(self, action: MakeVgpu) -> ActionResult:
        """Nothing changes where it is made already."""

    def take_back(self, made: MakeVgpu) -> ActionResult:
        """Remove it; nothing changes where it is not."""

    def vgpus_on(self, functions: Iterable[str]) -> Iterator[FoundVgpu]:
        """vGPUs of the kind on these PCI functions."""


class MigBackedVgpus:
    def __init__(self, files: DeviceFiles, on_functions: Carrier, named: Carrier, mig: Mig) -> None:
        """``on_functions``: makes vGPUs called as their functions; ``named``: those with UUIDs of their own."""
        self._files, self._paths, self._ledger = files, files.paths, files.ledger
        self._on_functions, self._named, self._mig = on_functions, named, mig
        self._holders = InstanceHolders(files.ledger)
        self._locks: dict[str, threading.RLock] = {}

    @property
    def handlers(self) -> Handlers:
        """Its own, and of vGPUs wherever they lie."""
        return {CreateGpuInstance: self.create, DestroyGpuInstance: self.destroy, MakeVgpu: self.make}

    def create(self, action: CreateGpuInstance) -> ActionResult:
        """:raises Conflict: ``gpu.instance_foreign``, ``gpu.instance_differs``
        :raises Fatal: ``gpu.mig_off``, and those of agent/nvml/mig.py"""
        check_ours(self._ledger, action.gpu)
        with self._alone(action.gpu):
            self._check_mode(action.gpu)
            existing = self._at(action.gpu, action.start)
            if existing is not None:
                self._check_ours(existing, action)
                self._holders.hold(action.gpu, action.start, action.vm, action.profile)
                if not existing.compute:
                    self._mig.fill(action.gpu, existing.id)
                return ActionResult(changed=not existing.compute)
            self._holders.hold(action.gpu, action.start, action.vm, action.profile)
            try:
                self._mig.create(action.gpu, action.profile, action.start)
            except (Fatal, Retryable, Conflict):
                if self._at(action.gpu, action.start) is None:
                    self._holders.drop(action.gpu, action.start, action.vm)
                raise
            if self._at(action.gpu, action.start) is None:
                raise Unknown("gpu.instance_not_seen", "the driver took the request and shows no GPU instance")
        return ActionResult(changed=True)

    def destroy(self, action: DestroyGpuInstance) -> ActionResult:
        """One that vGPUs share goes with the last of them.

        :raises Conflict: ``gpu.instance_in_use``"""
        with self._alone(action.gpu):
            existing, holders = self._remaining(action.gpu, action.start), self._holders.of(action.gpu, action.start)
            if existing is None:
                self._holders.drop(action.gpu, action.start, action.vm)
            if existing is None or action.vm not in holders:
                nobodys = existing is not None and not holders  # it may be the VM's still
                return ActionResult(changed=False, cleaned="" if nobodys else "absent")
            users = self._users(action.gpu, existing)
            if (users or len(holders) > 1) and self._mig.shares(action.gpu, existing.profile):
                if action.vm in map(self.owner_of, users):  # another one of its own, which has its own end
                    return ActionResult(changed=False, cleaned="absent")
                self._holders.drop(action.gpu, action.start, action.vm)
                return ActionResult(changed=False, cleaned="absent")
            if users:
                raise Conflict(
                    "gpu.instance_in_use",
                    "a vGPU still lies in the GPU instance",
                    hint="stop the VM first",
                    details=", ".join(users),
                )
            self._mig.destroy(action.gpu, existing.id)
            if self._at(action.gpu, action.start) is not None:
                raise Unknown("gpu.instance_not_gone", "the driver took the request and still shows the GPU instance")
            self._holders.drop(action.gpu, action.start, action.vm)
        return ActionResult(changed=True, cleaned="instance_destroyed")

    def make(self, action: MakeVgpu) -> ActionResult:
        match action.at:
            case VgpuPosition(within="instance", start=start):
                self._files.check_managed(action.parent)
                gpu = pci.physical_gpu(self._paths, action.parent)
                return self._make_inside(_Wanted(replace(action, at=None), gpu, start))
        return self._make_bare(action)

    def _make_inside(self, wanted: _Wanted) -> ActionResult:
        """As on a time-sliced GPU, and then where it lies is read back.

        :raises Conflict: ``gpu.instance_chosen``: the driver insists on an instance that is not the VM's
        :raises Fatal: ``gpu.instance_untold``
        """
        with self._alone(wanted.gpu):
            result = self._make_bare(wanted.vgpu)
            if self._lies_right(wanted):
                return result
            self._take_back(wanted.vgpu)
            with self._no_other_room(wanted):
                self._make_bare(wanted.vgpu)
            if not self._lies_right(wanted):
                self._take_back(wanted.vgpu)
                raise Conflict(
                    "gpu.instance_chosen",
                    "the driver puts the vGPU into a GPU instance that is not the VM's",
                    hint="'vgpuctl mig show HOST' lists the instances that others made and left free",
                    details=f"{wanted.vgpu.parent}, GPU instance at slot {wanted.start}",
                )
        return ActionResult(changed=True)

    def adopt(self, vm: str, device: Device) -> None:
        place = device.instance
        if place is None:
            raise not_as_seen(device.name)
        existing = self._at(device.gpu, place.start)
        if existing is None or existing.profile != place.profile:
            raise not_as_seen(device.name)
        with self._alone(device.gpu):
            if self._holders.of(device.gpu, place.start):
                wanted = CreateGpuInstance(vm=vm, gpu=device.gpu, profile=place.profile, start=place.start)
                self._check_ours(existing, wanted)
            if device.function is not None:
                if device.name not in self._users(device.gpu, existing):
                    raise not_as_seen(device.name)
                self._carrier(device.name).adopt(vm, device)
            self._holders.hold(device.gpu, place.start, vm, place.profile)

    def release(self, vm: str, device: Device) -> None:
        self._carrier(device.name).release(vm, device)
        if device.gi_start is not None:
            self._holders.drop(device.gpu, device.gi_start, vm)

    def forget_gone(self, vm: str) -> None:
        for key in self._files.owned_by(vm, _PREFIX):
            gpu, _, slot = key.removesuffix(f":{vm}").rpartition(":")
            start = int(slot)
            with self._alone(gpu):
                existing = self._remaining(gpu, start)
                others = self._holders.of(gpu, start).keys() - {vm}
                if existing is None or (others and vm not in map(self.owner_of, self._users(gpu, existing))):
                    self._holders.drop(gpu, start, vm)

    def owner_of(self, name: str) -> str | None:
        return self._carrier(name).owner_of(name)

    def parameters_file(self, name: str) -> Path | None:
        return self._carrier(name).parameters_file(name)

    def check_may_make(self, name: str) -> None:
        self._carrier(name).check_may_make(name)

    def names_on(self, functions: Iterable[str]) -> Iterator[str]:
        """GPU instances; vGPUs on functions are named by their own kind."""
        for address in functions:
            if pci.physical_gpu(self._paths, address) == address and address in self._ledger.managed_gpus():
                modes = self._mig.modes(address)
                for instance in self._mig.instances(address) if modes is not None and modes[0] else ():
                    yield f"GPU instance {instance.id} ({instance.profile} at slot {instance.start})"

    def observe(self, _shared: Observation) -> ObservedKind:
        """In sysfs such vGPUs are as those of their carrier, and instances are NVML's to tell."""
        return ObservedKind()

    @contextmanager
    def _alone(self, gpu: str) -> Iterator[None]:
        """One change of a GPU's instances at a time."""
        with self._locks.setdefault(gpu, threading.RLock()):
            yield

    def _at(self, gpu: str, start: int) -> FoundInstance | None:
        return next((instance for instance in self._mig.instances(gpu) if instance.start == start), None)

    def _remaining(self, gpu: str, start: int) -> FoundInstance | None:
        """As :meth:`_at`. None as well where the GPU has left its driver, and its instances with it."""
        try:
            return self._at(gpu, start)
        except Fatal as error:
            if error.code in {"gpu.no_mig", "gpu.gone"}:
                return None
            raise

    def _check_mode(self, gpu: str) -> None:
        modes = self._mig.modes(gpu)
        if modes is None or not modes[0]:
            raise Fatal(
                "gpu.mig_off", f"GPU {gpu} is not in MIG mode", hint=f"'vgpuctl gpu show HOST {gpu}' tells its mode"
            )

    def _check_ours(self, existing: FoundInstance, action: CreateGpuInstance) -> None:
        """The VM's own, or one of other VMs that it may share."""
        holders = self._holders.of(action.gpu, action.start)
        shown = f"{existing.profile} at slot {existing.start} of {action.gpu}"
        shared = bool(holders) and KEEPER not in holders and self._mig.shares(action.gpu, existing.profile)
        if action.vm not in holders and not shared:
            raise Conflict(
                "gpu.instance_foreign",
                "the GPU instance there is not this VM's",
                hint="look at the host",
                details=shown,
            )
        if existing.profile != action.profile:
            raise Conflict("gpu.instance_differs", "the GPU instance there has another profile", details=shown)

    def _carrier(self, name: str) -> Carrier:
        return self._named if is_uuid(name) else self._on_functions

    def _vgpus(self, gpu: str) -> list[FoundVgpu]:
        functions = pci.virtual_functions(self._paths, gpu)
        return [*self._on_functions.vgpus_on(functions), *self._named.vgpus_on(functions)]

    def _users(self, gpu: str, instance: FoundInstance) -> list[str]:
        """vGPUs that lie in it, and those that are not told to lie elsewhere."""
        return [vgpu.name for vgpu in self._vgpus(gpu) if vgpu.gpu_instance in {None, instance.id}]

    def _lies_right(self, wanted: _Wanted, function: str = "") -> bool:
        """``function``: another one than the VM's.

        :raises Fatal: ``gpu.instance_untold``; the VM's is taken back"""
        existing = self._at(wanted.gpu, wanted.start)
        at = function or wanted.vgpu.parent
        lies = next((vgpu.gpu_instance for vgpu in self._vgpus(wanted.gpu) if vgpu.function == at), None)
        if lies is None:
            self._take_back(wanted.vgpu)
            raise Fatal(
                "gpu.instance_untold",
                "the driver does not tell in which GPU instance the vGPU lies",
                hint="drivers from 570 on are known to tell; time-sliced vGPUs need none to",
                details=at,
            )
        return existing is not None and lies == existing.id

    def _make_bare(self, action: MakeVgpu) -> ActionResult:
        return self._carrier(action.name).make(action)

    def _take_back(self, vgpu: MakeVgpu) -> None:
        self._carrier(vgpu.name).take_back(vgpu)

    @contextmanager
    def _no_other_room(self, wanted: _Wanted) -> Iterator[None]:
        """While this is held, no other instance of ours has room for the type."""
        gone: list[FoundInstance] = []
        fillers: list[MakeVgpu] = []
        try:
            for spare in self._spare(wanted):
                self._mig.destroy(wanted.gpu, spare.id)
                gone.append(spare)
            if self._mig.shares(wanted.gpu, self._profile_at(wanted.gpu, wanted.start) or ""):
                self._fill(wanted, fillers)
            yield
        finally:
            for filler in fillers:
                self._take_back(filler)
            for spare in gone:
                self._mig.create(wanted.gpu, spare.profile, spare.start)

    def _spare(self, wanted: _Wanted) -> list[FoundInstance]:
        """Ours, of the same profile, with no vGPU in them."""
        profile = self._profile_at(wanted.gpu, wanted.start)
        return [
            instance
            for instance in self._mig.instances(wanted.gpu)
            if instance.profile == profile
            and instance.start != wanted.start
            and self._holders.of(wanted.gpu, instance.start)
            and not self._users(wanted.gpu, instance)
        ]

    def _fill(self, wanted: _Wanted, fillers: list[MakeVgpu]) -> None:
        """vGPUs of the type on free functions, until the next one would come to lie in the VM's instance."""
        taken = {wanted.vgpu.parent, *(vgpu.function for vgpu in self._vgpus(wanted.gpu))}
        for function in pci.virtual_functions(self._paths, wanted.gpu):
            if function in taken:
                continue
            filler = wanted.vgpu.beside(function)
            try:
                self._make_bare(filler)
            except Fatal:
                return  # there is no room at all, as its own vGPU will be told
            fillers.append(filler)
            if self._lies_right(wanted, function):
                self._take_back(fillers.pop())
                return

    def _profile_at(self, gpu: str, start: int) -> str | None:
        existing = self._at(gpu, start)
        return None if existing is None else existing.profile
