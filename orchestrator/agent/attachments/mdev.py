# SPDX-License-Identifier: Apache-2.0
"""Mediated devices on a host: made, removed, adopted and observed.

Layout: Linux Documentation/driver-api/vfio-mediated-device.rst; type directories are named ``nvidia-<type id>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.attachments.device_files import DeviceFiles, no_room, not_as_seen, still_hangs
from orchestrator.agent.attachments.kind import Handlers, Observation, ObservedKind
from orchestrator.agent.attachments.placing import FoundVgpu, VgpuPlaces, gpu_instance, placement_id
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import open_files, reading
from orchestrator.agent.sysfs.pci import PciGpu
from orchestrator.core.actions.host_actions import ActionResult, MakeVgpu, RemoveMdev
from orchestrator.core.errors import Conflict, Fatal, InvalidInput
from orchestrator.core.gpu.device import Device, Mdev, VgpuParent
from orchestrator.core.hosts.snapshot import HostVgpuType
from orchestrator.core.names import is_uuid

_TYPE_DIRECTORY = re.compile(r"nvidia-(?P<id>[0-9]+)", re.ASCII)


@dataclass(frozen=True)
class MdevType:
    """One directory below ``mdev_supported_types``."""

    directory: Path
    type_id: int
    name: str

    def available(self) -> int | None:
        """How many more of it the driver would make here now."""
        return reading.number(self.directory / "available_instances")

    def description(self) -> str:
        """The driver's free text; empty where it has none."""
        return reading.text(self.directory / "description") or ""


@dataclass(frozen=True)
class MdevDevice:
    """One directory below ``/sys/bus/mdev/devices``."""

    uuid: str
    parent: str
    type_name: str
    """Empty while the driver has not come back from making it."""
    directory: Path


def mdev_devices(paths: Paths) -> Path:
    return paths.root / "sys/bus/mdev/devices"


def type_id_of(directory_name: str) -> int | None:
    """558 of ``nvidia-558``."""
    match = _TYPE_DIRECTORY.fullmatch(directory_name)
    return None if match is None else int(match["id"])


def _type_name(directory: Path, type_id: int, names: Mapping[int, str]) -> str:
    """The attribute ``name`` is optional: then the driver library's name for the id, then the directory's."""
    return reading.text(directory / "name") or names.get(type_id) or directory.name


def offers_types(paths: Paths, address: str) -> bool:
    return reading.is_there(f"{paths.pci_devices}/{address}/mdev_supported_types")


def types(paths: Paths, address: str, names: Mapping[int, str]) -> tuple[MdevType, ...]:
    """Types of one PCI function. ``names``: type id to name, as far as the driver library knows them."""
    parent = paths.pci(address) / "mdev_supported_types"
    offered = []
    for entry in reading.names(parent):
        type_id = type_id_of(entry)
        if type_id is not None:
            offered.append(
                MdevType(
                    directory=parent / entry,
                    type_id=type_id,
                    name=_type_name(parent / entry, type_id, names),
                )
            )
    return tuple(offered)


def find(paths: Paths, uuid: str, names: Mapping[int, str]) -> MdevDevice | None:
    """The device of this UUID on any parent."""
    link = mdev_devices(paths) / uuid
    try:
        directory = link.resolve(strict=True)
    except OSError:
        return None
    type_directory = reading.link_name(directory / "mdev_type") or ""
    type_id = type_id_of(type_directory)
    parent = directory.parent.name
    if type_id is None:
        return MdevDevice(uuid, parent, type_directory, directory)
    type_path = paths.pci(parent) / "mdev_supported_types" / type_directory
    return MdevDevice(uuid, parent, _type_name(type_path, type_id, names), directory)


def all_devices(paths: Paths, names: Mapping[int, str]) -> tuple[MdevDevice, ...]:
    """All mediated devices of the host."""
    devices = [find(paths, uuid, names) for uuid in reading.names(mdev_devices(paths))]
    return tuple(device for device in devices if device is not None)


_DESCRIPTION = re.compile(r"framebuffer=(?P<framebuffer>[0-9]+)M\b.*\bmax_instances?=(?P<most>[0-9]+)", re.ASCII)


