# SPDX-License-Identifier: Apache-2.0
"""GPU instances of VMs, and vGPUs in them. Instances are known by GPU and first memory slot; ids change.

The driver alone chooses in which free instance of a type's profile a vGPU comes to lie. So a type is written while the
VM's instance is the only free one of ours; what came to lie elsewhere all the same is taken back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.agent.attachments.device_files import DeviceFiles, check_ours, not_as_seen
from orchestrator.agent.attachments.kind import Handlers, Observation
from orchestrator.agent.attachments.vendor_vfio import TypedFunctions
from orchestrator.agent.nvml.gpu_instances import FoundInstance
from orchestrator.agent.nvml.mig import Mig
from orchestrator.agent.nvml.reading import NvmlGpu
from orchestrator.agent.sysfs import pci, vendor_vfio
from orchestrator.agent.sysfs.pci import PciGpu
from orchestrator.core.device import Device
from orchestrator.core.errors import Conflict, Fatal, Retryable, Unknown
from orchestrator.core.host_actions import (
    ActionResult,
    ClearVgpuType,
    CreateGpuInstance,
    DestroyGpuInstance,
    SetInstanceType,
)
from orchestrator.core.snapshot import HostVgpuType, VgpuParent


def instance_key(gpu: str, start: int) -> str:
    """Name of a GPU instance in the ledger."""
    return f"gi:{gpu}:{start}"


class MigBackedFunctions:
    def __init__(self, files: DeviceFiles, functions: TypedFunctions, mig: Mig) -> None:
        self._paths, self._ledger = files.paths, files.ledger
        self._functions, self._mig = functions, mig
        self._locks: dict[str, threading.RLock] = {}

    @property
    def handlers(self) -> Handlers:
        return {
            CreateGpuInstance: self.create,
            DestroyGpuInstance: self.destroy,
            SetInstanceType: self.set_type,
        }

    def create(self, action: CreateGpuInstance) -> ActionResult:
        """:raises Conflict: ``gpu.instance_foreign``, ``gpu.instance_differs``
        :raises Fatal: ``gpu.mig_off``, and those of agent/nvml/mig.py"""
        check_ours(self._ledger, action.gpu)
        key = instance_key(action.gpu, action.start)
        with self._alone(action.gpu):
            self._check_mode(action.gpu)
            there = self._at(action.gpu, action.start)
            if there is not None:
                self._check_ours(there, action)
                if not there.compute:
                    self._mig.fill(action.gpu, there.id)
                return ActionResult(changed=not there.compute)
            self._ledger.claim(key, action.vm, detail=action.profile, until_reboot=True)
            try:
                self._mig.create(action.gpu, action.profile, action.start)
            except (Fatal, Retryable, Conflict):
                if self._at(action.gpu, action.start) is None:
                    self._ledger.release(key)
                raise
            if self._at(action.gpu, action.start) is None:
                raise Unknown("gpu.instance_not_seen", "the driver took the request and shows no GPU instance")
        return ActionResult(changed=True)

    def destroy(self, action: DestroyGpuInstance) -> ActionResult:
        """:raises Conflict: ``gpu.instance_in_use``"""
        key = instance_key(action.gpu, action.start)
        with self._alone(action.gpu):
            there = self._at(action.gpu, action.start)
            if there is None:
                self._release(key, action.vm)
                return ActionResult(changed=False)
            owner = self._ledger.owner(key)
            if owner is None or owner.vm != action.vm:
                return ActionResult(changed=False)
            users = self._users(action.gpu, there)
            if users:
                raise Conflict(
                    "gpu.instance_in_use",
                    "a vGPU still lies in the GPU instance",
                    hint="stop the VM first",
                    details=", ".join(users),
                )
            self._mig.destroy(action.gpu, there.id)
            if self._at(action.gpu, action.start) is not None:
                raise Unknown("gpu.instance_not_gone", "the driver took the request and still shows the GPU instance")
            self._ledger.release(key)
        return ActionResult(changed=True)

    def set_type(self, action: SetInstanceType) -> ActionResult:
        """As on a time-sliced function, and then where it lies is read back.

        :raises Conflict: ``gpu.instance_chosen``: the driver insists on an instance that is not the VM's
        """
        with self._alone(action.gpu):
            result = self._functions.make(action.typed)
            if self._lies_right(action):
                return result
            spare = self._spare(action)
            self._take_back(action)
            try:
                for one in spare:
                    self._mig.destroy(action.gpu, one.id)
                self._functions.make(action.typed)
            finally:
                for one in spare:
                    self._mig.create(action.gpu, one.profile, one.start)
            if not self._lies_right(action):
                self._take_back(action)
                raise Conflict(
                    "gpu.instance_chosen",
                    "the driver puts the vGPU into a GPU instance that is not the VM's",
                    hint="'vgpuctl mig show' lists the instances that others made and left free",
                    details=f"{action.vf}, GPU instance at slot {action.start}",
                )
        return ActionResult(changed=True)

    def adopt(self, vm: str, device: Device) -> None:
        place = device.instance
        if place is None:
            raise not_as_seen(device.name)
        there = self._at(device.gpu, place.start)
        if there is None or there.profile != place.profile:
            raise not_as_seen(device.name)
        if device.function is not None:
            if device.parent not in self._users(device.gpu, there):
                raise not_as_seen(device.name)
            self._functions.adopt(vm, device)
        key = instance_key(device.gpu, place.start)
        self._ledger.claim(key, vm, detail=place.profile, until_reboot=True)

    def release(self, vm: str, device: Device) -> None:
        self._functions.release(vm, device)
        if device.gi_start is not None:
            self._release(instance_key(device.gpu, device.gi_start), vm)

    def owner_of(self, name: str) -> str | None:
        return self._functions.owner_of(name)

    def parameters_file(self, name: str) -> Path | None:
        return self._functions.parameters_file(name)

    def check_may_make(self, name: str) -> None:
        self._functions.check_may_make(name)

    def names_on(self, functions: Iterable[str]) -> Iterator[str]:
        """GPU instances; vGPUs on functions are named by their own kind."""
        for address in functions:
            if pci.physical_gpu(self._paths, address) == address and address in self._ledger.managed_gpus():
                modes = self._mig.modes(address)
                for one in self._mig.instances(address) if modes is not None and modes[0] else ():
                    yield f"GPU instance {one.id} ({one.profile} at slot {one.start})"

    def observe(self, _shared: Observation) -> _NoFramework:
        return _NoFramework()

    @contextmanager
    def _alone(self, gpu: str) -> Iterator[None]:
        """One change of a GPU's instances at a time."""
        with self._locks.setdefault(gpu, threading.RLock()):
            yield

    def _at(self, gpu: str, start: int) -> FoundInstance | None:
        return next((one for one in self._mig.instances(gpu) if one.start == start), None)

    def _check_mode(self, gpu: str) -> None:
        modes = self._mig.modes(gpu)
        if modes is None or not modes[0]:
            raise Fatal("gpu.mig_off", f"GPU {gpu} is not in MIG mode", hint="'vgpuctl gpu show' tells its mode")

    def _check_ours(self, there: FoundInstance, action: CreateGpuInstance) -> None:
        owner = self._ledger.owner(instance_key(action.gpu, action.start))
        shown = f"{there.profile} at slot {there.start} of {action.gpu}"
        if owner is None or owner.vm != action.vm:
            raise Conflict(
                "gpu.instance_foreign",
                "the GPU instance there is not this VM's",
                hint="look at the host",
                details=shown,
            )
        if there.profile != action.profile:
            raise Conflict("gpu.instance_differs", "the GPU instance there has another profile", details=shown)

    def _release(self, key: str, vm: str) -> None:
        owner = self._ledger.owner(key)
        if owner is not None and owner.vm == vm:
            self._ledger.release(key)

    def _users(self, gpu: str, instance: FoundInstance) -> list[str]:
        """Functions whose vGPU lies in it, and those that do not tell where theirs lies."""
        functions = pci.virtual_functions(self._paths, gpu)
        typed = [address for address in functions if vendor_vfio.read(self._paths, address).current_id != 0]
        return [address for address in typed if vendor_vfio.gpu_instance(self._paths, address) in {None, instance.id}]

    def _lies_right(self, action: SetInstanceType) -> bool:
        there = self._at(action.gpu, action.start)
        return there is not None and vendor_vfio.gpu_instance(self._paths, action.vf) == there.id

    def _take_back(self, action: SetInstanceType) -> None:
        self._functions.remove(ClearVgpuType(vm=action.vm, vf=action.vf))

    def _spare(self, action: SetInstanceType) -> list[FoundInstance]:
        """Ours, of the same profile, with no vGPU in them but the one that came to lie wrong."""
        all_of_them = self._mig.instances(action.gpu)
        profile = next((one.profile for one in all_of_them if one.start == action.start), None)
        return [
            one
            for one in all_of_them
            if one.profile == profile
            and one.start != action.start
            and self._ledger.owner(instance_key(action.gpu, one.start)) is not None
            and set(self._users(action.gpu, one)) <= {action.vf}
        ]


class _NoFramework:
    """In sysfs such vGPUs are typed functions, and instances are NVML's to tell."""

    def offered_on(self, _gpu: PciGpu) -> bool:
        return False

    def parents(self, _gpu: PciGpu, _problems: list[str]) -> tuple[VgpuParent, ...]:
        return ()

    def types(self, _gpu: PciGpu) -> Iterator[HostVgpuType]:
        return iter(())

    def remembered(self, _gpu: PciGpu) -> NvmlGpu | None:
        return None
