# SPDX-License-Identifier: Apache-2.0
"""Snapshots of VMs' disks and of data volumes, as an agent takes and restores them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from orchestrator.core.actions.disk_snapshots import CopySnapshot, FlattenSnapshot, RestoreSnapshot, TakeSnapshot
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.actions.volumes import CopyDataVolume, LinkDataVolume, ReplaceDataVolume
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.hosts.pool import held_elsewhere, pool_of
from orchestrator.core.vms.disk_snapshot import NO_GUEST_AGENT
from orchestrator.core.vms.vm import DATA_FILE
from orchestrator.core.vms.volume import id_of
from orchestrator.sim.machine import DONE, SimulatedMachine, check_disk, may_die, release
from orchestrator.sim.pool_actions import link, pool_with
from orchestrator.sim.vm_actions import write_file


def _take(machine: SimulatedMachine, action: TakeSnapshot) -> ActionResult:
    """:raises NotFound: ``volume.missing``; :raises Fatal: ``host.disk_full``"""
    if action.disk not in machine.volumes:
        raise NotFound("volume.missing", "the VM's disk is not on the host")
    domain = machine.domains.get(action.vm)
    taken_of = "running" if domain is not None and domain.running else "stopped"
    for copied in () if action.volume in machine.volumes else action.volumes:
        _copy_data(machine, CopyDataVolume(volume=copied.volume, of=copied.of, size_bytes=copied.size_bytes))
    done = write_file(machine, machine.volumes, f"volume:{action.volume}", action.vm, action.size_bytes)
    return ActionResult(changed=done.changed, message=taken_of, quiesced=_quiesced(machine, action.vm))


def _quiesced(machine: SimulatedMachine, vm: str | None) -> str:
    """Its guests have no guest agent."""
    domain = machine.domains.get(vm or "")
    return NO_GUEST_AGENT if domain is not None and domain.running else ""


def _check_snapshot(machine: SimulatedMachine, vm: str, snapshot: str) -> None:
    if machine.owner(f"volume:{snapshot}") != vm or snapshot not in machine.volumes:
        raise NotFound("snapshot.missing", "the snapshot is not on the host")


def _copy(machine: SimulatedMachine, action: CopySnapshot) -> ActionResult:
    """:raises NotFound: ``snapshot.missing``; :raises Fatal: ``host.disk_full``"""
    _check_snapshot(machine, action.of, action.snapshot)
    base = machine.bases.get(action.disk)
    done = write_file(machine, machine.volumes, f"volume:{action.volume}", action.vm, action.size_bytes)
    if base is not None:
        machine.bases[action.volume] = base
    return done


def _flatten(machine: SimulatedMachine, action: FlattenSnapshot) -> ActionResult:
    """:raises NotFound: ``snapshot.missing``; :raises Fatal: ``host.disk_full``"""
    _check_snapshot(machine, action.vm, action.snapshot)
    return write_file(machine, machine.volumes, f"volume:{action.volume}", action.vm, action.size_bytes)


def read_snapshot(machine: SimulatedMachine, vm: str, volume: str) -> bytes:
    """As the file of one that lies on nothing: an empty qcow2 disk. :raises NotFound: ``snapshot.missing``"""
    _check_snapshot(machine, vm, volume)
    return empty_qcow2(machine.volumes[volume])


def empty_qcow2(size_bytes: int) -> bytes:
    """Of QEMU's docs/interop/qcow2.txt: header, table of reference counts, their only block, first table of clusters;
    each where a cluster of 64 KiB begins. What is in none reads as zeros."""
    cluster = 64 * 1024
    entries = max(1, -(-size_bytes // (cluster * cluster // 8)))
    clusters = 3 + -(-entries * 8 // cluster)
    header = struct.pack(
        ">4sIQIIQIIQQIIQQQQII", b"QFI\xfb", 3, 0, 0, 16, size_bytes, 0, entries, 3 * cluster, cluster, 1, 0, 0, 0, 0, 0,
        4, 104,
    )  # fmt: skip
    parts = (header, struct.pack(">Q", 2 * cluster), struct.pack(">H", 1) * clusters)
    return b"".join(part.ljust(cluster, b"\0") for part in parts) + bytes((clusters - 3) * cluster)


def _restore(machine: SimulatedMachine, action: RestoreSnapshot) -> ActionResult:
    """:raises NotFound: ``snapshot.missing``; :raises Conflict: ``vm.running``; :raises Fatal: ``host.disk_full``"""
    domain = machine.domains.get(action.vm)
    if domain is not None and domain.running:
        raise Conflict("vm.running", "the VM is running")
    if machine.volumes.pop(action.copy, None) is None:
        _check_snapshot(machine, action.vm, action.volume)
        check_disk(machine)
    release(machine, f"volume:{action.copy}", action.vm)
    machine.volumes[action.disk] = action.size_bytes
    may_die(machine)
    return DONE


def _files(machine: SimulatedMachine, volume: str) -> dict[str, int]:
    """Data volumes, where that one lies."""
    return machine.data if pool_of(volume) is None else pool_with(machine, volume).files


def check_may_read(machine: SimulatedMachine, volume: str) -> None:
    """:raises NotFound: ``volume.missing``; :raises Conflict: ``pool.held_elsewhere``"""
    if volume not in _files(machine, volume):
        raise NotFound("volume.missing", "the data volume is not on the host")
    holder = None if pool_of(volume) is None else pool_with(machine, volume).leases.get(volume)
    if holder not in {None, machine.machine_id}:
        raise held_elsewhere(volume, holder)


def _copy_data(machine: SimulatedMachine, action: CopyDataVolume) -> ActionResult:
    """:raises NotFound: ``volume.missing``; :raises Conflict: ``pool.held_elsewhere``, ``host.foreign_file``
    :raises Fatal: ``host.disk_full``"""
    check_may_read(machine, action.of)
    quiesced = _quiesced(machine, machine.owner(f"attached:{action.of}"))
    return replace(write_data(machine, action.volume, action.size_bytes), quiesced=quiesced)


def write_data(machine: SimulatedMachine, volume: str, size_bytes: int) -> ActionResult:
    """A data volume that is no VM's. :raises Conflict: ``host.foreign_file``; :raises Fatal: ``host.disk_full``"""
    files = _files(machine, volume)
    if pool_of(volume) is None:
        return write_file(machine, files, f"data:{volume}", _owner(volume), size_bytes)
    changed = volume not in files
    files[volume] = size_bytes
    may_die(machine)
    return ActionResult(changed=changed)


