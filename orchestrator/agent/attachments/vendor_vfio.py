# SPDX-License-Identifier: Apache-2.0
"""vGPUs on virtual functions by NVIDIA's vendor-specific VFIO: made, removed, adopted and observed. A function gets a
vGPU type by writing its id to one file.

Format of ``creatable_vgpu_types``: a header line, then ``<id> : <name>`` lines, fewer with every vGPU that is made.
``current_vgpu_type`` reads 0 for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.attachments.device_files import (
    DeviceFiles,
    check_address,
    function_gone,
    no_room,
    not_as_seen,
    still_hangs,
)
from orchestrator.agent.attachments.kind import Handlers, Observation, ObservedKind
from orchestrator.agent.attachments.placing import FoundVgpu, VgpuPlaces, gpu_instance, placement_id
from orchestrator.agent.ledger import Ownership
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import open_files, reading
from orchestrator.agent.sysfs.pci import PciGpu
from orchestrator.agent.sysfs.write import is_being_written
from orchestrator.core.actions.host_actions import ActionResult, ClearVgpuType, MakeVgpu
from orchestrator.core.errors import Conflict
from orchestrator.core.gpu.device import Device, VgpuParent
from orchestrator.core.gpu.pci import is_pci_address


@dataclass(frozen=True)
class VirtualFunction:
    """One virtual function with NVIDIA's attributes."""

    address: str
    current_id: int | None
    """0: no vGPU; None: could not be read."""
    creatable: tuple[tuple[int, str], ...]
    problem: str | None = None


def is_vendor_vfio(paths: Paths, address: str) -> bool:
    return (paths.pci(address) / "nvidia" / "creatable_vgpu_types").exists()


def parse_creatable(text: str) -> tuple[tuple[int, str], ...]:
    """Ids and names in the driver's order; header and lines of another form are left out."""
    rows = []
    for line in text.splitlines():
        number, colon, name = line.partition(":")
        if colon and number.strip().isdecimal() and name.strip():
            rows.append((int(number), name.strip()))
    return tuple(rows)


def read(paths: Paths, address: str) -> VirtualFunction:
    directory = paths.pci(address) / "nvidia"
    creatable = reading.text(directory / "creatable_vgpu_types")
    current = reading.number(directory / "current_vgpu_type")
    unread = [
        name for name, value in (("creatable_vgpu_types", creatable), ("current_vgpu_type", current)) if value is None
    ]
    return VirtualFunction(
        address=address,
        current_id=current,
        creatable=parse_creatable(creatable or ""),
        problem=f"{address}: cannot read {' and '.join(unread)}" if unread else None,
    )


def vf_key(address: str) -> str:
    """Name of a virtual function's vGPU in the ledger."""
    return f"vf:{address}"


