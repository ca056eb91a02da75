# SPDX-License-Identifier: Apache-2.0
"""Disks and data volumes in pools on machines that live in memory. What a machine knows of them stands beside its own:
``volumes`` and ``data``; the files themselves are the pool's."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.actions.host_actions import CreateVolume, DeleteVolume, HostAction
from orchestrator.core.actions.pools import DeclarePool, LeaveDisks, ShareDisks, WithdrawPool
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CopyDataVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
    GrowDataVolume,
    GrowDisk,
    LinkDataVolume,
    ReplaceDataVolume,
)
from orchestrator.core.errors import Conflict, Fatal, NotFound, Retryable
from orchestrator.core.hosts.pool import held_elsewhere, is_the_pool, pool_of, short_of
from orchestrator.core.vms.vm import DATA_FILE
from orchestrator.sim.pools import SimulatedPool
from tests.fakes.fake_machine import FakeMachine, data_of


def check_held(machine: FakeMachine, vm: str) -> None:
    """As before a start."""
    xml, running = machine.domains[vm]
    mine = (name for name, (owner, _, _) in machine.volumes.items() if owner == vm)
    for file in () if running else (*data_of(xml), *mine):
        if pool_of(file) is not None and _pool(machine, file).leases.get(file) != machine.machine_id:
            raise Conflict("pool.held_elsewhere", "the VM's disk in the pool is another host's to open")


def handler(action: HostAction) -> Callable[..., None] | None:
    """Of what is in a pool; None: it is on the host's own disk."""
    if isinstance(action, CopyDataVolume) and pool_of(action.of) is not None:
        return _copy_data
    return None if pool_of(getattr(action, "volume", "")) is None else _IN_POOLS[type(action)]


def _mounted(machine: FakeMachine, name: str) -> SimulatedPool:
    if name not in machine.pools:
        raise Retryable("pool.not_mounted", f"nothing is mounted for pool {name} on the host")
    return machine.pools[name]


def _pool(machine: FakeMachine, file: str) -> SimulatedPool:
    name = pool_of(file) or ""
    pool = _mounted(machine, short_of(name))
    if pool.pool_id is None or not is_the_pool(name, pool.pool_id):
        raise Conflict("pool.is_another", f"what is mounted for pool {pool.name} on the host is another directory")
    return pool


def _declare(machine: FakeMachine, action: DeclarePool) -> None:
    pool = _mounted(machine, action.name)
    if pool.pool_id not in {None, action.pool_id}:
        raise Conflict("pool.is_another", "what is mounted there is another directory")
    pool.pool_id = action.pool_id


def _withdraw(machine: FakeMachine, action: WithdrawPool) -> None:
    pool = _mounted(machine, action.name)
    if pool.files:
        raise Conflict("pool.in_use", "disks and volumes are in the pool")
    pool.pool_id = None


def _share(machine: FakeMachine, action: ShareDisks) -> None:
    for file in action.files:
        pool = _pool(machine, file)
        if file not in pool.files:
            raise NotFound("volume.missing", "the disk is not in its pool")
        if file.endswith(DATA_FILE):
            machine.data[file] = pool.files[file], action.vm
        else:
            machine.volumes[file] = action.vm, pool.files[file], pool.bases[file]
            machine.written[file] = "in its pool"
        if action.taken:
            pool.leases[file] = machine.machine_id


def _leave(machine: FakeMachine, action: LeaveDisks) -> None:
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("volume.in_use", "the VM still runs")
    known = {file: vm for file, (vm, *_) in machine.volumes.items()} | {
        file: vm for file, (_, vm) in machine.data.items()
    }
    for file in action.files or [file for file, vm in known.items() if vm == action.vm and pool_of(file) is not None]:
        machine.data.pop(file, None)
        machine.volumes.pop(file, None)
        machine.written.pop(file, None)


def _create_volume(machine: FakeMachine, action: CreateVolume) -> None:
    pool = _pool(machine, action.volume)
    if action.base_file not in pool.images | machine.images:
        raise Fatal("image.missing", "the base image is not on the host")
    pool.images.add(action.base_file)
    pool.leases[action.volume] = machine.machine_id
    pool.files[action.volume], pool.bases[action.volume] = action.size_bytes, action.base_file
    machine.volumes[action.volume] = action.vm, action.size_bytes, action.base_file
    machine.written[action.volume] = "in its pool"


def _delete_volume(machine: FakeMachine, action: DeleteVolume) -> None:
    pool = _pool(machine, action.volume)
    _leave(machine, LeaveDisks(vm=action.vm, files=(action.volume,)))
    if pool.leases.get(action.volume) == machine.machine_id:
        pool.files.pop(action.volume, None)
        pool.bases.pop(action.volume, None)
        del pool.leases[action.volume]


