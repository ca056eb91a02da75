# SPDX-License-Identifier: Apache-2.0
"""Disks and data volumes in pools as the agent handles them (orchestrator/agent/images/pools.py), and the rest as
vm_actions.py does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from orchestrator.core.actions.host_actions import (
    ActionResult,
    CreateVolume,
    DeleteImage,
    DeleteVolume,
    HostAction,
    StartDomain,
)
from orchestrator.core.actions.pools import DeclarePool, LeaveDisks, ShareDisks, WithdrawPool
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
    LinkDataVolume,
)
from orchestrator.core.errors import Conflict, Fatal, NotFound, Retryable
from orchestrator.core.hosts.pool import held_elsewhere, is_the_pool, pool_of, short_of
from orchestrator.core.hosts.snapshot import FileSnapshot
from orchestrator.core.vms.vm import DATA_FILE
from orchestrator.sim import vm_actions
from orchestrator.sim.machine import DONE, SO_ALREADY, SimulatedMachine, claim, may_die, release
from orchestrator.sim.pools import SimulatedPool, check_not_read


def declare(machine: SimulatedMachine, action: DeclarePool) -> ActionResult:
    pool = _mounted(machine, action.name)
    if pool.pool_id not in {None, action.pool_id}:
        raise _another(action.name)
    changed, pool.pool_id = pool.pool_id is None, action.pool_id
    may_die(machine)
    return ActionResult(changed=changed)


def withdraw(machine: SimulatedMachine, action: WithdrawPool) -> ActionResult:
    pool = _mounted(machine, action.name)
    if pool.pool_id != action.pool_id:
        return SO_ALREADY
    if pool.files:
        raise Conflict("pool.in_use", f"{len(pool.files)} disks and volumes are in the pool")
    pool.pool_id = None
    pool.images.clear()
    may_die(machine)
    return DONE


def share(machine: SimulatedMachine, action: ShareDisks) -> ActionResult:
    changed = False
    for file in action.files:
        pool = pool_with(machine, file)
        if file not in pool.files:
            raise NotFound("volume.missing", "the disk is not in its pool")
        if machine.owner(_key(file)) != action.vm:
            claim(machine, _key(file), action.vm)
            changed = True
        if action.taken:
            changed |= _hold(machine, pool, file)
    return ActionResult(changed=changed)


def leave(machine: SimulatedMachine, action: LeaveDisks) -> ActionResult:
    changed = False
    keys = [key for key in machine.ledger.owners if key.startswith(("volume:", "attached:"))]
    owned = [key.partition(":")[2] for key in keys if machine.owner(key) == action.vm]
    for file in action.files or [file for file in owned if pool_of(file) is not None]:
        if machine.owner(_key(file)) == action.vm:
            for pool in machine.pools.values():
                _check_closed(machine, pool, file)
            release(machine, _key(file), action.vm)
            changed = True
    return ActionResult(changed=changed)


def _create_volume(machine: SimulatedMachine, action: CreateVolume) -> ActionResult:
    pool, key = pool_with(machine, action.volume), _key(action.volume)
    if action.volume in pool.files:
        if machine.owner(key) != action.vm:
            raise Conflict("host.foreign_file", f"{action.volume} exists and is not this VM's")
        return SO_ALREADY
    if action.base_file not in pool.images | machine.images:
        raise Fatal("image.missing", "the base image is not on the host")
    pool.images.add(action.base_file)
    _hold(machine, pool, action.volume)
    claim(machine, key, action.vm)
    pool.files[action.volume], pool.bases[action.volume] = action.size_bytes, action.base_file
    may_die(machine)
    return DONE


def _delete_volume(machine: SimulatedMachine, action: DeleteVolume) -> ActionResult:
    pool = pool_with(machine, action.volume)
    if pool.leases.get(action.volume) != machine.machine_id:
        return leave(machine, LeaveDisks(vm=action.vm, files=(action.volume,)))
    _check_closed(machine, pool, action.volume)
    changed = pool.files.pop(action.volume, None) is not None
    pool.bases.pop(action.volume, None)
    may_die(machine)
    release(machine, _key(action.volume), action.vm)
    pool.leases.pop(action.volume, None)
    return ActionResult(changed=changed)


def _create_data(machine: SimulatedMachine, action: CreateDataVolume) -> ActionResult:
    pool = pool_with(machine, action.volume)
    if pool.files.get(action.volume, action.size_bytes) != action.size_bytes:
        raise Conflict("volume.differs", "the data volume exists with another size")
    changed = action.volume not in pool.files
    pool.files[action.volume] = action.size_bytes
    may_die(machine)
    return ActionResult(changed=changed)


def _delete_data(machine: SimulatedMachine, action: DeleteDataVolume) -> ActionResult:
    pool = pool_with(machine, action.volume)
    if machine.owner(_key(action.volume)) is not None or action.volume in pool.writers:
        raise Conflict("volume.in_use", "a VM has the data volume")
    _check_no_other(machine, pool, action)
    changed = pool.files.pop(action.volume, None) is not None
    pool.leases.pop(action.volume, None)
    may_die(machine)
    return ActionResult(changed=changed)


def _attach(machine: SimulatedMachine, action: AttachVolume) -> ActionResult:
    pool, vm = pool_with(machine, action.volume), machine.owner(_key(action.volume))
    if action.volume not in pool.files:
        raise NotFound("volume.missing", "the data volume is not in its pool")
    if vm not in {None, action.vm}:
        raise Conflict("volume.in_use", "another VM has the data volume")
    check_not_read(pool.files, action.volume)
    _check_no_other(machine, pool, action)
    _hold(machine, pool, action.volume)
    claim(machine, _key(action.volume), action.vm)
    return ActionResult(changed=vm is None)


def _detach(machine: SimulatedMachine, action: DetachVolume) -> ActionResult:
    if machine.owner(_key(action.volume)) != action.vm:
        return SO_ALREADY
    pool = pool_with(machine, action.volume)
    _check_closed(machine, pool, action.volume)
    if pool.leases.get(action.volume) == machine.machine_id:
        del pool.leases[action.volume]
    may_die(machine)
    release(machine, _key(action.volume), action.vm)
    return DONE


def _start(machine: SimulatedMachine, action: StartDomain) -> ActionResult:
    """A disk of which another host has the lease is not opened, nor one that a QEMU elsewhere has locked."""
    domain, described = machine.domains.get(action.vm), machine.described.get(action.vm)
    if domain is None or domain.running:
        return vm_actions.start(machine, action)
    files = (*domain.data, *(() if described is None else (described.domain.volume,)))
    shared = [(pool_with(machine, file), file) for file in files if pool_of(file) is not None]
    for pool, file in shared:
        if pool.leases.get(file) != machine.machine_id:
            raise held_elsewhere(file, pool.leases.get(file))
        if file in pool.writers:
            raise Fatal("vm.start_failed", "the VM did not start", details='Failed to get "write" lock')
    for pool, file in shared:
        pool.writers[file] = machine.machine_id, action.vm
    try:
        return vm_actions.start(machine, action)
    finally:
        if not domain.running:
            for pool, _ in shared:
                pool.close(machine.machine_id, action.vm)


def _delete_image(machine: SimulatedMachine, action: DeleteImage) -> ActionResult:
    name = f"{action.sha256}.{action.image_format}"
    for pool in machine.pools.values():
        if name in pool.bases.values():
            raise Conflict("image.in_use", "disks on this host are based on the image")
        pool.images.discard(name)
    return vm_actions.delete_image(machine, action)


def _hold(machine: SimulatedMachine, pool: SimulatedPool, file: str) -> bool:
    if pool.leases.get(file) == machine.machine_id:
        return False
    if file in pool.writers:
        raise Conflict("pool.open_elsewhere", "another host has the disk in the pool open for writing")
    pool.leases[file] = machine.machine_id
    may_die(machine)
    return True


def link(machine: SimulatedMachine, action: LinkDataVolume) -> ActionResult:
    """Of a volume that no VM of this host has for writing."""
    pool = pool_with(machine, action.volume)
    if pool.leases.get(action.of) not in {None, action.gone, machine.machine_id}:
        raise held_elsewhere(action.of, pool.leases[action.of])
    changed = action.volume not in pool.files
    pool.files[action.volume] = 0
    may_die(machine)
    return ActionResult(changed=changed)


def _check_no_other(machine: SimulatedMachine, pool: SimulatedPool, action: AttachVolume | DeleteDataVolume) -> None:
    if pool.leases.get(action.volume) not in {None, action.gone, machine.machine_id}:
        raise held_elsewhere(action.volume, pool.leases[action.volume])


def _check_closed(machine: SimulatedMachine, pool: SimulatedPool, file: str) -> None:
    if pool.writers.get(file, ("", ""))[0] == machine.machine_id:
        raise Conflict("volume.in_use", "the VM's volume is in use")


def _mounted(machine: SimulatedMachine, name: str) -> SimulatedPool:
    pool = machine.pools.get(name)
    if pool is None:
        raise Retryable("pool.not_mounted", f"nothing is mounted for pool {name} on the host")
    return pool


def pool_with(machine: SimulatedMachine, file: str) -> SimulatedPool:
    name = pool_of(file) or ""
    pool = _mounted(machine, short_of(name))
    if pool.pool_id is None or not is_the_pool(name, pool.pool_id):
        raise _another(pool.name)
    return pool


def _another(name: str) -> Conflict:
    return Conflict("pool.is_another", f"what is mounted for pool {name} on the host is another directory")


def _key(file: str) -> str:
    return f"attached:{file}" if file.endswith(DATA_FILE) else f"volume:{file}"


def disks_in_pools(machine: SimulatedMachine) -> Iterable[FileSnapshot]:
    """Of VMs of this host."""
    for _, pool in sorted(machine.pools.items()):
        for file, size in sorted(pool.files.items()):
            owner = machine.owner(f"volume:{file}")
            if owner is not None:
                yield FileSnapshot(name=file, size_bytes=size, owner=owner)


def _or_on_host(
    in_pool: Callable[[SimulatedMachine, Any], ActionResult], kind: type[HostAction]
) -> Callable[[SimulatedMachine, Any], ActionResult]:
    return lambda machine, action: (in_pool if pool_of(action.volume) else vm_actions.HANDLERS[kind])(machine, action)


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    CreateVolume: _or_on_host(_create_volume, CreateVolume),
    DeleteVolume: _or_on_host(_delete_volume, DeleteVolume),
    CreateDataVolume: _or_on_host(_create_data, CreateDataVolume),
    DeleteDataVolume: _or_on_host(_delete_data, DeleteDataVolume),
    AttachVolume: _or_on_host(_attach, AttachVolume),
    DetachVolume: _or_on_host(_detach, DetachVolume),
    StartDomain: _start,
    DeleteImage: _delete_image,
    DeclarePool: declare,
    WithdrawPool: withdraw,
    ShareDisks: share,
    LeaveDisks: leave,
}
