# SPDX-License-Identifier: Apache-2.0
"""Making and removing vGPUs. Always: read, decide, write, read again.

The driver answers a second write of a type, and the clearing of an empty function, with EPERM;
so "already so" is found by reading and never by an errno.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from orchestrator.agent.ledger import Ledger, Ownership
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import mdev, open_files, pci, vendor_vfio
from orchestrator.agent.sysfs.write import is_being_written, write
from orchestrator.agent.timing import Timing
from orchestrator.core.errors import Conflict, Denied, Fatal, InvalidInput, Retryable, Unknown
from orchestrator.core.host_actions import (
    ActionResult,
    AdoptDomain,
    ClearVgpuType,
    CreateMdev,
    ReleaseDomain,
    RemoveMdev,
    SetVgpuType,
)
from orchestrator.core.pci import parse_pci_address

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)

_BUSY_TRIES = 4
_BUSY_SECONDS = 0.5


def mdev_key(uuid: str) -> str:
    """Name of a mediated device in the ledger."""
    return f"mdev:{uuid}"


def vf_key(address: str) -> str:
    """Name of a virtual function's vGPU in the ledger."""
    return f"vf:{address}"


class Vgpus:
    def __init__(
        self,
        paths: Paths,
        ledger: Ledger,
        timing: Timing,
        type_names: Callable[[], dict[int, str]],
        kernel_write: Callable[[Path, str], None] = write,
    ) -> None:
        """``type_names``: type ids and names as the driver library gives them, for types that sysfs does not name.
        ``kernel_write``: writes a kernel file or raises by errno_table.py."""
        self._write_file = kernel_write
        self._paths = paths
        self._ledger = ledger
        self._timing = timing
        self._type_names = type_names

    def create_mdev(self, action: CreateMdev) -> ActionResult:
        """:raises Conflict: ``vgpu.foreign``, ``vgpu.differs``
        :raises Fatal: ``vgpu.type_unknown``, ``vgpu.no_room`` and errno_table.py's"""
        _check_uuid(action.uuid)
        self._check_managed(action.parent)
        key, wanted = mdev_key(action.uuid), _made_as(action.parent, action.type_name)
        there = self._find_mdev(action.uuid)
        if there is not None:
            self._check_owner(key, action.vm, there.directory.name)
            _check_made(there)
            if (there.parent, there.type_name) != (action.parent, action.type_name):
                raise Conflict(
                    "vgpu.differs", "the vGPU exists with another type or parent", details=str(there.directory)
                )
            return ActionResult(changed=False)
        offered = self._mdev_type(action.parent, action.type_name)
        if offered.available() == 0:
            raise _no_room(action.parent, action.type_name)
        self._ledger.claim(key, action.vm, detail=wanted, until_reboot=True)
        self._write_new(
            offered.directory / "create", action.uuid, key, exists=lambda: self._find_mdev(action.uuid) is not None
        )
        return ActionResult(changed=True)

    def remove_mdev(self, action: RemoveMdev) -> ActionResult:
        """:raises Conflict: ``vgpu.foreign``, ``vgpu.in_use``"""
        _check_uuid(action.uuid)
        key = mdev_key(action.uuid)
        there = self._find_mdev(action.uuid)
        if there is None:
            self._release(key, action.vm)
            return ActionResult(changed=False)
        self._check_owner(key, action.vm, action.uuid)
        _check_made(there)
        self._check_unused(there.directory, action.uuid)
        self._write_gone(there.directory / "remove", "1", gone=lambda: self._find_mdev(action.uuid) is None)
        self._ledger.release(key)
        return ActionResult(changed=True)

    def set_type(self, action: SetVgpuType) -> ActionResult:
        """:raises Conflict: ``vgpu.foreign``, ``vgpu.differs``
        :raises Fatal: ``vgpu.no_room`` and errno_table.py's"""
        self._check_managed(action.vf)
        key = vf_key(action.vf)
        function = self._function(action.vf)
        self._check_settled(function)
        if function.current_id:
            self._check_owner(key, action.vm, action.vf)
            if self._ledger_detail(key) != f"{function.current_id} {action.type_name}":
                raise Conflict("vgpu.differs", "the virtual function has another vGPU type", details=action.vf)
            return ActionResult(changed=False)
        type_id = next((number for number, name in function.creatable if name == action.type_name), None)
        if type_id is None:
            raise _no_room(action.vf, action.type_name)
        self._ledger.claim(key, action.vm, detail=f"{type_id} {action.type_name}", until_reboot=True)
        self._write_new(
            self._type_file(action.vf),
            str(type_id),
            key,
            exists=lambda: self._function(action.vf).current_id == type_id,
        )
        return ActionResult(changed=True)

    def clear_type(self, action: ClearVgpuType) -> ActionResult:
        """A type that another owner put there is left alone: this VM's is gone, for a function outlives its vGPUs.

        :raises Conflict: ``vgpu.in_use``
        """
        key = vf_key(action.vf)
        _check_address(action.vf)
        if not vendor_vfio.is_vendor_vfio(self._paths, action.vf):
            self._release(key, action.vm)  # its virtual functions are off: the driver cleared the type with them
            return ActionResult(changed=False)
        owner, function = self._ledger.owner(key), self._function(action.vf)
        if owner is None or owner.vm != action.vm:
            return ActionResult(changed=False)
        self._check_settled(function)
        if not still_as_made(owner, function):
            self._ledger.release(key)
            return ActionResult(changed=False)
        self._check_unused(self._paths.pci(action.vf), action.vf)
        self._write_gone(self._type_file(action.vf), "0", gone=lambda: self._function(action.vf).current_id == 0)
        self._ledger.release(key)
        return ActionResult(changed=True)

    def adopt(self, action: AdoptDomain) -> None:
        """Write down that a vGPU which somebody else made is this VM's now.

        :raises Conflict: ``vgpu.differs``, ``host.owned_by_other``; :raises Denied: ``gpu.not_managed``
        """
        self._check_managed(action.parent)
        if action.mdev_uuid is not None:
            _check_uuid(action.mdev_uuid)
            there = self._find_mdev(action.mdev_uuid)
            if there is None or (there.parent, there.type_name) != (action.parent, action.type_name):
                raise _not_as_seen(action.mdev_uuid)
            made_as = _made_as(action.parent, action.type_name)
            self._ledger.claim(mdev_key(action.mdev_uuid), action.vm, detail=made_as, until_reboot=True)
            return
        function = self._function(action.parent)
        names = {**dict(function.creatable), **self._type_names()}
        if not function.current_id or names.get(function.current_id) != action.type_name:
            raise _not_as_seen(action.parent)
        detail = f"{function.current_id} {action.type_name}"
        self._ledger.claim(vf_key(action.parent), action.vm, detail=detail, until_reboot=True)

    def release(self, action: ReleaseDomain) -> None:
        """Forget the owner of a vGPU that is left as it is."""
        key = vf_key(action.parent) if action.mdev_uuid is None else mdev_key(action.mdev_uuid)
        self._release(key, action.vm)

    def _write_new(self, file: Path, value: str, key: str, *, exists: Callable[[], bool]) -> None:
        """Write what makes a vGPU; the ledger keeps the owner when it exists or may yet come to exist."""
        try:
            self._retry(file, value, done=exists)
        except Unknown:
            raise
        except (Fatal, Retryable):
            if not exists():
                self._ledger.release(key)
            raise
        if not exists():
            raise Unknown("vgpu.not_seen", "the driver took the request and shows no vGPU", details=str(file))

    def _write_gone(self, file: Path, value: str, *, gone: Callable[[], bool]) -> None:
        """Write what removes a vGPU. Whatever the kernel says, gone is gone."""
        try:
            self._retry(file, value, done=gone)
        except (Fatal, Retryable):
            if not gone():
                raise
        if not gone():
            raise Unknown("vgpu.not_gone", "the driver took the request and still shows the vGPU", details=str(file))

    def _retry(self, file: Path, value: str, *, done: Callable[[], bool]) -> None:
        """Try again a few times while the driver is busy (EBUSY), each time after reading."""
        for tries_left in reversed(range(_BUSY_TRIES)):
            try:
                self._write_file(file, value)
                return
            except Retryable:
                if done():
                    return
                if not tries_left:
                    raise
                self._timing.sleep(self._timing.jitter(_BUSY_SECONDS))

    def _find_mdev(self, uuid: str) -> mdev.MdevDevice | None:
        return mdev.find(self._paths, uuid, self._type_names())

    def _mdev_type(self, parent: str, type_name: str) -> mdev.MdevType:
        for offered in mdev.types(self._paths, parent, self._type_names()):
            if offered.name == type_name:
                return offered
        raise Fatal(
            "vgpu.type_unknown",
            f"{parent} does not offer {type_name}",
            hint="see vgpuctl gpu show; are its virtual functions enabled?",
        )

    def _function(self, address: str) -> vendor_vfio.VirtualFunction:
        function = vendor_vfio.read(self._paths, address)
        if function.problem is not None or function.current_id is None:
            raise _function_gone(function.problem)
        return function

    def _type_file(self, address: str) -> Path:
        return self._paths.pci(address) / "nvidia" / "current_vgpu_type"

    def _check_settled(self, function: vendor_vfio.VirtualFunction) -> None:
        """A function reads 0 while a write of its type still hangs, and has the type afterwards.

        :raises Unknown: ``vgpu.create_hung``
        """
        file = self._type_file(function.address)
        if not function.current_id and is_being_written(self._paths, file):
            raise _still_hangs(file)

    def _check_managed(self, address: str) -> None:
        _check_address(address)
        if not self._paths.pci(address).exists():  # whose it would be cannot be told while functions are off
            raise _function_gone(address)
        check_managed(self._ledger, pci.physical_gpu(self._paths, address))

    def _check_owner(self, key: str, vm: str, shown: str) -> None:
        owner = self._ledger.owner(key)
        if owner is None or owner.vm != vm:
            raise Conflict("vgpu.foreign", "the vGPU there is not this VM's", hint="look at the host", details=shown)

    def _check_unused(self, device: Path, shown: str) -> None:
        if open_files.in_use(device, open_files.open_vfio_devices(self._paths)) is not False:
            raise Conflict("vgpu.in_use", "a process still uses the vGPU", hint="stop the VM first", details=shown)

    def _ledger_detail(self, key: str) -> str:
        owner = self._ledger.owner(key)
        return "" if owner is None else owner.detail

    def _release(self, key: str, vm: str) -> None:
        """Forget an owner whose vGPU is gone, but nobody else's."""
        owner = self._ledger.owner(key)
        if owner is not None and owner.vm == vm:
            self._ledger.release(key)


