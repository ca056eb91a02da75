# SPDX-License-Identifier: Apache-2.0
"""Data volumes and the VMs that have them, for scenes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.services.vms.volumes import VolumeTraits
from tests.fakes.control_plane import GIB, L40S_HOST, T4_HOST, ControlPlane, create_vm

SIZE = 2 * GIB


def hosts(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    plane.add_host(L40S_HOST)


def new_volume(plane: ControlPlane, name: str = "data") -> None:
    plane.services.volumes.create("default", name, SIZE)


def new_encrypted(plane: ControlPlane, name: str = "data") -> None:
    plane.services.volumes.create("default", name, SIZE, traits=VolumeTraits(encrypted=True))


def with_encrypted(plane: ControlPlane) -> None:
    hosts(plane)
    new_encrypted(plane)


def with_stopped_vm_and_encrypted(plane: ControlPlane) -> None:
    with_encrypted(plane)
    plane.services.vms.create(create_vm(start=False))
    plane.engine.drain()


def with_running_vm_and_encrypted(plane: ControlPlane) -> None:
    with_stopped_vm_and_encrypted(plane)
    plane.services.vms.start("default", "train")
    plane.engine.drain()


def with_stopped_vm_that_has_encrypted(plane: ControlPlane) -> None:
    with_stopped_vm_and_encrypted(plane)
    attach(plane)
    plane.engine.drain()


def with_running_vm_that_has_encrypted(plane: ControlPlane) -> None:
    with_running_vm_and_encrypted(plane)
    attach(plane)
    plane.engine.drain()


def create_encrypted_vm(plane: ControlPlane, *, start: bool = True) -> str | None:
    return plane.services.vms.create(replace(create_vm(start=start), encrypted=True)).operation


def with_stopped_encrypted_vm(plane: ControlPlane) -> None:
    with_encrypted(plane)
    create_encrypted_vm(plane, start=False)
    plane.engine.drain()


def with_running_encrypted_vm(plane: ControlPlane) -> None:
    with_encrypted(plane)
    create_encrypted_vm(plane)
    plane.engine.drain()


def grow_disk(plane: ControlPlane) -> str | None:
    return plane.services.disk_growth.resize("default", "train", 8 * GIB).operation


def with_made_encrypted(plane: ControlPlane) -> None:
    with_stopped_vm_that_has_encrypted(plane)
    plane.services.vms.delete("default", "train")
    plane.engine.drain()


def start(plane: ControlPlane) -> str | None:
    return plane.services.vms.start("default", "train").operation


def with_volume(plane: ControlPlane) -> None:
    hosts(plane)
    new_volume(plane)


def with_stopped_vm(plane: ControlPlane) -> None:
    with_volume(plane)
    plane.services.vms.create(create_vm(start=False))
    plane.engine.drain()


def create(plane: ControlPlane) -> str | None:
    """With one volume that is new and one that lies on its host already, where there is such a one."""
    names = tuple(one.volume.name for one in plane.services.volumes.list(None))
    return plane.services.vms.create(replace(create_vm(), volumes=names)).operation


def with_made_volume(plane: ControlPlane) -> None:
    """One that a VM had, which is gone, and one that is new."""
    with_vm_that_has_it(plane)
    plane.services.vms.delete("default", "train")
    plane.engine.drain()


def with_both(plane: ControlPlane) -> None:
    with_made_volume(plane)
    new_volume(plane, "scratch")


def with_vm_that_has_it(plane: ControlPlane) -> None:
    with_stopped_vm(plane)
    attach(plane)
    plane.engine.drain()


def with_running_vm_that_has_it(plane: ControlPlane) -> None:
    with_vm_that_has_it(plane)
    plane.services.vms.start("default", "train")
    plane.engine.drain()


def attach(plane: ControlPlane) -> str | None:
    return plane.services.volumes.attach("default", "data", "train").operation


def detach(plane: ControlPlane) -> str | None:
    return plane.services.volumes.detach("default", "data", "train").operation


def delete(plane: ControlPlane) -> str | None:
    return plane.services.volumes.delete("default", "data").operation


def delete_vm(plane: ControlPlane) -> str | None:
    return plane.services.vms.delete("default", "train").operation


def grow(plane: ControlPlane) -> str | None:
    return plane.services.volumes.resize("default", "data", 2 * SIZE).operation


def limit(plane: ControlPlane) -> str | None:
    return plane.services.volumes.limit("default", "data", None, 300).operation


def with_snapshot(prepare: Callable[[ControlPlane], None]) -> Callable[[ControlPlane], None]:
    def with_one(plane: ControlPlane) -> None:
        prepare(plane)
        snapshot(plane)
        plane.engine.drain()

    return with_one


def snapshot(plane: ControlPlane, name: str = "before") -> str | None:
    return plane.services.volume_snapshots.create("default", "data", name).operation


def delete_snapshot(plane: ControlPlane) -> str | None:
    return plane.services.volume_snapshots.delete("default", "data", "before").operation


def restore(plane: ControlPlane) -> str | None:
    return plane.services.volume_snapshots.restore("default", "data", "before").operation


def copy(plane: ControlPlane, name: str = "twin", size_bytes: int | None = None, pool: str | None = None) -> str | None:
    snapshots = plane.services.volume_snapshots
    return snapshots.copy("default", ("data", "before"), name, size_bytes, DiskLimits(), pool).operation


def with_running_vm(plane: ControlPlane) -> None:
    with_stopped_vm(plane)
    plane.services.vms.start("default", "train")
    plane.engine.drain()


def with_data_set(plane: ControlPlane) -> None:
    """A volume that a VM has filled, and another VM."""
    with_made_volume(plane)
    plane.services.vms.create(create_vm())
    plane.engine.drain()


def read(plane: ControlPlane, vm: str = "train") -> str | None:
    return plane.services.volumes.attach("default", "data", vm, read_only=True).operation


def create_reading(plane: ControlPlane) -> str | None:
    return plane.services.vms.create(replace(create_vm(), volumes=("data:ro",))).operation


def with_reader(plane: ControlPlane) -> None:
    with_data_set(plane)
    read(plane)
    plane.engine.drain()


CASES = (
    ("create with a new volume", "create_vm", with_volume, create),
    ("create with volumes", "create_vm", with_both, create),
    ("attach a new volume", "attach_volume", with_stopped_vm, attach),
    ("detach volume", "detach_volume", with_vm_that_has_it, detach),
    ("plug volume in", "attach_volume", with_running_vm, attach),
    ("plug volume out", "detach_volume", with_running_vm_that_has_it, detach),
    ("grow volume", "grow_volume", with_made_volume, grow),
    ("grow volume of a running vm", "grow_volume", with_running_vm_that_has_it, grow),
    ("limit volume", "limit_volume", with_vm_that_has_it, limit),
    ("limit volume of a running vm", "limit_volume", with_running_vm_that_has_it, limit),
    ("delete vm with a volume", "delete_vm", with_running_vm_that_has_it, delete_vm),
    ("delete volume", "delete_volume", with_made_volume, delete),
    ("read volume", "attach_volume", with_data_set, read),
    ("create with a volume to read", "create_vm", with_made_volume, create_reading),
    ("end reading a volume", "detach_volume", with_reader, detach),
    ("delete vm that reads a volume", "delete_vm", with_reader, delete_vm),
    ("create with an encrypted volume", "create_vm", with_encrypted, create),
    ("plug an encrypted volume in", "attach_volume", with_running_vm_and_encrypted, attach),
    ("plug an encrypted volume out", "detach_volume", with_running_vm_that_has_encrypted, detach),
    ("start vm with an encrypted volume", "start_vm", with_stopped_vm_that_has_encrypted, start),
    ("delete an encrypted volume", "delete_volume", with_made_encrypted, delete),
    ("create an encrypted vm", "create_vm", with_encrypted, create_encrypted_vm),
    ("start an encrypted vm", "start_vm", with_stopped_encrypted_vm, start),
    ("plug a volume into an encrypted vm", "attach_volume", with_running_encrypted_vm, attach),
    ("grow an encrypted disk", "grow_disk", with_stopped_encrypted_vm, grow_disk),
    ("delete an encrypted vm", "delete_vm", with_running_encrypted_vm, delete_vm),
    ("snapshot of a volume", "create_volume_snapshot", with_made_volume, snapshot),
    ("snapshot of a volume of a running vm", "create_volume_snapshot", with_running_vm_that_has_it, snapshot),
    ("delete snapshot of a volume", "delete_volume", with_snapshot(with_made_volume), delete_snapshot),
    ("restore volume", "restore_volume_snapshot", with_snapshot(with_made_volume), restore),
    ("restore volume of a stopped vm", "restore_volume_snapshot", with_snapshot(with_vm_that_has_it), restore),
    ("volume from snapshot", "copy_volume", with_snapshot(with_running_vm_that_has_it), copy),
)
"""Name, kind, the world before, what begins it."""
