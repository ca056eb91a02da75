# SPDX-License-Identifier: Apache-2.0
"""Domains, disks, data volumes, seeds, images and networks as the agent handles them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from orchestrator.core.actions.host_actions import (
    ActionResult,
    CreateVolume,
    DefineDomain,
    DeleteImage,
    DeleteSeed,
    DeleteVolume,
    EnsureBridgedNetwork,
    EnsureNetwork,
    HostAction,
    RemoveNetwork,
    StartDomain,
    StopDomain,
    UndefineDomain,
    WriteSeed,
)
from orchestrator.core.actions.suspension import ResumeDomain, SuspendDomain
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.actions.volumes import AttachVolume, CreateDataVolume, DeleteDataVolume, DetachVolume
from orchestrator.core.domain_xml.domain import SPARE_PORTS
from orchestrator.core.errors import Conflict, Fatal, NotFound
from orchestrator.core.hosts.bridges import Uplink, bridge_of, why_not
from orchestrator.core.hosts.cpus import CpuPlace, own_cpus
from orchestrator.core.hosts.domain import DomainDescription, MadeAs
from orchestrator.core.hosts.pool import pool_of
from orchestrator.core.hosts.volume_key import check_keys
from orchestrator.core.vms.disk_snapshot import SNAPSHOT_FILE
from orchestrator.core.vms.volume import id_of
from orchestrator.sim.machine import DONE, SO_ALREADY, Domain, SimulatedMachine, check_disk, claim, may_die, release
from orchestrator.sim.pools import check_not_read
from orchestrator.sim.vgpu_actions import forget_gone
from orchestrator.sim.vm_moves import forget_memory, suspend

_ON_BRIDGES = IPv4Network("10.128.0.0/9")
_BLOCK = 256
_BLOCK_OF_SUBNET = 16
_FIRST = 2
"""After the subnet's own address and the host's."""
_MAX_PRINTED = 64 * 1024
"""Characters that are kept of what a domain printed."""


def create_data(machine: SimulatedMachine, action: CreateDataVolume) -> ActionResult:
    """:raises Conflict: ``volume.differs``; and those of a file"""
    made = write_file(machine, machine.data, f"data:{action.volume}", _volume_of(action.volume), action.size_bytes)
    if machine.data[action.volume] != action.size_bytes:
        raise Conflict("volume.differs", "the data volume exists with another size")
    return made


def delete_data(machine: SimulatedMachine, action: DeleteDataVolume) -> ActionResult:
    """Gone already is fine."""
    if machine.owner(f"attached:{action.volume}") is not None:
        raise Conflict("volume.in_use", "a VM has the data volume")
    changed = machine.data.pop(action.volume, None) is not None
    release(machine, f"data:{action.volume}", _volume_of(action.volume))
    return ActionResult(changed=changed)


def attach_data(machine: SimulatedMachine, action: AttachVolume) -> ActionResult:
    """For one VM at a time."""
    if action.volume not in machine.data:
        raise NotFound("volume.missing", "the data volume is not on the host")
    vm = machine.owner(f"attached:{action.volume}")
    if vm not in {None, action.vm}:
        raise Conflict("volume.in_use", "another VM has the data volume")
    check_not_read(machine.data, action.volume)
    claim(machine, f"attached:{action.volume}", action.vm)
    may_die(machine)
    return ActionResult(changed=vm is None)


def detach_data(machine: SimulatedMachine, action: DetachVolume) -> ActionResult:
    """One that another VM has is left alone."""
    if machine.owner(f"attached:{action.volume}") != action.vm:
        return SO_ALREADY
    domain = machine.domains.get(action.vm)
    if domain is not None and domain.running and action.volume in domain.data:
        raise Conflict("volume.in_use", "something has the data volume open")
    release(machine, f"attached:{action.volume}", action.vm)
    may_die(machine)
    return DONE


def check_data(machine: SimulatedMachine, vm: str, data: Iterable[str]) -> None:
    """That a definition takes only what the VM has.

    :raises Conflict: ``vm.file_foreign``"""
    for file in data:
        if machine.owner(f"attached:{file}") != vm:
            raise Conflict("vm.file_foreign", "the VM's definition takes a file that is not the VM's", details=file)


def _volume_of(file: str) -> str:
    return id_of(file.removesuffix(".raw"))


def receive_image(machine: SimulatedMachine, name: str) -> ActionResult:
    """:raises Fatal: ``host.disk_full``"""
    if name in machine.images:
        return SO_ALREADY
    check_disk(machine)
    machine.images.add(name)
    return DONE


def give_volume(machine: SimulatedMachine, copy: VolumeCopy) -> bool:
    """Whether UEFI variables go with it. :raises NotFound: ``volume.missing``; :raises Conflict: ``volume.in_use``"""
    in_pool = pool_of(copy.volume) is not None
    if (not in_pool and copy.volume not in machine.volumes) or machine.owner(f"volume:{copy.volume}") != copy.vm:
        raise NotFound("volume.missing", "the VM's disk is not on the host")
    domain = machine.domains.get(copy.vm)
    if domain is not None and domain.running:
        raise Conflict("volume.in_use", "the VM's volume is in use")
    return copy.vm in machine.nvram


def take_volume(machine: SimulatedMachine, copy: VolumeCopy, *, variables: bool) -> ActionResult:
    """:raises Fatal: ``image.missing``, ``host.disk_full``; :raises Conflict: ``host.foreign_file``"""
    if pool_of(copy.volume) is not None:
        machine.nvram |= {copy.vm} if variables else set()
        return DONE
    action = CreateVolume(
        vm=copy.vm,
        volume=copy.volume,
        base_sha256=copy.base_sha256,
        base_format=copy.base_format,
        size_bytes=copy.size_bytes,
    )
    taken = create_volume(machine, action)
    if variables:
        machine.nvram.add(copy.vm)
    return taken


def create_volume(machine: SimulatedMachine, action: CreateVolume) -> ActionResult:
    if f"{action.base_sha256}.{action.base_format}" not in machine.images:
        raise Fatal("image.missing", "the base image is not on the host")
    machine.bases[action.volume] = action.base_file
    return write_file(machine, machine.volumes, f"volume:{action.volume}", action.vm, action.size_bytes)


def write_seed(machine: SimulatedMachine, action: WriteSeed) -> ActionResult:
    return write_file(machine, machine.seeds, f"seed:{action.seed}", action.vm, len(action.iso_base64))


def write_file(machine: SimulatedMachine, files: dict[str, int], key: str, owner: str, size: int) -> ActionResult:
    """``owner``: id of the VM or volume. :raises Conflict: ``host.foreign_file``; :raises Fatal: ``host.disk_full``"""
    name = key.partition(":")[2]
    if name in files:
        if machine.owner(key) != owner:
            raise Conflict("host.foreign_file", f"{name} exists and is not this VM's")
        return SO_ALREADY
    claim(machine, key, owner)
    try:
        check_disk(machine)
    except Fatal:
        release(machine, key, owner)
        raise
    files[name] = size
    may_die(machine)
    return DONE


def delete_volume(machine: SimulatedMachine, action: DeleteVolume) -> ActionResult:
    return _delete_file(machine, machine.volumes, f"volume:{action.volume}", action.vm)


def delete_seed(machine: SimulatedMachine, action: DeleteSeed) -> ActionResult:
    return _delete_file(machine, machine.seeds, f"seed:{action.seed}", action.vm)


def _delete_file(machine: SimulatedMachine, files: dict[str, int], key: str, vm: str) -> ActionResult:
    kind, _, name = key.partition(":")
    if changed := name in files:
        if machine.owner(key) != vm:
            raise Conflict("host.foreign_file", f"{name} exists and is not this VM's")
        domain = machine.domains.get(vm)
        if domain is not None and domain.running and not name.endswith(SNAPSHOT_FILE):
            raise Conflict(f"{kind}.in_use", f"the VM's {kind} is in use")
        del files[name]
    release(machine, key, vm)
    return ActionResult(changed=changed)


def delete_image(machine: SimulatedMachine, action: DeleteImage) -> ActionResult:
    name = f"{action.sha256}.{action.image_format}"
    if any(machine.bases.get(volume, name) == name for volume in machine.volumes):
        raise Conflict("image.in_use", "disks on this host are based on the image")
    changed = name in machine.images
    machine.images.discard(name)
    return ActionResult(changed=changed)


def define(machine: SimulatedMachine, action: DefineDomain) -> ActionResult:
    key = f"domain:{action.vm}"
    existing = machine.domains.get(action.vm)
    if existing is not None and machine.owner(key) is None:
        raise Conflict("vm.foreign_domain", "the host has a domain with this id that is not ours")
    if existing is not None and existing.adopted:
        raise Conflict("vm.adopted", "an adopted VM keeps the definition it came with")
    wanted = _described(action.domain)
    if existing is not None and replace(wanted, **{name: getattr(existing, name) for name in _OF_THE_HOST}) == existing:
        return SO_ALREADY
    check_data(machine, action.vm, action.domain.data)
    if wanted.uefi and "uefi" not in machine.features:
        raise Fatal("vm.definition_refused", "libvirt refused the VM's definition", details="no firmware matches")
    claim(machine, key, action.vm)
    disk = action.domain.volume
    machine.described[action.vm] = MadeAs(
        domain=action.domain,
        image=machine.bases.get(disk, ""),
        disk_bytes=machine.volumes.get(disk, 0),
        boot_policy="local",
    )
    try:
        check_disk(machine)
    except Fatal:
        if existing is None:
            release(machine, key, action.vm)
        raise
    if existing is None:
        machine.domains[action.vm] = wanted
    elif not existing.running:
        machine.domains[action.vm] = replace(wanted, **{name: getattr(existing, name) for name in _OF_THE_HOST})
    may_die(machine)
    return DONE


_OF_THE_HOST = (
    "running", "paused", "address", "started_at", "vcpus", "memory_mib", "disk_bytes", "adopted", "free_ports",
)  # fmt: skip
"""What of a domain no definition of ours changes."""


def _described(domain: DomainDescription) -> Domain:
    place = domain.cpus or CpuPlace(shared=())
    return Domain(
        name=domain.name,
        devices=(*(device.name for device in domain.devices), *filter(None, (domain.nic,))),
        data=domain.data,
        cards=len(domain.networks),
        affinity=() if domain.cpus is None else place.affinity,
        memory_words=place.memory_words,
        uefi=domain.firmware == "uefi",
        limits=(domain.disk_limits, *domain.data_limits),
        pages={f"{place.page_kib}:{node}": mib for node, mib in zip(place.nodes, place.page_mib, strict=False)},
    )


def undefine(machine: SimulatedMachine, action: UndefineDomain) -> ActionResult:
    domain = machine.domains.get(action.vm)
    if domain is not None:
        if machine.owner(f"domain:{action.vm}") is None:
            raise Conflict("vm.foreign_domain", "the host has a domain with this id that is not ours")
        if domain.running:
            raise Conflict("vm.running", "the VM is running")
        del machine.domains[action.vm]
        for kept in (machine.consoles, machine.described):
            kept.pop(action.vm, None)
    machine.nvram.discard(action.vm)
    forget_gone(machine, action.vm)
    return ActionResult(changed=domain is not None)


def start(machine: SimulatedMachine, action: StartDomain) -> ActionResult:
    domain = machine.domains.get(action.vm)
    if domain is None:
        raise NotFound("vm.not_found", "the VM is not defined on this host")
    if domain.running:
        return ActionResult(changed=forget_memory(machine, action.vm))
    kernel = machine.kernel
    check_data(machine, action.vm, domain.data)
    own = (file for file in machine.volumes if machine.owner(f"volume:{file}") == action.vm)
    check_keys((*domain.data, *own), action.keys)
    for device in domain.devices:
        if device not in kernel.devices():
            raise Conflict(
                "vm.device_foreign", "the VM's definition takes a device that is not the VM's", details=device
            )
        if device in kernel.opened:
            raise Fatal("vm.start_failed", "the VM did not start", details=f"device {device} is in use")
    _check_cpus(machine, domain)
    _check_pages(machine, domain)
    domain.running, domain.paused, domain.started_at = True, False, machine.now
    domain.free_ports = SPARE_PORTS
    domain.address = _address(machine, action.vm, domain)
    kernel.opened |= set(domain.devices)
    machine.nvram |= {action.vm} if domain.uefi else set()
    resumed = forget_memory(machine, action.vm)
    if not resumed:
        printed = f"{machine.consoles.get(action.vm, '')}{domain.name} boots\r\n{domain.name} login: \r\n"
        machine.consoles[action.vm] = printed[-_MAX_PRINTED:]
    may_die(machine)
    return ActionResult(changed=True, message="it goes on from its memory" if resumed else "")


def _check_cpus(machine: SimulatedMachine, domain: Domain) -> None:
    """No CPU is two running VMs' own, and each is there."""
    mine = own_cpus(domain.affinity)
    others = (own_cpus(other.affinity) for other in machine.domains.values() if other.running)
    if any(mine & theirs for theirs in others):
        raise Conflict("vm.cpu_foreign", "the VM's definition pins a CPU that another VM has alone")
    if not mine.issubset(cpu for node in machine.nodes for cpu in node.cpus):
        raise Fatal("vm.start_failed", "the VM did not start", details="no such CPU")


