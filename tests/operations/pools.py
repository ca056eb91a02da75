# SPDX-License-Identifier: Apache-2.0
"""Pools that two hosts of one kind have mounted, and VMs in them, for scenes."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.units import GIB
from orchestrator.services.messages import ResizeVm
from orchestrator.sim.pools import SimulatedPool
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm
from tests.operations import moves, volumes
from tests.operations.moves import MIGRATABLE, OTHER

SIZE = 20 * 1024**3


def mounted(plane: ControlPlane) -> SimulatedPool:
    """On both hosts, and not declared."""
    moves.hosts(plane)
    return mount(plane, "fast")


def mount(plane: ControlPlane, name: str, hosts: tuple[str, ...] = (L40S_HOST, OTHER)) -> SimulatedPool:
    pool = SimulatedPool(name)
    for host in hosts:
        plane.machine(host).pools[name] = pool
        plane.observer.observe(host)
    return pool


def with_slow_pool_too(plane: ControlPlane) -> None:
    """On one host alone; and a snapshot of the volume in the other pool."""
    with_made_volume(plane)
    mount(plane, "slow", (OTHER,))
    plane.services.pools.create("slow")
    volumes.snapshot(plane)
    plane.engine.drain()
    plane.observer.observe(OTHER)


def prepare_mounted(plane: ControlPlane) -> None:
    mounted(plane)


def with_pool(plane: ControlPlane) -> None:
    mounted(plane)
    create(plane)
    plane.engine.drain()
    for host in (L40S_HOST, OTHER):
        plane.observer.observe(host)


def create(plane: ControlPlane) -> str | None:
    return plane.services.pools.create("fast").operation


def delete(plane: ControlPlane) -> str | None:
    return plane.services.pools.delete("fast").operation


def with_volume(plane: ControlPlane) -> None:
    with_pool(plane)
    plane.services.volumes.create("default", "data", SIZE, pool="fast")


def create_in_pool(plane: ControlPlane, *, start: bool = True) -> str | None:
    """With all data volumes that there are."""
    names = tuple(info.volume.name for info in plane.services.volumes.list(None))
    return _create(plane, names, start=start)


def _create(plane: ControlPlane, volumes: tuple[str, ...], *, start: bool = True) -> str | None:
    wanted = create_vm(profile=MIGRATABLE.name, start=start)
    return plane.services.vms.create(replace(wanted, host=L40S_HOST, pool="fast", volumes=volumes)).operation


def create_reading(plane: ControlPlane) -> str | None:
    return _create(plane, ("data:ro",))


def with_reader(plane: ControlPlane) -> None:
    with_made_volume(plane)
    create_reading(plane)
    plane.engine.drain()


def with_vm_beside_volume(plane: ControlPlane) -> None:
    with_made_volume(plane)
    _create(plane, ())
    plane.engine.drain()


def with_stopped_reader(plane: ControlPlane) -> None:
    with_reader(plane)
    plane.services.vms.stop("default", "train")
    plane.engine.drain()


def read(plane: ControlPlane) -> str | None:
    return plane.services.volumes.attach("default", "data", "train", read_only=True).operation


def copy_to_slow(plane: ControlPlane) -> str | None:
    return volumes.copy(plane, pool="slow")


def copy_to_host(plane: ControlPlane) -> str | None:
    return volumes.copy(plane, pool="none")


def end_reading(plane: ControlPlane) -> str | None:
    return plane.services.volumes.detach("default", "data", "train").operation


def with_running_vm(plane: ControlPlane) -> None:
    with_volume(plane)
    with plane.store.begin() as tx:
        tx.offerings.put(MIGRATABLE)
    create_in_pool(plane)
    plane.engine.drain()


def with_image(plane: ControlPlane) -> None:
    """The pool has its own copy of the image, of a VM that is gone."""
    with_made_volume(plane)
    delete_volume(plane)
    plane.engine.drain()
    plane.services.volumes.create("default", "data", SIZE, pool="fast")


def with_stopped_vm(plane: ControlPlane) -> None:
    with_running_vm(plane)
    plane.services.vms.stop("default", "train")
    plane.engine.drain()


def with_made_volume(plane: ControlPlane) -> None:
    with_running_vm(plane)
    plane.services.vms.delete("default", "train")
    plane.engine.drain()


def delete_vm(plane: ControlPlane) -> str | None:
    return plane.services.vms.delete("default", "train").operation


def delete_volume(plane: ControlPlane) -> str | None:
    return plane.services.volumes.delete("default", "data").operation


def grow(plane: ControlPlane) -> str | None:
    return plane.services.volumes.resize("default", "data", 2 * SIZE).operation


def grow_disk(plane: ControlPlane) -> str | None:
    return plane.services.disk_growth.resize("default", "train", 8 * GIB).operation


def resize(plane: ControlPlane) -> str | None:
    wanted = ResizeVm(name="train", tenant="default", profile="NVIDIA L40S-24Q", restart=True)
    return plane.services.resizing.resize(wanted).operation


CASES = (
    ("grow a volume in a pool", "grow_volume", with_made_volume, grow),
    ("grow a volume in a pool under a guest", "grow_volume", with_running_vm, grow),
    ("grow a disk in a pool", "grow_disk", with_running_vm, grow_disk),
    ("resize with a disk in a pool", "resize_running_vm", with_running_vm, resize),
    ("read a volume in a pool", "attach_volume", with_vm_beside_volume, read),
    ("end reading a volume in a pool", "detach_volume", with_reader, end_reading),
    ("create in a pool with a volume to read", "create_vm", with_made_volume, create_reading),
    ("delete in a pool what reads a volume", "delete_vm", with_reader, delete_vm),
    ("move stopped vm that reads a volume in a pool", "move_vm", with_stopped_reader, moves.move),
    ("move running vm that reads a volume in a pool", "move_running_vm", with_reader, moves.move),
    ("copy a volume to another pool", "copy_volume", with_slow_pool_too, copy_to_slow),
    ("copy a volume from its pool to a host", "copy_volume", with_slow_pool_too, copy_to_host),
    ("create pool", "create_pool", prepare_mounted, create),
    ("delete pool", "delete_pool", with_pool, delete),
    ("create in a pool", "create_vm", with_image, create_in_pool),
    ("delete in a pool", "delete_vm", with_running_vm, delete_vm),
    ("delete volume in a pool", "delete_volume", with_made_volume, delete_volume),
    ("move vm in a pool", "move_vm", with_stopped_vm, moves.move),
    ("move running vm in a pool cold", "move_vm_cold", with_running_vm, moves.move_running),
    ("move running vm in a pool", "move_running_vm", with_running_vm, moves.move),
)
"""Name, kind, the world before, what begins it."""
