# SPDX-License-Identifier: Apache-2.0
"""Actions on data volumes on a machine that lives in memory, and a VM's disk that goes from one to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.core.actions.disk_snapshots import CopySnapshot, FlattenSnapshot, RestoreSnapshot, TakeSnapshot
from orchestrator.core.actions.host_actions import ActionResult, CreateVolume, DefineDomain, HostAction
from orchestrator.core.actions.live_move import LiveMove, MovedVm
from orchestrator.core.actions.suspension import ResumeDomain, SuspendDomain
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CopyDataVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
    GrowDataVolume,
    GrowDisk,
    LinkDataVolume,
    PlugDevices,
    ReplaceDataVolume,
)
from orchestrator.core.errors import Conflict, Fatal, NotFound
from orchestrator.core.hosts.pool import pool_of
from orchestrator.core.hosts.volume_key import VolumeKey, check_keys, ids_of, is_encrypted, passphrase_of
from orchestrator.core.units import GIB
from orchestrator.core.vms.disk_snapshot import NO_GUEST_AGENT
from orchestrator.core.vms.vm import memory_file
from tests.fakes import cleaned
from tests.fakes.fake_machine import FakeMachine, data_of, devices


def copy_volume(source: FakeMachine, target: FakeMachine, copy: VolumeCopy) -> ActionResult:
    if copy.volume not in source.volumes:
        raise NotFound("volume.missing", "the VM's disk is not on the host")
    if any(machine.domains.get(copy.vm, ("", False))[1] for machine in (source, target)):
        raise Conflict("volume.in_use", "the VM runs")
    target.nvram |= source.nvram & {copy.vm}
    if pool_of(copy.volume) is not None:
        return ActionResult(changed=True)
    base = f"{copy.base_sha256}.{copy.base_format}"
    if base not in target.images:
        raise Fatal("image.missing", "the base image is not on the host")
    target.volumes[copy.volume] = (copy.vm, copy.size_bytes, base)
    target.written |= {name: source.written[name] for name in _written_of(copy.volume) if name in source.written}
    return ActionResult(changed=True)


def write_disk(machine: FakeMachine, action: CreateVolume) -> None:
    """What is on a VM's new disk, and what opens it if it is encrypted."""
    passphrase = passphrase_of(action.volume, action.keys)
    machine.written.setdefault(action.volume, machine.machine_id)
    if passphrase is not None:
        machine.written.setdefault(key_of(action.volume), passphrase)


def unwrite(machine: FakeMachine, file: str) -> None:
    """Of a file that is removed."""
    for name in _written_of(file):
        machine.written.pop(name, None)


def _written_of(file: str) -> tuple[str, str]:
    return file, key_of(file)


def memory_of(vm: str) -> str:
    """Under which it is written where it was booted."""
    return f"memory of {vm}"


def waits(vm: str) -> str:
    """Under which it is written that it has come, paused."""
    return f"waits: {vm}"


def move_vm(source: FakeMachine, target: FakeMachine, move: LiveMove) -> MovedVm:
    """What its disk and its memory hold goes along (``written``); it waits to be started."""
    if move.vm not in source.domains:
        raise NotFound("vm.not_found", "the VM is not defined")
    if not source.domains[move.vm][1]:
        raise Conflict("vm.not_running", "the VM does not run")
    xml, running = target.domains[move.vm]
    if running or waits(move.vm) in target.written:
        raise Conflict("vm.running", "the VM is running", hint="stop it first")
    if devices(xml) != move.devices:
        raise Conflict("vm.device_foreign", "it would not be the VM that is defined there")
    files = [name for name, (owner, _, _) in source.volumes.items() if owner == move.vm]
    assert all(target.volumes[name][0] == move.vm for name in files)
    del source.domains[move.vm]
    source.gone.add(move.vm)
    source.described.pop(move.vm, None)
    for name in (*files, memory_of(move.vm)):
        target.written[name] = source.written[name]
    del source.written[memory_of(move.vm)]
    target.written[waits(move.vm)] = source.machine_id
    target.nvram |= source.nvram & {move.vm}
    return MovedVm(sent_bytes=GIB, paused_ms=100)


