# SPDX-License-Identifier: Apache-2.0
"""Is this a VM at all? Checks of a request that need no database."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.catalogue.user_data import check_cloud_config
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.hosts.pool import check_pool_name
from orchestrator.core.labels import check_labels
from orchestrator.core.names import check_name
from orchestrator.core.units import MIB, show_size
from orchestrator.core.vms.image import check_image_name
from orchestrator.core.vms.network import MAX_CARDS
from orchestrator.core.vms.user_data import check_ssh_key, plain_user_data
from orchestrator.core.vms.vm import (
    MAX_DISK_BYTES,
    MAX_MEMORY_MIB,
    MAX_VCPUS,
    MIN_DISK_BYTES,
    MIN_MEMORY_MIB,
    VmSpec,
)
from orchestrator.services.messages import CreateVm
from orchestrator.services.vms.vm_volumes import check_names


def checked(request: CreateVm) -> CreateVm:
    """The request with canonical keys and plain user data.

    :raises InvalidInput: for the first thing that is wrong
    """
    check_name(request.name, what="vm")
    check_name(request.tenant, what="tenant")
    check_image_name(request.image)
    check_networks(request.networks if request.boot_timeout_s else (request.network, *request.more_networks))
    if request.host is not None:
        check_name(request.host, what="host")
    gpu = None if request.gpu is None else parse_pci_address(request.gpu)
    if request.label is not None:
        check_name(request.label, what="label")
    check_names(request.volumes)
    if request.pool is not None:
        check_pool_name(request.pool)
    _check_copy(request)
    check_labels(request.labels)
    check_size(request.vcpus, request.memory_mib)
    check_disk_size(request.disk_bytes)
    if (request.preempt or request.with_moves) and not request.start:
        options = {"--preempt": request.preempt, "--with-moves": request.with_moves}
        raise InvalidInput(
            "preemption.not_started",
            "no VM is stopped or moved for one that is not started",
            hint=f"leave out --no-start, or {' and '.join(option for option, is_set in options.items() if is_set)}",
        )
    user_data = None if request.user_data is None else plain_user_data(request.user_data)
    ssh_keys = tuple(dict.fromkeys(check_ssh_key(line) for line in request.ssh_keys))
    return replace(request, gpu=gpu, user_data=user_data, ssh_keys=ssh_keys)


def _check_copy(request: CreateVm) -> None:
    """What its disk is a copy of.

    :raises InvalidInput: ``vm.name_invalid``, ``snapshot.name_invalid``, ``disk.two_sources``,
        ``disk.copy_not_encrypted``"""
    if request.from_snapshot is not None:
        vm, _, snapshot = request.from_snapshot.partition("/")
        check_name(vm, what="vm")
        check_name(snapshot, what="snapshot")
        if request.from_backup is not None:
            hint = "leave out --from-snapshot or --from-backup"
            raise InvalidInput("disk.two_sources", "a disk is a copy of one thing", hint=hint)
    if request.encrypted and (request.from_snapshot or request.from_backup):
        words = "a disk that is a copy is not encrypted, as what it is a copy of is not"
        hint = "leave out --encrypted, or make the VM of its image and copy what you need in its guest"
        raise InvalidInput("disk.copy_not_encrypted", words, hint=hint)


def check_networks(networks: tuple[str, ...]) -> None:
    """Of a VM's network cards. :raises InvalidInput: ``network.name_invalid``, ``….repeated``, ``….too_many_cards``"""
    for name in networks:
        check_name(name, what="network")
    if len(set(networks)) != len(networks):
        raise InvalidInput(
            "network.repeated", "a network is named twice", hint="each network card is on a network of its own"
        )
    if len(networks) > MAX_CARDS:
        raise InvalidInput("network.too_many_cards", f"a VM has at most {MAX_CARDS} network cards", hint="name fewer")


def check_size(vcpus: int, memory_mib: int) -> None:
    """0: left open. :raises InvalidInput: ``vcpus.out_of_range``, ``memory.out_of_range``"""
    _in_range("vcpus", vcpus, 1, MAX_VCPUS, str)
    _in_range("memory", memory_mib, MIN_MEMORY_MIB, MAX_MEMORY_MIB, lambda mib: show_size(mib * MIB))


def check_disk_size(size_bytes: int) -> None:
    """0: left open. :raises InvalidInput: ``disk.out_of_range``"""
    _in_range("disk", size_bytes, MIN_DISK_BYTES, MAX_DISK_BYTES, show_size)


def _in_range(field: str, value: int, at_least: int, at_most: int, show: object) -> None:
    """0 is what was not asked for."""
    if value and not at_least <= value <= at_most:
        shown = show if callable(show) else str
        raise InvalidInput(
            f"{field}.out_of_range",
            f"{field} {shown(value)} is outside {shown(at_least)} to {shown(at_most)}",
            hint=f"ask for at least {shown(at_least)} and at most {shown(at_most)}",
        )


def sized_as(spec: VmSpec, request: CreateVm) -> CreateVm:
    """What a repeated request leaves out is as it was then, whatever the profile says today."""
    return request.filled(spec)


def spec_of(
    request: CreateVm, user_data: str | None, networks: tuple[str, ...], volumes: tuple[str, ...], pool: str | None
) -> VmSpec:
    """Of a new VM. ``user_data``: the id under which the text is stored; the next three: their names on hosts.

    :raises InvalidInput: ``user_data.invalid``"""
    if request.user_data is not None:
        check_cloud_config(request.user_data)
    on_hosts = {"network": "", "volumes": volumes, "pool": pool}
    if networks:
        on_hosts |= {"network": networks[0], "more_networks": networks[1:]}
    return VmSpec(
        **{**request.shape(), **on_hosts},
        user_data=user_data,
        from_snapshot=request.from_snapshot,
        from_backup=request.from_backup,
        start=request.start,
        label=request.label,
        labels=check_labels(request.labels),
        protected=request.protected,
    )