def _check_pages(machine: SimulatedMachine, domain: Domain) -> None:
    """As QEMU takes all of its huge pages when it starts."""
    running = [running_domain for running_domain in machine.domains.values() if running_domain.running]
    total = {f"{pages.size_kib}:{node.id}": pages.mib for node in machine.nodes for pages in node.hugepages}
    for key, mib in domain.pages.items():
        if sum(running_domain.pages.get(key, 0) for running_domain in running) + mib > total.get(key, 0):
            raise Fatal("vm.start_failed", "the VM did not start", details="no huge pages are left for its memory")


def _address(machine: SimulatedMachine, vm: str, domain: Domain) -> str:
    """Its own one, or the lowest that no domain has, as a DHCP server gives them out that keeps each lease: one that is
    stopped comes back with its own. Empty: none is free.

    Out of its first network's subnet; where its card is on a bridge, out of a range that is no network's. Each machine
    begins elsewhere, which real hosts do not: people shall not easily take two VMs for one.
    """
    made = machine.described.get(vm)
    subnet = None if made is None else machine.networks.get(made.domain.network)
    pool, block = (_ON_BRIDGES, _BLOCK) if subnet is None else (IPv4Network(subnet), _BLOCK_OF_SUBNET)
    if domain.address and IPv4Address(domain.address) in pool:
        return domain.address
    taken = {one.address for one in machine.domains.values()}
    count = pool.num_addresses - _FIRST - 1  # the last one is for all
    numbers = ((machine.index * block + number) % count for number in range(count))
    return next((address for number in numbers if (address := str(pool[_FIRST + number])) not in taken), "")