def mdev_key(uuid: str) -> str:
    """Name of a mediated device in the ledger."""
    return f"mdev:{uuid}"


class MdevDevices:
    def __init__(self, files: DeviceFiles) -> None:
        self._files, self._places = files, VgpuPlaces(files)
        self._paths = files.paths
        self._ledger = files.ledger

    @property
    def handlers(self) -> Handlers:
        return {RemoveMdev: self.remove}

    def make(self, action: MakeVgpu) -> ActionResult:
        """:raises Conflict: ``vgpu.foreign``, ``vgpu.differs``, ``vgpu.placement_refused``
        :raises Fatal: ``vgpu.type_unknown``, ``vgpu.no_room`` and sysfs/write.py's"""
        uuid = action.uuid or ""
        _check_uuid(uuid)
        if action.at is None:
            return self._make(action, uuid)
        return self._places.make(
            action.at.start,
            action.parent,
            mdev_devices(self._paths) / uuid,
            make=lambda: self._make(action, uuid),
            remove=lambda: self.take_back(action),
        )

    def _make(self, action: MakeVgpu, uuid: str) -> ActionResult:
        self._files.check_managed(action.parent)
        key, wanted = mdev_key(uuid), _made_as(action.parent, action.type_name)
        existing = self._find(uuid)
        if existing is not None:
            self._files.check_owner(key, action.vm, existing.directory.name)
            _check_made(existing)
            if (existing.parent, existing.type_name) != (action.parent, action.type_name):
                raise Conflict(
                    "vgpu.differs", "the vGPU exists with another type or parent", details=str(existing.directory)
                )
            return ActionResult(changed=False)
        offered = self._type(action.parent, action.type_name)
        if offered.available() == 0:
            raise no_room(action.parent, action.type_name)
        self._ledger.claim(key, action.vm, detail=wanted, until_reboot=True)
        self._files.write_new(offered.directory / "create", uuid, key, exists=lambda: self._find(uuid) is not None)
        return ActionResult(changed=True)

    def remove(self, action: RemoveMdev) -> ActionResult:
        """:raises Conflict: ``vgpu.foreign``, ``vgpu.in_use``"""
        _check_uuid(action.uuid)
        key = mdev_key(action.uuid)
        existing = self._find(action.uuid)
        if existing is None:
            self._files.release(key, action.vm)
            return ActionResult(changed=False, cleaned="absent")
        self._files.check_owner(key, action.vm, action.uuid)
        _check_made(existing)
        self._files.check_unused(existing.directory, action.uuid)
        self._files.write_gone(existing.directory / "remove", "1", gone=lambda: self._find(action.uuid) is None)
        self._ledger.release(key)
        return ActionResult(changed=True, cleaned="vgpu_destroyed")

    def take_back(self, made: MakeVgpu) -> ActionResult:
        return self.remove(RemoveMdev(vm=made.vm, uuid=made.uuid or ""))

    def adopt(self, vm: str, device: Device) -> None:
        self._files.check_managed(device.parent)
        _check_uuid(device.name)
        existing = self._find(device.name)
        if existing is None or (existing.parent, existing.type_name) != (device.parent, device.type_name):
            raise not_as_seen(device.name)
        made_as = _made_as(device.parent, device.type_name)
        self._ledger.claim(mdev_key(device.name), vm, detail=made_as, until_reboot=True)

    def release(self, vm: str, device: Device) -> None:
        self._files.release(mdev_key(device.name), vm)

    def forget_gone(self, vm: str) -> None:
        for uuid in self._files.owned_by(vm, mdev_key("")):
            if self._find(uuid) is None:
                self._ledger.release(mdev_key(uuid))

    def owner_of(self, name: str) -> str | None:
        return self._files.owner_of(mdev_key(name))

    def parameters_file(self, name: str) -> Path | None:
        return mdev_devices(self._paths) / name / "nvidia" / "vgpu_params"

    def check_may_make(self, name: str) -> None:
        if is_uuid(name) and self._find(name) is not None:
            self._files.check_owner(mdev_key(name), "", name)

    def names_on(self, functions: Iterable[str]) -> Iterator[str]:
        return (vgpu.name for vgpu in self.vgpus_on(functions))

    def vgpus_on(self, functions: Iterable[str]) -> Iterator[FoundVgpu]:
        wanted = frozenset(functions)
        return (
            FoundVgpu(name=device.uuid, function=device.parent, gpu_instance=gpu_instance(device.directory))
            for device in all_devices(self._paths, {})
            if device.parent in wanted
        )

    def observe(self, shared: Observation) -> _ObservedMdevs:
        return _ObservedMdevs(self._files, shared)

    def _find(self, uuid: str) -> MdevDevice | None:
        return find(self._paths, uuid, self._files.type_names())

    def _type(self, parent: str, type_name: str) -> MdevType:
        for offered in types(self._paths, parent, self._files.type_names()):
            if offered.name == type_name:
                return offered
        raise Fatal(
            "vgpu.type_unknown",
            f"{parent} does not offer {type_name}",
            hint="'vgpuctl gpu list --host HOST' tells what fits; are its virtual functions enabled?",
        )