def _replace_data(machine: SimulatedMachine, action: ReplaceDataVolume) -> ActionResult:
    """:raises NotFound: ``volume.missing``; :raises Conflict: ``volume.in_use``, ``pool.held_elsewhere``"""
    domain = machine.domains.get(machine.owner(f"attached:{action.volume}") or "")
    if domain is not None and domain.running:
        raise Conflict("volume.in_use", "something has the data volume open")
    files = _files(machine, action.volume)
    if action.of == action.copy and action.copy not in files:
        return DONE
    for volume in (action.volume, action.copy if action.copy in files else action.of):
        check_may_read(machine, volume)
    files[action.volume] = action.size_bytes
    files.pop(action.copy, None)
    may_die(machine)
    release(machine, f"data:{action.copy}", _owner(action.copy))
    return DONE


def _link(machine: SimulatedMachine, action: LinkDataVolume) -> ActionResult:
    """:raises NotFound: ``volume.missing``; :raises Conflict: ``volume.in_use``, ``pool.held_elsewhere``"""
    if action.of not in _files(machine, action.of):
        raise NotFound("volume.missing", "the data volume is not on the host")
    if machine.owner(f"attached:{action.of}") is not None:
        raise Conflict("volume.in_use", "a VM has the data volume for writing")
    if pool_of(action.volume) is not None:
        return link(machine, action)
    return write_file(machine, machine.data, f"data:{action.volume}", _owner(action.volume), 0)


def _owner(file: str) -> str:
    return id_of(file.removesuffix(DATA_FILE))


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    TakeSnapshot: _take,
    CopySnapshot: _copy,
    FlattenSnapshot: _flatten,
    RestoreSnapshot: _restore,
    CopyDataVolume: _copy_data,
    ReplaceDataVolume: _replace_data,
    LinkDataVolume: _link,
}