def stop(machine: SimulatedMachine, action: StopDomain) -> ActionResult:
    domain = machine.domains.get(action.vm)
    if forget_memory(machine, action.vm):
        return DONE
    if domain is None or not (domain.running or domain.paused):
        return SO_ALREADY
    if machine.owner(f"domain:{action.vm}") is None:
        raise Conflict("vm.foreign_domain", "the host has a domain with this id that is not ours")
    machine.power_off(action.vm)
    may_die(machine)
    return ActionResult(changed=True, message="the guest shut down" if action.grace_seconds else "powered off")


def ensure_network(machine: SimulatedMachine, action: EnsureNetwork) -> ActionResult:
    changed = action.name not in machine.networks
    machine.networks[action.name] = machine.networks.get(action.name) or action.subnet
    return ActionResult(changed=changed)


def ensure_bridged(machine: SimulatedMachine, action: EnsureBridgedNetwork) -> ActionResult:
    uplink = Uplink(bridge=action.bridge, vlan=action.vlan)
    if isinstance(bridge := bridge_of(machine.bridges, uplink), str):
        raise Conflict(bridge, why_not(bridge, uplink))
    changed = action.name not in machine.networks
    machine.networks[action.name] = None
    return ActionResult(changed=changed)


def remove_network(machine: SimulatedMachine, action: RemoveNetwork) -> ActionResult:
    changed = action.name in machine.networks
    machine.networks.pop(action.name, None)
    return ActionResult(changed=changed)


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    CreateVolume: create_volume,
    DeleteVolume: delete_volume,
    CreateDataVolume: create_data,
    DeleteDataVolume: delete_data,
    AttachVolume: attach_data,
    DetachVolume: detach_data,
    WriteSeed: write_seed,
    DeleteSeed: delete_seed,
    DeleteImage: delete_image,
    DefineDomain: define,
    UndefineDomain: undefine,
    StartDomain: start,
    ResumeDomain: start,
    SuspendDomain: suspend,
    StopDomain: stop,
    EnsureNetwork: ensure_network,
    EnsureBridgedNetwork: ensure_bridged,
    RemoveNetwork: remove_network,
}
