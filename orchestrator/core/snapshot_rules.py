# SPDX-License-Identifier: Apache-2.0
"""What a snapshot that an agent sent may hold: names that fit where they are kept, addresses that are some, no thing
twice. A host that says otherwise is believed nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

from orchestrator.core.agent_error import one_line
from orchestrator.core.cpus import MAX_CPU
from orchestrator.core.errors import InvalidInput, Unknown
from orchestrator.core.fabric import FabricSnapshot
from orchestrator.core.nic import MAX_NICS
from orchestrator.core.pci import parse_pci_address
from orchestrator.core.snapshot import DomainSnapshot, FileSnapshot, GpuSnapshot, HostSnapshot, Unchanged, VgpuParent

_ID: Final = 64
"""Machine and boot ids have 32 and 36 characters."""
_NAME: Final = 255
"""As long as a file's name may be."""
_CPU_LIST: Final = 6 * (MAX_CPU + 1)
"""Every CPU named by itself."""
_EPOCH: Final = 2**31 - 1
"""As large as the database's column may be."""
_LAST_SECOND: Final = 253402300800
"""The year 9999 ends."""
_PARTITIONS: Final = 64
"""FM_MAX_FABRIC_PARTITIONS"""
_PROBLEMS: Final = 100
_PROBLEM: Final = 1000


def checked(snapshot: HostSnapshot) -> HostSnapshot:
    """The same, with problems shortened to what people read.

    :raises Unknown: ``agent.answer_invalid``
    """
    _check_texts("id", (snapshot.machine_id, snapshot.boot_id), _ID)
    _check_texts("name", _names(snapshot), _NAME)
    _check_once("GPU", [gpu.address for gpu in snapshot.gpus])
    _check_once("domain", [domain.uuid for domain in snapshot.domains])
    for what, files in _files(snapshot).items():
        _check_once(what, [file.name for file in files])
    for domain in snapshot.domains:
        checked_domain(domain)
    for gpu in snapshot.gpus:
        _check_once("GPU instance", [str(one.id) for one in gpu.instances])
    parents = [parent for gpu in snapshot.gpus for parent in gpu.parents]
    _check_once("PCI function", [parent.address for parent in parents])
    _check_once("vGPU", [mdev.uuid for parent in parents for mdev in parent.mdevs])
    for address in [*(gpu.address for gpu in snapshot.gpus), *(parent.address for parent in parents)]:
        _check_address(address)
    _check_sizes(_sizes(snapshot))
    _check_nodes(snapshot)
    _check_nics(snapshot)
    _check_licences(snapshot)
    if not 0 <= snapshot.epoch < _EPOCH:
        raise _invalid("an epoch that nobody can raise", str(snapshot.epoch))
    gpus = tuple(replace(gpu, problems=_shortened(gpu.problems)) for gpu in snapshot.gpus)
    return replace(snapshot, gpus=gpus, problems=_shortened(snapshot.problems), fabric=_checked_fabric(snapshot.fabric))


def checked_unchanged(look: Unchanged) -> Unchanged:
    """The same.

    :raises Unknown: ``agent.answer_invalid``
    """
    _check_sizes((look.storage_free_bytes,))
    return look


def checked_domain(domain: DomainSnapshot) -> DomainSnapshot:
    """The same.

    :raises Unknown: ``agent.answer_invalid``
    """
    _check_texts("name", _domain_names(domain), _NAME)
    _check_texts("CPU list", ("", *(domain.affinity or ())), _CPU_LIST)
    _check_sizes((domain.vcpus or 0, domain.memory_mib or 0, domain.disk_bytes or 0))
    return domain


def _check_nodes(snapshot: HostSnapshot) -> None:
    _check_once("NUMA node", [str(node.id) for node in snapshot.nodes])
    cpus = [cpu for node in snapshot.nodes for cpu in node.cpus]
    _check_once("CPU", [str(cpu) for cpu in cpus])
    if any(cpu > MAX_CPU for cpu in cpus) or not all(core for node in snapshot.nodes for core in node.cores):
        raise _invalid("CPUs that cannot be so", str(max(cpus, default=0)))


def _check_nics(snapshot: HostSnapshot) -> None:
    if len(snapshot.nics) > MAX_NICS:
        raise _invalid("more network cards than a host can have", str(len(snapshot.nics)))
    functions = [one.address for nic in snapshot.nics for one in nic.functions]
    _check_once("network card", [nic.address for nic in snapshot.nics])
    _check_once("function of a network card", functions)
    ports = [port for nic in snapshot.nics for port in nic.bridges]
    for address in (*(nic.address for nic in snapshot.nics), *functions, *ports):
        _check_address(address)


def _check_licences(snapshot: HostSnapshot) -> None:
    for end in (one.until for gpu in snapshot.gpus for one in gpu.licences):
        if end is not None and not 0 <= end < _LAST_SECOND:
            raise _invalid("a moment that no calendar has", str(end))


def _checked_fabric(fabric: FabricSnapshot | None) -> FabricSnapshot | None:
    if fabric is None:
        return None
    _check_once("fabric partition", [str(one.id) for one in fabric.partitions])
    for one in fabric.partitions:
        _check_once("GPU of a fabric partition", [str(module) for module in one.modules])
    if len(fabric.partitions) > _PARTITIONS or not all(one.modules for one in fabric.partitions):
        raise _invalid("fabric partitions that cannot be so", str(len(fabric.partitions)))
    problem = None if fabric.problem is None else one_line(fabric.problem, _PROBLEM)
    return replace(fabric, problem=problem)


