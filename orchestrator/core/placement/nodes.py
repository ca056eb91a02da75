# SPDX-License-Identifier: Apache-2.0
"""What is counted near GPUs: by NUMA node CPUs that VMs have alone, memory of who insists on a node, huge pages; by
network card its functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.core.hosts.cpus import rounded, shares
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.views import HostView, Request

ByNode = tuple[tuple[int, int], ...]
"""(NUMA node, CPUs or MiB of it)"""


@dataclass(frozen=True, slots=True)
class OfNodes:
    """What one VM has."""

    cpus: ByNode = ()
    memory: ByNode = ()
    """Of huge pages, or of ordinary ones where it insists on the node."""
    nic: str = ""
    """The network card that it has a function of; empty: none."""


NOTHING = OfNodes()


def needed(request: Request, host: HostView) -> int:
    """CPUs of whole cores that the VM has alone there; 0: it shares."""
    return rounded(request.pinned, host.core_threads)


def kept_off_nodes(request: Request, host: FleetHost) -> str | None:
    """Code of why the host has too little of what is counted by node, as far as nodes do not matter; None: it has."""
    view = host.view
    if request.pinned:
        if view.pinnable is None:
            return "host.cpus_unknown"
        if view.pinnable == 0:
            return "host.none_pinnable"
        if sum(host.numa_vcpus.values()) < needed(request, view):
            return "host.cpus"
    elif request.numa_strict and not view.numa_shared:
        return "host.cpus_unknown"
    if not request.page_kib:
        return None
    if request.page_kib not in host.pages:
        return "host.no_hugepages"
    return "host.hugepages" if sum(host.pages[request.page_kib].values()) < request.huge_mib else None


def numa_fits(request: Request, gpu: Gpu) -> bool:
    """Whether the GPU's own NUMA node has the CPUs and the memory."""
    host, node = gpu.host, node_of(gpu)
    if node is None:
        return False
    if request.pinned:
        has_cpus = host.numa_vcpus.get(node, 0) >= needed(request, host.view)
    else:
        has_cpus = dict(host.view.numa_shared).get(node, 0) >= request.vcpus
    wanted = request.huge_mib or request.memory_mib
    return has_cpus and _memory(request, host).get(node, 0 if request.page_kib else wanted) >= wanted


def kept_off_nics(request: Request, host: FleetHost) -> str | None:
    """Code of why no GPU of the host has a network card for it; None: one has, or it wants none."""
    if not request.nic:
        return None
    if not any(gpu.view.near_nics for gpu in host.gpus):
        return "host.no_nic"
    return None if nic_for(host, host.gpus) else "host.nics_taken"


def kept_off_near_nics(request: Request, gpu: Gpu) -> str | None:
    """The same of one GPU. Of whole GPUs it is enough that one of a set has a card."""
    if not request.nic or request.whole_gpus or nic_for(gpu.host, (gpu,)):
        return None
    return "gpu.nics_taken" if gpu.view.near_nics else "gpu.no_nic"


def nic_for(host: FleetHost, gpus: Sequence[Gpu], more: Iterable[str] = ()) -> str:
    """The nearest card with a function that is free, one under a switch with a GPU first; empty: there is none.

    ``more``: cards of functions that are given back first."""
    given = set(more)
    for gpu in sorted(gpus, key=lambda one: not one.view.nics_under_switch):
        for card in gpu.view.near_nics:
            if host.nics.get(card, 0) > 0 or card in given:
                return card
    return ""


def missing(
    request: Request, host: FleetHost, gpus: Sequence[Gpu], leaving: Iterable[tuple[Request, OfNodes]]
) -> tuple[int, int, int] | None:
    """CPUs, MiB and functions of network cards that are too few for it near these GPUs when these VMs have left.

    None: it insists on one node, and these GPUs are not of one, or of one with too few CPUs to share; or it wants a
    network card, and none is near them."""
    near, gone = {node_of(gpu) for gpu in gpus}, tuple(leaving)
    if request.nic and not any(gpu.view.near_nics for gpu in gpus):
        return None
    nics = int(request.nic and not nic_for(host, gpus, (held.nic for _, held in gone)))
    strict = request.numa_strict
    if strict and (len(near) != 1 or None in near):
        return None
    if strict and not request.pinned and sum(n for node, n in host.view.numa_shared if node in near) < request.vcpus:
        return None

    def free(counted: Mapping[int, int], given: Iterable[ByNode]) -> int:
        there = with_more(counted.items(), (one for by_node in given for one in by_node))
        return sum(count for node, count in there if not strict or node in near)

    cpus = needed(request, host.view) - free(host.numa_vcpus, (held.cpus for _, held in gone))
    memory, wanted = _memory(request, host), request.huge_mib or request.memory_mib
    if not request.page_kib and (not strict or near.isdisjoint(memory)):
        return max(0, cpus), 0, nics
    alike = (held.memory for other, held in gone if other.page_kib == request.page_kib)
    return max(0, cpus), max(0, wanted - free(memory, alike)), nics


def _memory(request: Request, host: FleetHost) -> dict[int, int]:
    """By node, of the kind that the request's memory is of."""
    return host.pages.get(request.page_kib, {}) if request.page_kib else host.numa_memory


def taken_by(request: Request, host: FleetHost, gpus: Sequence[Gpu]) -> OfNodes:
    """What it would have on these GPUs' host; nothing where the host turns out to have too little."""
    if not request.of_nodes:
        return NOTHING
    near = [node for node in map(node_of, gpus) if node is not None]
    need, nic = needed(request, host.view), nic_for(host, gpus) if request.nic else ""
    cpus = (shares(host.numa_vcpus, near, need, strict=request.numa_strict) or {}) if need else {}
    near = [*cpus, *near]
    if request.page_kib:
        pages = shares(_memory(request, host), near, request.huge_mib, strict=request.numa_strict) or {}
        return OfNodes(tuple(cpus.items()), tuple(pages.items()), nic)
    counted = request.numa_strict and near and near[0] in host.numa_memory
    return OfNodes(tuple(cpus.items()), ((near[0], request.memory_mib),) if counted else (), nic)


def spend(request: Request, host: FleetHost, taken: OfNodes, sign: int) -> None:
    """Take it (1), or give it back (-1)."""
    for node, count in taken.cpus:
        host.numa_vcpus[node] = host.numa_vcpus.get(node, 0) - sign * count
    if taken.nic:
        host.nics[taken.nic] = host.nics.get(taken.nic, 0) - sign
    memory = _memory(request, host)
    for node, mib in taken.memory:
        if node in memory:
            memory[node] -= sign * mib


def with_more(free: Iterable[tuple[int, int]], more: Iterable[tuple[int, int]]) -> ByNode:
    """``free`` by node with ``more`` by node."""
    found = dict(free)
    for node, count in more:
        found[node] = found.get(node, 0) + count
    return tuple(found.items())


def node_of(gpu: Gpu) -> int | None:
    """A machine with a single node that has CPUs often says of no device that it is near it. Where VMs have CPUs alone,
    the nodes with CPUs are those of ``numa_vcpus``, whatever is free or shared of them."""
    host = gpu.host
    nodes = list(host.numa_vcpus) or [node for node, cpus in host.view.numa_shared if cpus]
    return nodes[0] if gpu.view.numa is None and len(nodes) == 1 else gpu.view.numa
