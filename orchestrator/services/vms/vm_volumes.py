# SPDX-License-Identifier: Apache-2.0
"""Which data volumes a VM may have, and where it then has to be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.names import check_name
from orchestrator.core.operation import FINISHED, UNFINISHED, Operation
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import MAX_ATTACHED, READ_ONLY, Volume, plain_name, short_of, unknown_volume
from orchestrator.ports.clock import Ids
from orchestrator.store.transaction import Transaction
from orchestrator.store.volume_keys import keyless


def known_volume(tx: Transaction, tenant: str, name: str) -> Volume:
    """:raises NotFound: ``volume.unknown``"""
    volume = tx.volumes.find(tenant, name)
    if volume is None:
        raise unknown_volume(name, [known.name for known in tx.volumes.list(tenant=tenant, snapshots=False)])
    return volume


def volumes_for(
    tx: Transaction, tenant: str, names: tuple[str, ...], host: str | None, ids: Ids | None
) -> tuple[Volume, ...]:
    """Those that a new VM asks for, free to be taken; for ``name:ro`` what it reads that one by. ``host``: what its
    request names; ``ids``: None: no VM gets them.

    :raises NotFound: ``volume.unknown``
    :raises Conflict: ``volume.attached``, ``volume.lost``, ``volume.being_deleted``, ``volume.elsewhere``,
        ``volume.empty``, ``volume.not_shared``"""
    volumes = tuple(_volume_for(tx, tenant, name, ids) for name in names)
    host_of(volumes, host)
    return volumes


def _volume_for(tx: Transaction, tenant: str, name: str, ids: Ids | None) -> Volume:
    volume = known_volume(tx, tenant, plain_name(name))
    if name.endswith(READ_ONLY):
        return _reader(tx, volume, volume.id if ids is None else ids.new_uuid(), "one that has it without :ro")
    check_free(tx, volume)
    return volume


def host_of(volumes: Iterable[Volume], host: str | None) -> str | None:
    """Where a VM has to be that has these, and may only be on ``host``; None: anywhere.

    :raises Conflict: ``volume.elsewhere``"""
    for volume in volumes:
        if host is not None and volume.host not in {None, host}:
            name = volume.name.rpartition("/")[2]  # of the volume that is read, where this is how
            raise Conflict(
                "volume.elsewhere",
                f"volume {name} is on another host",  # unnamed: it is the tenant that is told
                hint=f"a VM is where its volumes are, which never move: 'vgpuctl volume show {name}' tells where",
            )
        host = host or volume.host
    return host


def place_with(volumes: Iterable[Volume], host: str | None, disk_bytes: int) -> tuple[str | None, int, str | None]:
    """Host and disk of a VM that is given these, as placement has to see them: where they lie, and with those that lie
    nowhere yet beside its own disk; and which of them ties it to a host that its request does not name.

    :raises Conflict: ``volume.elsewhere``"""
    to_place = sum(volume.size_bytes for volume in volumes if volume.host is None and volume.pool is None)
    tying = (short_of(volume.on_hosts) for volume in volumes if host is None and volume.host is not None)
    return host_of(volumes, host), disk_bytes + to_place, next(tying, None)


def check_names(names: tuple[str, ...]) -> None:
    """Of a request. :raises InvalidInput: ``volume.name_invalid``, ``volume.repeated``, ``volume.too_many``"""
    for name in names:
        check_name(plain_name(name), what="volume")
    if len(set(map(plain_name, names))) != len(names):
        raise InvalidInput("volume.repeated", "a volume is named twice", hint="each volume is attached once")
    check_number(len(names))


def check_number(number: int) -> None:
    """:raises InvalidInput: ``volume.too_many``"""
    if number > MAX_ATTACHED:
        raise InvalidInput(
            "volume.too_many", f"a VM has at most {MAX_ATTACHED} volumes", hint="detach one, or make a larger one"
        )


def check_free(tx: Transaction, volume: Volume) -> None:
    """:raises Conflict: ``volume.attached``, ``volume.lost``, ``volume.busy``, ``volume.being_deleted``,
    ``volume.keyless``"""
    check_not_read(tx, volume)
    _check_ready(tx, volume)


def _check_ready(tx: Transaction, volume: Volume) -> None:
    """Also of one that VMs read."""
    check_not_attached(tx, volume)
    check_untouched(tx, volume)
    if volume.state == "lost":
        raise Conflict(
            "volume.lost",
            f"volume {volume.name} is lost: its host was given up",
            hint=f"'vgpuctl volume delete {volume.name}' ends the record of it",
        )
    if volume.state == "copying":
        hint = f"'vgpuctl volume delete {volume.name}' removes one that was not copied to its end"
        raise Conflict("volume.busy", f"volume {volume.name} is a copy that is not made yet", hint=hint)
    if volume.state == "deleting":
        raise Conflict("volume.being_deleted", f"volume {volume.name} is being deleted", hint="wait until it is gone")
    if volume.encryption == "keyless":
        raise keyless(volume)


def check_untouched(tx: Transaction, volume: Volume) -> None:
    """:raises Conflict: ``volume.busy``: it is being made larger, or copied"""
    begun = [operation for operation in tx.operations.of_subject(volume.id) if operation.kind != "delete_volume"]
    if volume.snapshot_of is not None:
        begun += [operation for operation in copying(tx) if _has(tx, operation, volume)]
    for operation in begun:
        if operation.state not in FINISHED:
            hint = f"'vgpuctl operation wait {operation.id}' waits for it"
            raise Conflict("volume.busy", f"operation {operation.id} works on volume {volume.name}", hint=hint)


def copying(tx: Transaction) -> list[Operation]:
    """Those that read or make snapshots, also beside what they make of a VM's disk."""
    kinds = (
        "create_volume_snapshot", "copy_volume", "restore_volume_snapshot", "create_snapshot", "restore_snapshot",
        "delete_snapshot", "back_up_vm", "restore_backup",
    )  # fmt: skip
    return [operation for kind in kinds for operation in tx.operations.list(kind=kind, states=UNFINISHED)]


