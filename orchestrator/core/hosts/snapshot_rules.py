# SPDX-License-Identifier: Apache-2.0
"""What a snapshot that an agent sent may hold: names that fit where they are kept, addresses that are some, no thing
twice. A host that says otherwise is believed nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from orchestrator.core.agent_error import one_line
from orchestrator.core.errors import InvalidInput, Unknown
from orchestrator.core.gpu.fabric import FabricSnapshot
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.hosts.cpus import MAX_CPU
from orchestrator.core.hosts.snapshot import DomainSnapshot, FileSnapshot, HostSnapshot, Unchanged
from orchestrator.core.hosts.snapshot_bounds import HOST_MIB, NAME, check_bounds

_PROBLEMS: Final = 100
_PROBLEM: Final = 1000


def checked(snapshot: HostSnapshot) -> HostSnapshot:
    """The same, with problems shortened to what people read.

    :raises Unknown: ``agent.answer_invalid``
    """
    check_bounds(snapshot)
    _check_once("GPU", [gpu.address for gpu in snapshot.gpus])
    _check_once("domain", [domain.uuid for domain in snapshot.domains])
    for what, files in _files(snapshot).items():
        _check_once(what, [file.name for file in files])
    for gpu in snapshot.gpus:
        _check_once("GPU instance", [str(instance.id) for instance in gpu.instances])
    parents = [parent for gpu in snapshot.gpus for parent in gpu.parents]
    _check_once("PCI function", [parent.address for parent in parents])
    _check_once("vGPU", [mdev.uuid for parent in parents for mdev in parent.mdevs])
    for address in [*(gpu.address for gpu in snapshot.gpus), *(parent.address for parent in parents)]:
        _check_address(address)
    _check_nodes(snapshot)
    _check_nics(snapshot)
    gpus = tuple(replace(gpu, problems=_shortened(gpu.problems)) for gpu in snapshot.gpus)
    return replace(snapshot, gpus=gpus, problems=_shortened(snapshot.problems), fabric=_checked_fabric(snapshot.fabric))


def checked_unchanged(look: Unchanged) -> Unchanged:
    """The same.

    :raises Unknown: ``agent.answer_invalid``
    """
    check_bounds(look)
    return look


def checked_domain(domain: DomainSnapshot) -> DomainSnapshot:
    """The same.

    :raises Unknown: ``agent.answer_invalid``
    """
    check_bounds(domain)
    return domain


def _check_nodes(snapshot: HostSnapshot) -> None:
    for node in snapshot.nodes:
        if any(pages.total * pages.size_kib > HOST_MIB * 1024 for pages in node.hugepages):
            raise _invalid("more huge pages than a host has memory for", f"NUMA node {node.id}")
    _check_once("NUMA node", [str(node.id) for node in snapshot.nodes])
    cpus = [cpu for node in snapshot.nodes for cpu in node.cpus]
    _check_once("CPU", [str(cpu) for cpu in cpus])
    if any(cpu > MAX_CPU for cpu in cpus) or not all(core for node in snapshot.nodes for core in node.cores):
        raise _invalid("CPUs that cannot be so", str(max(cpus, default=0)))


def _check_nics(snapshot: HostSnapshot) -> None:
    functions = [function.address for nic in snapshot.nics for function in nic.functions]
    _check_once("network card", [nic.address for nic in snapshot.nics])
    _check_once("function of a network card", functions)
    ports = [port for nic in snapshot.nics for port in nic.bridges]
    for address in (*(nic.address for nic in snapshot.nics), *functions, *ports):
        _check_address(address)


def _checked_fabric(fabric: FabricSnapshot | None) -> FabricSnapshot | None:
    if fabric is None:
        return None
    _check_once("fabric partition", [str(partition.id) for partition in fabric.partitions])
    for partition in fabric.partitions:
        _check_once("GPU of a fabric partition", [str(module) for module in partition.modules])
    if not all(partition.modules for partition in fabric.partitions):
        raise _invalid("fabric partitions that cannot be so", str(len(fabric.partitions)))
    problem = None if fabric.problem is None else one_line(fabric.problem, _PROBLEM)
    return replace(fabric, problem=problem)


def _files(snapshot: HostSnapshot) -> dict[str, tuple[FileSnapshot, ...]]:
    return {
        "volume": snapshot.volumes, "seed": snapshot.seeds, "image": snapshot.images, "data volume": snapshot.data,
    }  # fmt: skip


def _check_address(address: str) -> None:
    try:
        canonical = parse_pci_address(address)
    except InvalidInput:
        canonical = None
    if canonical != address:
        raise _invalid("a PCI address that is none", ascii(address[:NAME]))


def _check_once(what: str, names: Iterable[str]) -> None:
    seen = set[str]()
    for name in names:
        if name in seen:
            raise _invalid(f"the same {what} twice", ascii(name[:NAME]))
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
