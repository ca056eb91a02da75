# SPDX-License-Identifier: Apache-2.0
"""Keys of a VM's encrypted disk and volumes: read when an action is sent that needs them, and kept nowhere."""

from __future__ import annotations

from orchestrator.core.errors import NotFound
from orchestrator.core.hosts.volume_key import VolumeKey, ids_of
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import file_of
from orchestrator.operations.context import Context


def keys_of(context: Context, vm: Vm) -> tuple[VolumeKey, ...]:
    """Of all that it starts with. Raises as the two of which it is."""
    return (*disk_key(context, vm), *data_keys(context, vm))


def disk_key(context: Context, vm: Vm) -> tuple[VolumeKey, ...]:
    """Of its own disk, if that is encrypted. :raises Conflict: ``vm.keyless``"""
    if not vm.spec.encrypted:
        return ()
    with context.world.store.read() as tx:
        return (tx.volume_keys.of_disk(vm),)


def data_keys(context: Context, vm: Vm) -> tuple[VolumeKey, ...]:
    """Of its data volumes. :raises Conflict: ``volume.keyless``; :raises NotFound: ``volume.unknown``"""
    return tuple(key_of(context, volume) for volume in ids_of(map(file_of, vm.spec.volumes)))


def key_of(context: Context, volume_id: str) -> VolumeKey:
    """Of one volume; as :func:`data_keys`."""
    with context.world.store.read() as tx:
        volume = tx.volumes.find_id(volume_id)
        if volume is None:
            hint = "'vgpuctl doctor' tells what differs; detach it from the VM"
            raise NotFound("volume.unknown", "an encrypted volume of the VM is not in the database", hint=hint)
        return tx.volume_keys.get(volume)
