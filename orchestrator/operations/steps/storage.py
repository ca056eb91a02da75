# SPDX-License-Identifier: Apache-2.0
"""Base image, network, disk and seed of a VM on its host."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from orchestrator.core.actions.disk_snapshots import CopySnapshot
from orchestrator.core.actions.host_actions import CreateVolume, DeleteSeed, DeleteVolume, WriteSeed
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Fatal
from orchestrator.core.hosts.volume_key import VolumeKey
from orchestrator.core.units import show_size
from orchestrator.core.vms.disk_snapshot import SnapshotSource
from orchestrator.core.vms.image import Image
from orchestrator.core.vms.vm import Vm, snapshot_files
from orchestrator.core.vms.volume import attached_names
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.backups import fetch_disk
from orchestrator.operations.steps.disk_snapshots import copied
from orchestrator.operations.steps.ports import remove_ports, warned, write_ports
from orchestrator.operations.steps.volume_keys import disk_key
from orchestrator.operations.steps.volumes import detach_all, give_volumes, take_volumes_back, volume_text
from orchestrator.ports.files import Seed

_DISK: Final = "disk"
_SEED: Final = "seed"


def create_volume_action(vm: Vm, image: Image, keys: tuple[VolumeKey, ...] = ()) -> CreateVolume:
    """The VM's disk as an overlay. ``keys``: of one that is encrypted, when it is made."""
    return CreateVolume(
        vm=vm.id,
        volume=vm.volume,
        base_sha256=image.sha256,
        base_format=image.format,
        size_bytes=vm.spec.disk_bytes,
        keys=keys,
    )


def copy_action(vm: Vm, source: SnapshotSource) -> CopySnapshot:
    """The VM's disk as a copy of a snapshot."""
    return CopySnapshot(
        vm=vm.id,
        disk=source.disk,
        volume=vm.volume,
        of=source.vm,
        snapshot=source.snapshot,
        size_bytes=vm.spec.disk_bytes,
    )


def _send_image(context: Context) -> str:
    if context.known_vm().spec.pool is not None:
        return "the pool has its own"
    image = context.image()
    with context.world.store.read() as tx:
        seen = tx.hosts.snapshot(context.host_name)
    if seen is not None and any(file.name == image.file for file in seen.images):
        return "there already"
    return send_image(context, image)


def send_image(context: Context, image: Image) -> str:
    """Whether it was, for people."""
    host = context.host()
    path = context.world.images.path(image.sha256, image.format)
    result = context.world.link.send_image(host, path, image.sha256, image.format, context.token(host))
    return "sent" if result.changed else "there already"


def _ensure_network(context: Context) -> str:
    vm = context.known_vm()
    if vm.spec.adopted is not None:
        return "left as it is"
    with context.world.store.read() as tx:
        networks = [tx.networks.get(name) for name in vm.spec.networks]
    for action in (action for network in networks for action in network.ensure()):
        context.perform(action)
    write_ports(context, vm, (vm.host, context.host_name))
    return ", ".join(vm.spec.networks)


def _put_ports_back(context: Context) -> None:
    """Networks stay on the host for the next VM; removing the host removes them."""
    vm = context.vm()
    if vm is not None and vm.state == "creating":
        remove_ports(context, vm)
    elif vm is not None:
        with warned(context):
            write_ports(context, vm, (vm.host,))


def _with_our_files(context: Context) -> Vm | None:
    """The VM, if its disk and seed are ours: those of an adopted one are not."""
    vm = context.vm()
    return vm if vm is not None and vm.spec.adopted is None else None


def _create_volume(context: Context) -> str:
    vm, source = context.known_vm(), context.inputs.get("disk_of")
    if isinstance(source, dict):
        copied(context, copy_action(vm, SnapshotSource(**source)))
    elif "backup" in context.inputs:
        _with_image(context, lambda: fetch_disk(context))
    else:
        keys = disk_key(context, vm)
        _with_image(context, lambda: context.make(_DISK, create_volume_action(vm, context.image(), keys)))
    give_volumes(context, vm)
    return ", ".join((show_size(vm.spec.disk_bytes), *(f"volume {name}" for name in attached_names(vm))))


