# SPDX-License-Identifier: Apache-2.0
"""A VM's own disk becomes larger, on the host or in a pool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orchestrator.agent.images.disk_images import grow_overlay, image_format_of, read_header
from orchestrator.agent.images.store import Storage
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.actions.volumes import GrowDisk
from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.hosts.volume_key import passphrase_of
from orchestrator.core.units import show_size
from orchestrator.core.vms.vm import MAX_DISK_BYTES


def grow_disk(storage: Storage, action: GrowDisk, for_guest: Callable[[str, Path, int], bool]) -> ActionResult:
    """``for_guest``: makes it larger for a VM that runs, whose guest learns of it; False: it does not run.

    :raises NotFound: ``volume.missing``; :raises InvalidInput: ``volume.size_invalid``
    :raises Conflict: ``volume.differs``, ``volume.in_use``, ``vm.file_foreign``, ``volume.no_key``
    :raises Fatal: ``volume.failed``, ``volume.resize_refused``"""
    path, vm = storage.disk_path(action.volume), action.vm
    if not path.exists():
        raise NotFound("volume.missing", "the VM's disk is not on the host", hint="look at the host")
    storage.check_file_of(vm, str(path))
    if action.size_bytes > MAX_DISK_BYTES:
        raise InvalidInput("volume.size_invalid", f"no disk has {action.size_bytes} bytes", hint="64TiB at most")
    before = check_not_larger(path, action.size_bytes)
    if not for_guest(vm, path, action.size_bytes):
        storage.check_closed(path, "volume")
        base = path.parent.parent / "images" / (storage.image_beneath(vm, path.name) or "")
        passphrase = passphrase_of(path.name, action.keys)
        beneath = image_format_of(base)
        grow_overlay(path, base=base, base_format=beneath, size_bytes=action.size_bytes, passphrase=passphrase)
    return ActionResult(changed=before != action.size_bytes)


def check_not_larger(disk: Path, size_bytes: int) -> int:
    """How large a VM's disk is. A growth that was abandoned may have left a larger one than its VM is said to have.

    :raises Conflict: ``volume.differs``"""
    size = read_header(disk, "qcow2").virtual_bytes
    if size > size_bytes:
        words = f"the VM's disk has {show_size(size)} on its host, and never shrinks"
        hint = f"'vgpuctl vm resize-disk NAME --size {show_size(size)}' makes that its size"
        raise Conflict("volume.differs", words, hint=hint, details=disk.name)
    return size