class _ObservedMdevs(ObservedKind):
    def __init__(self, files: DeviceFiles, shared: Observation) -> None:
        self._paths, self._ledger, self._shared = files.paths, files.ledger, shared
        self._existing = all_devices(files.paths, shared.type_names)

    def offered_on(self, gpu: PciGpu) -> bool:
        return any(offers_types(self._paths, address) for address in (gpu.address, *gpu.virtual_functions))

    def parents(self, gpu: PciGpu, _problems: list[str]) -> tuple[VgpuParent, ...]:
        return tuple(
            self._parent(address, is_vf=address != gpu.address)
            for address in (gpu.address, *gpu.virtual_functions)
            if offers_types(self._paths, address)
        )

    def types(self, gpu: PciGpu) -> Iterator[HostVgpuType]:
        """What the types' descriptions say (``… framebuffer=2048M, … max_instance=8``)."""
        for address in (gpu.address, *gpu.virtual_functions):
            for offered in types(self._paths, address, self._shared.type_names):
                match = _DESCRIPTION.search(offered.description())
                if match is not None:
                    yield HostVgpuType(
                        name=offered.name,
                        type_id=offered.type_id,
                        framebuffer_mib=int(match["framebuffer"]),
                        max_instances=int(match["most"]),
                    )

    def _parent(self, address: str, *, is_vf: bool) -> VgpuParent:
        devices = [device for device in self._existing if device.parent == address]
        offered = types(self._paths, address, self._shared.type_names)
        return VgpuParent(
            address=address,
            is_vf=is_vf,
            current_type=None,
            creatable=tuple(type_.name for type_ in offered if type_.available()),
            mdevs=tuple(self._mdev(device) for device in devices),
            owner=None,
            in_use=self._any_in_use(devices),
            gpu_instance=next((gpu_instance(device.directory) for device in devices if is_vf), None),
        )

    def _mdev(self, device: MdevDevice) -> Mdev:
        return Mdev(
            uuid=device.uuid, type_name=device.type_name, owner=self._owner(device),
            placement_id=placement_id(device.directory),
        )  # fmt: skip

    def _owner(self, device: MdevDevice) -> str | None:
        owner = self._ledger.owner(mdev_key(device.uuid))
        return None if owner is None else owner.vm

    def _any_in_use(self, devices: list[MdevDevice]) -> bool | None:
        answers = [open_files.in_use(device.directory, self._shared.opened) for device in devices]
        return True if True in answers else None if None in answers else False


def _check_uuid(text: str) -> None:
    """The kernel's own form: it also keeps the text from being a path."""
    if not is_uuid(text):
        raise InvalidInput("vgpu.uuid_invalid", f"{ascii(text)[:60]} is not a lower-case UUID")


def _made_as(parent: str, type_name: str) -> str:
    return f"{parent} {type_name}"


def _check_made(device: MdevDevice) -> None:
    """Writing ``remove`` while ``create`` still hangs is answered with EAGAIN and takes the file away for good
    (linux drivers/vfio/mdev: the file goes before ``active`` is looked at), so that only a reboot would help.

    :raises Unknown: ``vgpu.create_hung``
    """
    if not device.type_name:
        raise still_hangs(device.directory)
