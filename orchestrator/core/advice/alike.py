# SPDX-License-Identifier: Apache-2.0
"""Hosts between which a request cannot tell: what is found for one of them holds for all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.geometry.cut import Cut
from orchestrator.core.geometry.minimum import minimum_bins
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.views import GpuView, HostView, Request

_MAX_ON_A_GPU = 1_000
"""More than any GPU is cut into."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Hosts with the same room, GPUs and claims."""

    first: HostView
    names: tuple[str, ...]
    """Ids and names of all of them."""
    count: int


class OneOfEach:
    """An engine with one host of each kind. Every question leaves it as it was."""

    def __init__(self, hosts: Iterable[HostView]) -> None:
        self._kinds = _kinds(hosts)
        self._engine = PlacementEngine([kind.first for kind in self._kinds])
        self._alone: dict[tuple[Hashable, str], int] = {}

    def room(self, request: Request) -> tuple[int, bool]:
        """How many VMs fit on all hosts, nothing moved, and whether that is proved to be the most.

        The proof: each host has as many as it has vCPUs or memory for, or as its GPUs could ever hold beside what is
        on them. ``request`` names no other VMs to be apart from.
        """
        total, proved = 0, True
        for kind in self._kinds:
            if request.host is not None and request.host not in kind.names:
                continue
            host = self._engine.fleet.host(kind.first.host_id)
            if host is None or kind.first.cordoned or not _offers(kind.first, request):
                continue
            most = min(_most_beside(host, request), self._most_on_gpus(host, request))
            here = self._fill(request, kind.first.host_id)
            total += here * (1 if request.host is not None else kind.count)
            proved = proved and here >= most
        return total, proved

    def _fill(self, request: Request, host_id: str) -> int:
        engine, placed = self._engine, 0
        while True:
            one = replace(request, vm_id=f"room {placed}", host=host_id)
            plan = engine.plan(one)
            if plan is None:
                break
            engine.take(one, plan)
            placed += 1
        for number in reversed(range(placed)):
            engine.release(f"room {number}")
        return placed

    def _most_on_gpus(self, host: FleetHost, request: Request) -> int:
        if request.whole_gpus:
            free = sum(not gpu.held and gpu.usable for gpu in host.gpus)
            return free // (request.whole_gpus * request.count)
        return sum(self._most_on(gpu, request) for gpu in host.gpus if gpu.usable) // request.count

    def _most_on(self, gpu: Gpu, request: Request) -> int:
        """At least as many as the GPU can hold; 0 for a way of cutting it that its VMs rule out."""
        if gpu.whole:
            return 0
        most = 0
        for number, shape in gpu.table.options(request.demand):
            cut = gpu.table.cuts[number]
            if not gpu.held:
                most = max(most, self._most_alone(cut, shape))
            elif number == gpu.cut:
                free = cut.slots - sum(taken.size for taken, _ in gpu.held)
                most = max(most, free // max(1, cut.size(shape)))
        return most

    def _most_alone(self, cut: Cut, shape: str) -> int:
        key = (cut.key, shape)
        if key not in self._alone:
            most = 0
            while most < _MAX_ON_A_GPU and minimum_bins(cut, {shape: most + 1}).bins <= 1:
                most += 1
            self._alone[key] = most
        return self._alone[key]


def _most_beside(host: FleetHost, request: Request) -> int:
    """VMs that the host has vCPUs and memory for."""
    rooms = ((host.vcpus, request.vcpus), (host.memory_mib, request.memory_mib))
    return min((max(0, free) // each for free, each in rooms if each > 0), default=len(host.gpus) * _MAX_ON_A_GPU)


def _offers(host: HostView, request: Request) -> bool:
    return bool(request.whole_gpus) or any(request.profile in gpu.geometry.options for gpu in host.gpus)


def _kinds(hosts: Iterable[HostView]) -> Sequence[_Kind]:
    """In the order in which each kind is first met."""
    groups: dict[Hashable, list[HostView]] = {}
    geometries: dict[int, Hashable] = {}
    for host in hosts:
        for gpu in host.gpus:
            if id(gpu.geometry) not in geometries:
                geometries[id(gpu.geometry)] = gpu.geometry.key
        keys = tuple(geometries[id(gpu.geometry)] for gpu in host.gpus)
        groups.setdefault((_room_of(host), keys), []).append(host)
    return tuple(
        _Kind(alike[0], tuple(name for host in alike for name in (host.host_id, host.name)), len(alike))
        for alike in groups.values()
    )


def _room_of(host: HostView) -> Hashable:
    """Everything of a host but names, ids, reasons and what its GPUs can be cut into."""
    return (
        host.free_vcpus, host.free_memory_mib, host.free_disk_gib, host.cordoned, host.free_nic_vfs,
        host.numa_free_vcpus, host.fabric_partitions, host.whole_gpus,
        tuple(_held_on(gpu) for gpu in host.gpus),
    )  # fmt: skip


def _held_on(gpu: GpuView) -> Hashable:
    held = tuple((one.profile, one.start, one.size, one.tenant, one.priority) for one in gpu.occupied)
    return gpu.cut, gpu.numa, gpu.module_id, gpu.usable, held