def still_as_made(owner: Ownership, function: vendor_vfio.VirtualFunction) -> bool:
    """Whether the function still has the type its owner set: not none, and not what somebody set there since."""
    return owner.detail.split(" ", 1)[0] == str(function.current_id)


def check_managed(ledger: Ledger, gpu: str) -> None:
    """:raises Denied: ``gpu.not_managed``"""
    if gpu not in ledger.managed_gpus():
        raise Denied(
            "gpu.not_managed", f"GPU {gpu} was not given to us", hint="see vgpuctl host show for the GPUs that were"
        )


def _check_address(address: str) -> None:
    if address != parse_pci_address(address):
        raise InvalidInput("pci.address_invalid", f"{address} is not the canonical form of a PCI address")


def _check_uuid(text: str) -> None:
    """The kernel's own form: it also keeps the text from being a path."""
    if _UUID.fullmatch(text) is None:
        raise InvalidInput("vgpu.uuid_invalid", f"{ascii(text)[:60]} is not a lower-case UUID")


def _function_gone(details: str | None) -> Fatal:
    return Fatal(
        "vgpu.function_gone",
        "the virtual function cannot be read",
        hint="are virtual functions enabled?",
        details=details,
    )


def _made_as(parent: str, type_name: str) -> str:
    return f"{parent} {type_name}"


def _no_room(address: str, type_name: str) -> Fatal:
    return Fatal(
        "vgpu.no_room",
        f"{address} takes no {type_name} now",
        hint="see vgpuctl gpu show for what fits",
        details="the type is not creatable: the GPU is full, or it carries another size",
    )


def _check_made(device: mdev.MdevDevice) -> None:
    """Writing ``remove`` while ``create`` still hangs is answered with EAGAIN and takes the file away for good
    (linux drivers/vfio/mdev: the file goes before ``active`` is looked at), so that only a reboot would help.

    :raises Unknown: ``vgpu.create_hung``
    """
    if not device.type_name:
        raise _still_hangs(device.directory)


def _not_as_seen(details: str) -> Conflict:
    return Conflict(
        "vgpu.differs",
        "the vGPU is not there any more as it was seen",
        hint="look again: vgpuctl doctor",
        details=details,
    )


def _still_hangs(details: Path) -> Unknown:
    return Unknown(
        "vgpu.create_hung",
        "the GPU driver has not come back from making the vGPU",
        hint="look at the host's kernel log; the vGPU is taken back when the driver answers again",
        details=str(details),
    )