def _create_data(machine: FakeMachine, action: CreateDataVolume) -> None:
    pool = _pool(machine, action.volume)
    if pool.files.setdefault(action.volume, action.size_bytes) != action.size_bytes:
        raise Conflict("volume.differs", "the data volume exists with another size")


def _delete_data(machine: FakeMachine, action: DeleteDataVolume) -> None:
    pool = _pool(machine, action.volume)
    if action.volume in machine.data:
        raise Conflict("volume.in_use", "a VM has the data volume")
    _check_no_other(machine, pool, action)
    pool.leases.pop(action.volume, None)
    pool.files.pop(action.volume, None)


def _copy_data(machine: FakeMachine, action: CopyDataVolume) -> None:
    """Either may lie in a pool, or in another one."""
    source = None if pool_of(action.of) is None else _pool(machine, action.of)
    if action.of not in (machine.data if source is None else source.files):
        raise NotFound("volume.missing", "the data volume is not where it was")
    holder = None if source is None else source.leases.get(action.of)
    if holder not in {None, machine.machine_id}:
        raise held_elsewhere(action.of, holder)
    if pool_of(action.volume) is None:
        machine.data.setdefault(action.volume, (action.size_bytes, None))
    else:
        _pool(machine, action.volume).files.setdefault(action.volume, action.size_bytes)


def _replace_data(machine: FakeMachine, action: ReplaceDataVolume) -> None:
    pool = _pool(machine, action.volume)
    pool.files.pop(action.copy, None)
    pool.files[action.volume] = action.size_bytes


def _check_no_other(machine: FakeMachine, pool: SimulatedPool, action: AttachVolume | DeleteDataVolume) -> None:
    if (holder := pool.leases.get(action.volume)) not in {None, action.gone, machine.machine_id}:
        raise held_elsewhere(action.volume, holder)


def _link(machine: FakeMachine, action: LinkDataVolume) -> None:
    pool = _pool(machine, action.volume)
    if action.of not in pool.files:
        raise NotFound("volume.missing", "the data volume is not in its pool")
    if (holder := pool.leases.get(action.of)) not in {None, action.gone, machine.machine_id}:
        raise held_elsewhere(action.of, holder)
    if action.of in machine.data:
        raise Conflict("volume.in_use", "a VM has the data volume for writing")
    pool.files.setdefault(action.volume, 0)


def _attach(machine: FakeMachine, action: AttachVolume) -> None:
    pool = _pool(machine, action.volume)
    if action.volume not in pool.files:
        raise NotFound("volume.missing", "the data volume is not in its pool")
    _check_no_other(machine, pool, action)
    pool.leases[action.volume] = machine.machine_id
    machine.data[action.volume] = pool.files[action.volume], action.vm


def _detach(machine: FakeMachine, action: DetachVolume) -> None:
    if machine.data.get(action.volume, (0, None))[1] == action.vm:
        del machine.data[action.volume]
        _pool(machine, action.volume).leases.pop(action.volume, None)


def _grow(machine: FakeMachine, action: GrowDataVolume) -> None:
    pool = _pool(machine, action.volume)
    if pool.files[action.volume] > action.size_bytes:
        raise Conflict("volume.differs", "the data volume is larger")
    pool.files[action.volume] = action.size_bytes
    if action.volume in machine.data:
        machine.data[action.volume] = action.size_bytes, machine.data[action.volume][1]


def _grow_disk(machine: FakeMachine, action: GrowDisk) -> None:
    pool = _pool(machine, action.volume)
    if pool.files[action.volume] > action.size_bytes:
        raise Conflict("volume.differs", "the VM's disk is larger")
    pool.files[action.volume] = action.size_bytes
    vm, _, base = machine.volumes[action.volume]
    machine.volumes[action.volume] = vm, action.size_bytes, base


_IN_POOLS: dict[type[HostAction], Callable[..., None]] = {
    CreateVolume: _create_volume,
    DeleteVolume: _delete_volume,
    CreateDataVolume: _create_data,
    CopyDataVolume: _copy_data,
    ReplaceDataVolume: _replace_data,
    DeleteDataVolume: _delete_data,
    AttachVolume: _attach,
    DetachVolume: _detach,
    LinkDataVolume: _link,
    GrowDataVolume: _grow,
    GrowDisk: _grow_disk,
}
HANDLERS: dict[type[HostAction], Callable[..., None]] = {
    DeclarePool: _declare,
    WithdrawPool: _withdraw,
    ShareDisks: _share,
    LeaveDisks: _leave,
}
