# SPDX-License-Identifier: Apache-2.0
"""Keys of a VM's encrypted volumes: read when an action is sent that needs them, and kept nowhere."""

from __future__ import annotations

from orchestrator.core.errors import NotFound
from orchestrator.core.hosts.volume_key import VolumeKey, ids_of
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import file_of
from orchestrator.operations.context import Context


def keys_of(context: Context, vm: Vm) -> tuple[VolumeKey, ...]:
    """:raises Conflict: ``volume.keyless``; :raises NotFound: ``volume.unknown``"""
    return tuple(key_of(context, volume) for volume in ids_of(map(file_of, vm.spec.volumes)))


def key_of(context: Context, volume_id: str) -> VolumeKey:
    """Of one volume; as :func:`keys_of`."""
    with context.world.store.read() as tx:
        volume = tx.volumes.find_id(volume_id)
        if volume is None:
            hint = "'vgpuctl doctor' tells what differs; detach it from the VM"
            raise NotFound("volume.unknown", "an encrypted volume of the VM is not in the database", hint=hint)
        return tx.volume_keys.get(volume)
