# SPDX-License-Identifier: Apache-2.0
"""CPUs that VMs have alone, by NUMA node: what is free of them on a host, and what a VM takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.core.cpu_place import rounded, shares
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.views import HostView, Request

Cpus = tuple[tuple[int, int], ...]
"""(NUMA node, CPUs of it)"""


def needed(request: Request, host: HostView) -> int:
    """CPUs of whole cores that the VM has alone there; 0: it shares."""
    return rounded(request.own_vcpus, host.core_threads)


def kept_off_cpus(request: Request, host: FleetHost) -> str | None:
    """Code of why the host has no CPUs for a VM that wants its own; None: it has, as far as nodes do not matter."""
    if not request.pinned:
        return None
    if host.view.pinnable is None:
        return "host.cpus_unknown"
    if host.view.pinnable == 0:
        return "host.none_pinnable"
    return "host.cpus" if sum(host.numa_vcpus.values()) < needed(request, host.view) else None


def numa_fits(request: Request, gpu: Gpu) -> bool:
    """Whether the GPU's own NUMA node has the CPUs and the memory."""
    host, node = gpu.host, _node_of(gpu)
    if node is None or host.numa_vcpus.get(node, 0) < needed(request, host.view):
        return False
    return host.numa_memory.get(node, request.memory_mib) >= request.memory_mib


def taken_by(request: Request, host: FleetHost, gpus: Sequence[Gpu]) -> Cpus:
    """What it would have on these GPUs' host; nothing where the host turns out to have too few."""
    need = needed(request, host.view)
    if not need:
        return ()
    near = (node for node in map(_node_of, gpus) if node is not None)
    found = shares(host.numa_vcpus, near, need, strict=request.numa_strict)
    return () if found is None else tuple(found.items())


def spend(request: Request, host: FleetHost, cpus: Cpus, sign: int) -> None:
    """Take them (1), or give them back (-1); those of who insists on a node with its memory."""
    for node, count in cpus:
        host.numa_vcpus[node] = host.numa_vcpus.get(node, 0) - sign * count
        if request.numa_strict and node in host.numa_memory:
            host.numa_memory[node] -= sign * request.memory_mib


def with_more(free: Iterable[tuple[int, int]], more: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """``free`` by node with ``more`` by node."""
    found = dict(free)
    for node, count in more:
        found[node] = found.get(node, 0) + count
    return tuple(found.items())


def _node_of(gpu: Gpu) -> int | None:
    """A machine with a single node often says of no device that it is near it."""
    nodes = gpu.host.numa_vcpus
    return next(iter(nodes)) if gpu.view.numa is None and len(nodes) == 1 else gpu.view.numa