def _files(snapshot: HostSnapshot) -> dict[str, tuple[FileSnapshot, ...]]:
    return {
        "volume": snapshot.volumes, "seed": snapshot.seeds, "image": snapshot.images, "data volume": snapshot.data,
    }  # fmt: skip


def _names(snapshot: HostSnapshot) -> Iterator[str]:
    yield from (snapshot.hostname, snapshot.agent_version, snapshot.kernel, snapshot.os_name)
    yield from (snapshot.libvirt_version, snapshot.qemu_version, snapshot.driver_version or "")
    yield snapshot.dcgm_version or ""
    yield from snapshot.networks
    for bridge in snapshot.bridges:
        yield from (bridge.name, *bridge.vlans)
    if snapshot.fabric is not None:
        yield snapshot.fabric.version or ""
        yield from (one.owner or "" for one in snapshot.fabric.partitions)
    for gpu in snapshot.gpus:
        yield from _gpu_names(gpu)
    for nic in snapshot.nics:
        yield from (nic.vendor, nic.device, nic.interface or "")
        yield from (text or "" for one in nic.functions for text in (one.owner, one.held))
    for file in chain.from_iterable(_files(snapshot).values()):
        yield from (file.name, file.owner or "")


def _domain_names(domain: DomainSnapshot) -> Iterator[str]:
    yield from (domain.uuid, domain.name, domain.owner or "", *domain.devices, *domain.addresses)


def _gpu_names(gpu: GpuSnapshot) -> Iterator[str]:
    yield from (gpu.uuid, gpu.serial or "", gpu.model, gpu.driver or "")
    yield from (gpu.pci_vendor, gpu.pci_device, gpu.pci_subsystem_vendor, gpu.pci_subsystem_device)
    yield from (found.name for found in gpu.types)
    for instance in gpu.instances:
        yield from (instance.profile, instance.owner or "", *instance.devices, *instance.capabilities)
    yield from gpu.iommu_shared_with or ()
    yield from gpu.bridges
    yield from (one.vm for one in gpu.licences)
    for parent in gpu.parents:
        yield from _parent_names(parent)


def _parent_names(parent: VgpuParent) -> Iterator[str]:
    yield from (parent.current_type or "", parent.owner or "", *parent.creatable)
    for mdev in parent.mdevs:
        yield from (mdev.uuid, mdev.type_name, mdev.owner or "")


def _sizes(snapshot: HostSnapshot) -> Iterator[int]:
    yield from (snapshot.vcpus, snapshot.memory_mib, snapshot.storage_free_bytes, snapshot.storage_total_bytes)
    yield snapshot.protocol
    for one in snapshot.fabric.partitions if snapshot.fabric is not None else ():
        yield from (one.id, *one.modules)
    for node in snapshot.nodes:
        yield from (node.id, node.memory_mib, *node.cpus)
        for pages in node.hugepages:
            yield from (pages.size_kib, pages.total, pages.free)
    yield from (nic.numa_node or 0 for nic in snapshot.nics)
    for gpu in snapshot.gpus:
        yield from (gpu.memory_mib, gpu.sriov_total_vfs, gpu.sriov_enabled_vfs, gpu.numa_node or 0, gpu.module_id or 0)
        yield 0 if gpu.scheduler is None else gpu.scheduler.time_slice_us or 0
        for instance in gpu.instances:
            yield from (instance.id, instance.start, instance.size, *instance.compute)
        for parent in gpu.parents:
            yield from (parent.placement_id or 0, parent.gpu_instance or 0)
            yield from (mdev.placement_id or 0 for mdev in parent.mdevs)
        for found in gpu.types:
            yield from (found.type_id, found.framebuffer_mib, found.max_instances)
    yield from (file.size_bytes for file in chain.from_iterable(_files(snapshot).values()))


def _check_texts(what: str, texts: Iterable[str], most: int) -> None:
    longest = max(texts, key=len)
    if len(longest) > most:
        raise _invalid(f"a {what} of {len(longest)} characters", ascii(longest[: min(most, _NAME)]))


def _check_sizes(sizes: Iterable[int]) -> None:
    for number in sizes:
        if number < 0:
            raise _invalid("a size below zero", str(number))


def _check_address(address: str) -> None:
    try:
        canonical = parse_pci_address(address)
    except InvalidInput:
        canonical = None
    if canonical != address:
        raise _invalid("a PCI address that is none", ascii(address[:_ID]))


def _check_once(what: str, names: Iterable[str]) -> None:
    seen = set[str]()
    for name in names:
        if name in seen:
            raise _invalid(f"the same {what} twice", ascii(name[:_NAME]))
        seen.add(name)


def _shortened(problems: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one_line(problem, _PROBLEM) for problem in problems[:_PROBLEMS])


def _invalid(what: str, details: str) -> Unknown:
    return Unknown(
        "agent.answer_invalid",
        f"the agent tells of {what}",
        hint="look at the host: is its agent what was installed there?",
        details=details,
    )