def _with_image(context: Context, make: Callable[[], object]) -> None:
    """A disk that lies on it."""
    try:
        make()
    except Fatal as error:
        if error.code != "image.missing":
            raise
        send_image(context, context.image())  # removed since the host was seen
        make()


def _delete_volume(context: Context) -> None:
    vm = _with_our_files(context)
    if vm is None:
        return
    take_volumes_back(context, vm)
    if context.made(_DISK):
        context.perform(DeleteVolume(vm=vm.id, volume=vm.volume))


def _write_seed(context: Context) -> None:
    vm = context.known_vm()
    user_data = None
    if vm.spec.user_data is not None:
        with context.world.store.read() as tx:
            user_data = tx.secrets.get(vm.spec.user_data)
    over_ipv6 = {port.network for port in vm.ports if ":" in port.address}
    cards = {mac_address(vm.id, number): network for number, network in enumerate(vm.spec.networks)}
    seed = Seed(
        vm=vm.id,
        hostname=vm.spec.name,
        ssh_keys=vm.spec.ssh_keys,
        user_data=user_data,
        cards=tuple(cards),
        cards_of_ipv6=frozenset(mac for mac, network in cards.items() if network in over_ipv6),
        function=None if vm.nic is None else vm.nic.mac,
    )
    iso = context.world.seeds.build(seed)
    context.make(_SEED, WriteSeed(vm=vm.id, seed=vm.seed, iso_base64=base64.b64encode(iso).decode()))


def _delete_seed(context: Context) -> None:
    vm = _with_our_files(context)
    if vm is not None:
        context.perform(DeleteSeed(vm=vm.id, seed=vm.seed))


def _delete_seed_made(context: Context) -> None:
    if context.made(_SEED):
        _delete_seed(context)


def _removed_volume(context: Context) -> str:
    vm = _with_our_files(context)
    if vm is not None:
        detach_all(context, vm)
        for file in (*snapshot_files(vm), vm.volume):
            context.perform(DeleteVolume(vm=vm.id, volume=file))
    vm = context.vm()
    return "" if vm is None or vm.spec.adopted is None else "its disks are not ours: they stay"


def _volume_text(context: Context) -> tuple[str, ...]:
    vm = _with_our_files(context)
    its = () if vm is None else (vm.volume, *snapshot_files(vm))
    return (*(f"volume {file} on host {context.host_name}" for file in its), *(volume_text(context) if its else ()))


def _seed_text(context: Context) -> tuple[str, ...]:
    vm = _with_our_files(context)
    return () if vm is None else (f"seed {vm.seed} on host {vm.host}",)


IMAGE = Step(
    name="image.1",
    title="base image on the host",
    do=_send_image,
    no_undo_reason="base images stay on the host for the next VM; removing the image or the host removes them",
)
NETWORK = Step(
    name="network.1",
    title="network on the host",
    do=_ensure_network,
    undo=_put_ports_back,
)
VOLUME = Step(name="volume.1", title="disk", do=_create_volume, undo=_delete_volume, remains=_volume_text)
SEED = Step(name="seed.1", title="seed", do=_write_seed, undo=_delete_seed_made, remains=_seed_text)
REMOVE_VOLUME = Step(
    name="remove_volume.1",
    title="remove the disk",
    do=_removed_volume,
    no_undo_reason="a deleted disk cannot come back",
    remains=_volume_text,
)
REMOVE_SEED = Step(
    name="remove_seed.1",
    title="remove the seed",
    do=_delete_seed,
    no_undo_reason="a VM that is being deleted needs none",
    remains=_seed_text,
)