def _has(tx: Transaction, operation: Operation, snapshot: Volume) -> bool:
    """Whether it reads the snapshot or makes it: one that was removed meanwhile would be made again, and nobody's."""
    inputs = tx.operations.get(operation.id).inputs
    copies = [inputs] if "made" in inputs else stored if isinstance(stored := inputs.get("copies"), list) else []
    return any(snapshot.file in {copy["of"], Volume.from_fields(copy["made"]).file} for copy in copies)


def check_not_attached(tx: Transaction, volume: Volume) -> None:
    """:raises Conflict: ``volume.attached``, naming the VM"""
    if volume.vm is not None:
        raise _attached(tx, volume, [volume.vm])


def check_not_read(tx: Transaction, volume: Volume) -> None:
    """:raises Conflict: ``volume.attached``, naming the VMs that have it read-only"""
    if readers := tx.volumes.readers(volume.id):
        raise _attached(tx, volume, [reader.vm for reader in readers])


def _attached(tx: Transaction, volume: Volume, vms: Iterable[str | None]) -> Conflict:
    names = sorted(vm.spec.name for vm_id in vms if vm_id is not None and (vm := tx.vms.find_id(vm_id)) is not None)
    who = f"VM{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else "another VM"
    each = ", and so of each" if len(names) > 1 else ""
    hint = f"'vgpuctl volume detach {volume.name} {names[0]}' takes it from there{each}" if names else ""
    return Conflict("volume.attached", f"volume {volume.name} is attached to {who}", hint=hint)


def reader_of(tx: Transaction, volume: Volume, vm: Vm, drawn: str) -> Volume:
    """By which the VM reads it: what it has already, or a new one. ``drawn``: an id.

    :raises Conflict: ``volume.attached``: a VM has it for writing; ``volume.not_shared``: its file cannot be opened by
        several; ``volume.empty``; as :func:`check_free`"""
    known = next((reader for reader in tx.volumes.readers(volume.id) if reader.vm == vm.id), None)
    if known is not None:
        return known
    reader = _reader(
        tx, volume, drawn, f"'vgpuctl volume attach {volume.name} {vm.spec.name} --tenant {volume.tenant}'"
    )
    host_of((volume,), vm.host)
    tx.volumes.add_reader(reader)
    return reader


def _reader(tx: Transaction, volume: Volume, drawn: str, filling: str) -> Volume:
    """Not stored yet. ``filling``: what fills one that is empty, for people."""
    _check_ready(tx, volume)
    if volume.state == "new":
        hint = f"a VM fills it first: {filling}"
        raise Conflict("volume.empty", f"no VM has had volume {volume.name}: nothing is on it", hint=hint)
    if volume.encrypted:
        hint = "attach it for writing, or copy what is on it to a volume that is not encrypted"
        raise Conflict(
            "volume.not_shared", f"volume {volume.name} is encrypted, and one VM has it at a time", hint=hint
        )
    name = f"{drawn}/{volume.name}"
    return replace(volume, id=drawn, name=name, size_bytes=0, state="new", read_only_of=volume.id)


def check_may_change(vm: Vm) -> None:
    """:raises Conflict: ``vm.adopted``"""
    if vm.spec.adopted is not None:
        raise Conflict("vm.adopted", "an adopted VM keeps the definition it came with", hint="make a VM of your own")