def _suspend(machine: FakeMachine, action: SuspendDomain) -> None:
    """What is in its memory (``written``) is in a file from now on."""
    xml, running = machine.domains.get(action.vm, ("", False))
    if not running and memory_file(action.vm) not in machine.volumes:
        raise Conflict("vm.not_running", "the VM does not run")
    if running:
        machine.volumes[memory_file(action.vm)] = (action.vm, action.max_bytes // 2, "")
        machine.written[memory_file(action.vm)] = machine.written.pop(memory_of(action.vm))
        machine.domains[action.vm] = (xml, False)


def begins(machine: FakeMachine, vm: str) -> None:
    """It runs on with what was in its memory, or boots."""
    machine.volumes.pop(memory_file(vm), None)
    kept = machine.written.pop(memory_file(vm), machine.machine_id)
    machine.written.setdefault(memory_of(vm), kept)
    machine.written.pop(waits(vm), None)


def resumed(before: Mapping[str, Any], action: HostAction) -> str:
    """What a resume says that has memory to go on from, and a snapshot of what it was taken; ``before``: the machine's
    members then."""
    if isinstance(action, TakeSnapshot):
        return "running" if before["domains"].get(action.vm, ("", False))[1] else "stopped"
    kept = isinstance(action, ResumeDomain) and memory_file(action.vm) in before["volumes"]
    return "it goes on from its memory" if kept else ""


def guest_agent_of(vm: str) -> str:
    """Where a machine has what the guest agent of the VM does when it is to freeze its file systems (``written``)."""
    return f"{vm} guest agent"


def result_of(before: Mapping[str, Any], machine: FakeMachine, action: HostAction) -> ActionResult:
    """``before``: the machine's members then."""
    result = cleaned.result_of(action, before != machine.__dict__, resumed(before, action))
    return replace(result, quiesced=_quiesced(machine, action))


def _quiesced(machine: FakeMachine, action: HostAction) -> str:
    """As an agent says it of a copy that it has made."""
    if isinstance(action, TakeSnapshot):
        vm: str | None = action.vm
    else:
        vm = machine.data.get(action.of, (0, None))[1] if isinstance(action, CopyDataVolume) else None
    runs = vm is not None and machine.domains.get(vm, ("", False))[1]
    return machine.written.get(guest_agent_of(str(vm)), NO_GUEST_AGENT) if runs else ""


def ends(machine: FakeMachine, vm: str) -> None:
    """Nothing of its memory is left, on disk neither."""
    machine.volumes.pop(memory_file(vm), None)
    for name in (memory_file(vm), memory_of(vm), waits(vm)):
        machine.written.pop(name, None)


def _take(machine: FakeMachine, action: TakeSnapshot) -> None:
    """What is on the disk (``written``) is in a file of its own as well."""
    if action.disk not in machine.volumes:
        raise NotFound("volume.missing", "the VM's disk is not on the host")
    for copied in () if action.volume in machine.volumes else action.volumes:
        _copy_data(machine, CopyDataVolume(volume=copied.volume, of=copied.of, size_bytes=copied.size_bytes))
    base = machine.volumes[action.disk][2]
    machine.volumes.setdefault(action.volume, (action.vm, action.size_bytes, base))
    machine.written.setdefault(action.volume, machine.written[action.disk])


def _copy(machine: FakeMachine, action: CopySnapshot) -> None:
    if action.snapshot not in machine.volumes:
        raise NotFound("snapshot.missing", "the snapshot is not on the host")
    base = machine.volumes[action.disk][2]
    machine.volumes.setdefault(action.volume, (action.vm, action.size_bytes, base))
    machine.written.setdefault(action.volume, machine.written[action.snapshot])


def _flatten(machine: FakeMachine, action: FlattenSnapshot) -> None:
    if action.snapshot not in machine.volumes:
        raise NotFound("snapshot.missing", "the snapshot is not on the host")
    machine.volumes.setdefault(action.volume, (action.vm, action.size_bytes, ""))
    machine.written.setdefault(action.volume, machine.written[action.snapshot])


def read_snapshot(machine: FakeMachine, vm: str, volume: str) -> bytes:
    if machine.volumes.get(volume, ("",))[0] != vm:
        raise NotFound("volume.missing", "the file is not on the host")
    return machine.written[volume].encode()


def _restore(machine: FakeMachine, action: RestoreSnapshot) -> None:
    if action.volume not in machine.volumes:
        raise NotFound("snapshot.missing", "the snapshot is not on the host")
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("vm.running", "the VM is running")
    machine.volumes.pop(action.copy, None)
    machine.written[action.disk] = machine.written.pop(action.copy, machine.written[action.volume])


def _create_data(machine: FakeMachine, action: CreateDataVolume) -> None:
    if is_encrypted(action.volume):
        if not action.passphrase:
            raise Conflict("volume.no_key", "the key of an encrypted volume was not sent with it")
        machine.written.setdefault(key_of(action.volume), action.passphrase)
    size, _ = machine.data.setdefault(action.volume, (action.size_bytes, None))
    if size != action.size_bytes:
        raise Conflict("volume.differs", "the data volume exists with another size")


def _link(machine: FakeMachine, action: LinkDataVolume) -> None:
    if action.of not in machine.data:
        raise NotFound("volume.missing", "the data volume is not on the host")
    if machine.data[action.of][1] is not None:
        raise Conflict("volume.in_use", "a VM has the data volume for writing")
    machine.data.setdefault(action.volume, (0, None))


def _delete_data(machine: FakeMachine, action: DeleteDataVolume) -> None:
    if machine.data.get(action.volume, (0, None))[1] is not None:
        raise Conflict("volume.in_use", "a VM has the data volume")
    machine.data.pop(action.volume, None)
    for kept in (action.volume, key_of(action.volume)):
        machine.written.pop(kept, None)


def _copy_data(machine: FakeMachine, action: CopyDataVolume) -> None:
    """What is on it (``written``) is in a file of its own as well."""
    if action.of not in machine.data:
        raise NotFound("volume.missing", "the data volume is not on the host")
    machine.data.setdefault(action.volume, (action.size_bytes, None))
    machine.written.setdefault(action.volume, machine.written.get(action.of, ""))


def _replace_data(machine: FakeMachine, action: ReplaceDataVolume) -> None:
    mark, fetched = f"fetched for {action.volume}", action.of == action.copy
    if fetched and action.copy not in machine.data and machine.written.get(mark) == action.copy:
        return
    if not {action.copy, action.of} & machine.data.keys():
        raise NotFound("volume.missing", "the data volume is not on the host")
    _, vm = machine.data[action.volume]
    if vm is not None and machine.domains[vm][1]:
        raise Conflict("volume.in_use", "something has the data volume open")
    machine.data.pop(action.copy, None)
    machine.data[action.volume] = (action.size_bytes, vm)
    machine.written[action.volume] = machine.written.pop(action.copy, machine.written.get(action.of, ""))
    if fetched:
        machine.written[mark] = action.copy


def _attach(machine: FakeMachine, action: AttachVolume) -> None:
    if action.volume not in machine.data:
        raise NotFound("volume.missing", "the data volume is not on the host")
    size, vm = machine.data[action.volume]
    if vm not in {None, action.vm}:
        raise Conflict("volume.in_use", "another VM has the data volume")
    machine.data[action.volume] = (size, action.vm)


def _detach(machine: FakeMachine, action: DetachVolume) -> None:
    size, vm = machine.data.get(action.volume, (0, None))
    if vm != action.vm:
        return
    xml, running = machine.domains.get(action.vm, ("", False))
    if running and action.volume in data_of(xml):
        raise Conflict("volume.in_use", "something has the data volume open")
    machine.data[action.volume] = (size, None)


def _grow(machine: FakeMachine, action: GrowDataVolume) -> None:
    size, vm = machine.data[action.volume]
    if size > action.size_bytes:
        raise Conflict("volume.differs", "the data volume is larger")
    machine.data[action.volume] = (action.size_bytes, vm)


def _grow_disk(machine: FakeMachine, action: GrowDisk) -> None:
    vm, size, base = machine.volumes[action.volume]
    if size > action.size_bytes:
        raise Conflict("volume.differs", "the VM's disk is larger")
    if not machine.domains.get(action.vm, ("", False))[1]:
        check_keys((action.volume,), action.keys)
    machine.volumes[action.volume] = vm, action.size_bytes, base


def check_data(machine: FakeMachine, vm: str, xml: str) -> None:
    """That a definition takes only what the VM has."""
    for file in data_of(xml):
        if machine.data.get(file, (0, None))[1] != vm:
            raise Conflict("vm.file_foreign", "the VM's definition takes a file that is not the VM's")


def key_of(file: str) -> str:
    """Under which it is written what opens an encrypted volume; no host holds that otherwise than in its header."""
    return f"key of {file}"


def check_opens(machine: FakeMachine, vm: str, xml: str, keys: tuple[VolumeKey, ...]) -> None:
    """That the VM has each volume of a definition, and that the keys that were sent open what is encrypted, which is
    open already of one that runs."""
    check_data(machine, vm, xml)
    if machine.domains[vm][1]:
        return
    files = (*data_of(xml), *(file for file, (owner, _, _) in machine.volumes.items() if owner == vm))
    check_keys(files, keys)
    sent = {key.volume: key.passphrase for key in keys}
    for file in filter(is_encrypted, files):
        if [machine.written[key_of(file)]] != [sent[volume] for volume in ids_of((file,))]:
            raise Fatal("vm.start_failed", "the VM did not start", details="Invalid password")


def keeps(vm: str) -> str:
    """Under which it is written that its guest lets go of no disk."""
    return f"keeps: {vm}"


Handlers = dict[type[HostAction], Callable[..., None]]


def handlers(define: Callable[[FakeMachine, DefineDomain], None]) -> Handlers:
    """``define``: of a domain, whose files are among these."""

    def plug(machine: FakeMachine, action: PlugDevices) -> None:
        before, running = machine.domains[action.vm]
        if running and keeps(action.vm) in machine.written and not set(data_of(before)) <= set(action.domain.data):
            raise Fatal("vm.device_kept", "the guest did not let go of it")
        if running:
            check_keys(action.domain.data, action.keys)
        define(machine, DefineDomain(vm=action.vm, domain=action.domain))

    return {
        CreateDataVolume: _create_data,
        CopyDataVolume: _copy_data,
        ReplaceDataVolume: _replace_data,
        LinkDataVolume: _link,
        DeleteDataVolume: _delete_data,
        AttachVolume: _attach,
        DetachVolume: _detach,
        GrowDataVolume: _grow,
        GrowDisk: _grow_disk,
        PlugDevices: plug,
        SuspendDomain: _suspend,
        TakeSnapshot: _take,
        CopySnapshot: _copy,
        FlattenSnapshot: _flatten,
        RestoreSnapshot: _restore,
    }