class TypedFunctions:
    def __init__(self, files: DeviceFiles) -> None:
        self._files, self._places = files, VgpuPlaces(files)
        self._paths = files.paths
        self._ledger = files.ledger

    @property
    def handlers(self) -> Handlers:
        return {ClearVgpuType: self.remove}

    def make(self, action: MakeVgpu) -> ActionResult:
        """:raises Conflict: ``vgpu.foreign``, ``vgpu.differs``, ``vgpu.placement_refused``
        :raises Fatal: ``vgpu.no_room`` and sysfs/write.py's"""
        check_address(action.parent)
        if action.at is None:
            return self._make(action)
        return self._places.make(
            action.at.start,
            action.parent,
            self._paths.pci(action.parent),
            make=lambda: self._make(action),
            remove=lambda: self.take_back(action),
        )

    def _make(self, action: MakeVgpu) -> ActionResult:
        self._files.check_managed(action.parent)
        key = vf_key(action.parent)
        function = self._function(action.parent)
        self._check_settled(function)
        if function.current_id:
            self._files.check_owner(key, action.vm, action.parent)
            owner = self._ledger.owner(key)
            if owner is None or owner.detail != f"{function.current_id} {action.type_name}":
                raise Conflict("vgpu.differs", "the virtual function has another vGPU type", details=action.parent)
            return ActionResult(changed=False)
        type_id = next((number for number, name in function.creatable if name == action.type_name), None)
        if type_id is None:
            raise no_room(action.parent, action.type_name)
        self._ledger.claim(key, action.vm, detail=f"{type_id} {action.type_name}", until_reboot=True)
        self._files.write_new(
            self._type_file(action.parent),
            str(type_id),
            key,
            exists=lambda: self._function(action.parent).current_id == type_id,
        )
        return ActionResult(changed=True)

    def remove(self, action: ClearVgpuType) -> ActionResult:
        """A type that another owner put there is left alone: this VM's is gone, for a function outlives its vGPUs.

        :raises Conflict: ``vgpu.in_use``
        """
        key = vf_key(action.vf)
        check_address(action.vf)
        if not is_vendor_vfio(self._paths, action.vf):
            self._files.release(key, action.vm)  # its virtual functions are off: the driver cleared the type with them
            return ActionResult(changed=False, cleaned="absent")
        owner, function = self._ledger.owner(key), self._function(action.vf)
        if owner is None or owner.vm != action.vm:
            nobodys = owner is None and function.current_id  # it may be the VM's still
            return ActionResult(changed=False, cleaned="" if nobodys else "absent")
        self._check_settled(function)
        if not _still_as_made(owner, function):
            self._ledger.release(key)
            return ActionResult(changed=False, cleaned="absent")
        self._files.check_unused(self._paths.pci(action.vf), action.vf)
        self._files.write_gone(self._type_file(action.vf), "0", gone=lambda: self._function(action.vf).current_id == 0)
        self._ledger.release(key)
        return ActionResult(changed=True, cleaned="vgpu_destroyed")

    def take_back(self, made: MakeVgpu) -> ActionResult:
        return self.remove(ClearVgpuType(vm=made.vm, vf=made.parent))

    def adopt(self, vm: str, device: Device) -> None:
        self._files.check_managed(device.parent)
        function = self._function(device.parent)
        names = {**dict(function.creatable), **self._files.type_names()}
        if not function.current_id or names.get(function.current_id) != device.type_name:
            raise not_as_seen(device.parent)
        detail = f"{function.current_id} {device.type_name}"
        self._ledger.claim(vf_key(device.parent), vm, detail=detail, until_reboot=True)

    def release(self, vm: str, device: Device) -> None:
        self._files.release(vf_key(device.parent), vm)

    def forget_gone(self, vm: str) -> None:
        for address in self._files.owned_by(vm, vf_key("")):
            is_empty = reading.number(self._type_file(address)) == 0 or not is_vendor_vfio(self._paths, address)
            if is_empty and not is_being_written(self._paths, self._type_file(address)):
                self._ledger.release(vf_key(address))

    def owner_of(self, name: str) -> str | None:
        return self._files.owner_of(vf_key(name))

    def parameters_file(self, name: str) -> Path | None:
        return self._paths.pci(name) / "nvidia" / "vgpu_params"

    def check_may_make(self, name: str) -> None:
        """One that is not there, since virtual functions are off, nobody can have; starting asks again."""
        if is_pci_address(name) and self._paths.pci(name).exists():
            self._files.check_managed(name)

    def names_on(self, functions: Iterable[str]) -> Iterator[str]:
        return (vgpu.name for vgpu in self.vgpus_on(functions))

    def vgpus_on(self, functions: Iterable[str]) -> Iterator[FoundVgpu]:
        return (
            FoundVgpu(name=address, function=address, gpu_instance=gpu_instance(self._paths.pci(address)))
            for address in functions
            if is_vendor_vfio(self._paths, address) and read(self._paths, address).current_id != 0
        )

    def observe(self, shared: Observation) -> _ObservedFunctions:
        return _ObservedFunctions(self._files, shared)

    def _function(self, address: str) -> VirtualFunction:
        function = read(self._paths, address)
        if function.problem is not None or function.current_id is None:
            raise function_gone(function.problem)
        return function

    def _type_file(self, address: str) -> Path:
        return self._paths.pci(address) / "nvidia" / "current_vgpu_type"

    def _check_settled(self, function: VirtualFunction) -> None:
        """A function reads 0 while a write of its type still hangs, and has the type afterwards.

        :raises Unknown: ``vgpu.create_hung``
        """
        file = self._type_file(function.address)
        if not function.current_id and is_being_written(self._paths, file):
            raise still_hangs(file)


class _ObservedFunctions(ObservedKind):
    def __init__(self, files: DeviceFiles, shared: Observation) -> None:
        self._paths, self._ledger, self._shared = files.paths, files.ledger, shared

    def offered_on(self, gpu: PciGpu) -> bool:
        return any(is_vendor_vfio(self._paths, function) for function in gpu.virtual_functions)

    def parents(self, gpu: PciGpu, problems: list[str]) -> tuple[VgpuParent, ...]:
        functions = [read(self._paths, function) for function in gpu.virtual_functions]
        problems.extend(function.problem for function in functions if function.problem is not None)
        names = {**{number: name for f in functions for number, name in f.creatable}, **self._shared.type_names}
        return tuple(self._parent(function, names) for function in functions)

    def _parent(self, function: VirtualFunction, names: Mapping[int, str]) -> VgpuParent:
        current = function.current_id
        # A function that cannot be read must not look free: it gets a type that nothing else has.
        shown = "unknown" if current is None else names.get(current, f"nvidia-{current}") if current else None
        return VgpuParent(
            address=function.address,
            is_vf=True,
            current_type=shown,
            creatable=tuple(name for _, name in function.creatable),
            mdevs=(),
            owner=self._owner(function) if current else None,
            in_use=open_files.in_use(self._paths.pci(function.address), self._shared.opened),
            gpu_instance=gpu_instance(self._paths.pci(function.address)) if current else None,
            placement_id=placement_id(self._paths.pci(function.address)) if current else None,
        )

    def _owner(self, function: VirtualFunction) -> str | None:
        """The owner in the ledger, unless somebody else put another type there since."""
        owner = self._ledger.owner(vf_key(function.address))
        return owner.vm if owner is not None and _still_as_made(owner, function) else None


def _still_as_made(owner: Ownership, function: VirtualFunction) -> bool:
    """Whether the function still has the type its owner set: not none, and not what somebody set there since."""
    return owner.detail.split(" ", 1)[0] == str(function.current_id)
