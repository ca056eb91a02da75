# SPDX-License-Identifier: Apache-2.0
"""Hosts between which a request cannot tell: what is found for one of them holds for all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.byte_cache import ByteCache
from orchestrator.core.errors import Reason
from orchestrator.core.geometry.cut import Cut
from orchestrator.core.geometry.minimum import minimum_bins
from orchestrator.core.placement.constraints import gpu_obstacles, lacks_what_it_needs
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.nodes import needed
from orchestrator.core.placement.reasons import leading_reason
from orchestrator.core.placement.views import GpuView, HostView, Request
from orchestrator.core.units import MIB

_MAX_ON_A_GPU = 1_000
"""More than any GPU is cut into."""
_ANSWER_BYTES = 256
"""One request is asked of all kinds."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Hosts with the same room, GPUs and claims."""

    number: int
    first: HostView
    count: int


class KnownRooms:
    """What was found for a host of some kind, for as long as anybody asks. Safe where questions come one by one."""

    def __init__(self) -> None:
        self._count = 0
        self._geometries = ByteCache[int](16 * MIB)
        self._numbers = ByteCache[int](32 * MIB)
        self._found = ByteCache[tuple[int, int]](64 * MIB)

    def number_of(self, host: HostView) -> int:
        """Of the host's kind: the same for all that are alike."""
        geometries = tuple(self._number(self._geometries, one.geometry.key, _size_of(one)) for one in host.gpus)
        held = sum(len(one.occupied) for one in host.gpus)
        vlans = sum(1 + len(one.vlans) for one in host.bridges)
        return self._number(self._numbers, (_room_of(host), geometries), 2048 + 512 * held + 128 * vlans)

    def _number(self, numbers: ByteCache[int], key: Hashable, size: int) -> int:
        """One that nothing else has had."""
        number = numbers.get(key)
        if number is None:
            self._count = number = self._count + 1
            numbers.put(key, number, size)
        return number

    def room(self, kind: Kind, request: Request, find: Callable[[Kind, Request], tuple[int, int]]) -> tuple[int, int]:
        """VMs like ``request`` that fit on one host of the kind, and the most that ever could."""
        key = kind.number, request
        found = self._found.get(key)
        if found is None:
            found = find(kind, request)
            self._found.put(key, found, _ANSWER_BYTES)
        return found


def _size_of(gpu: GpuView) -> int:
    return 1024 + 256 * len(gpu.geometry.options)


def kinds_of(hosts: Iterable[tuple[int, HostView]]) -> tuple[Kind, ...]:
    """Of hosts with the numbers of their kinds, in the order in which each is first met."""
    first: dict[int, HostView] = {}
    counts: dict[int, int] = {}
    for number, host in hosts:
        first.setdefault(number, host)
        counts[number] = counts.get(number, 0) + 1
    return tuple(Kind(number, host, counts[number]) for number, host in first.items())


class OneOfEach:
    """Answers for one host of each kind. Every question leaves it as it was."""

    def __init__(self, kinds: Sequence[Kind], known: KnownRooms) -> None:
        self.kinds = kinds
        self._known = known
        self._engine = PlacementEngine()
        self._alone: dict[tuple[Hashable, str], int] = {}

    @classmethod
    def among(cls, hosts: Iterable[HostView]) -> OneOfEach:
        """These hosts, of which nothing is known yet."""
        known = KnownRooms()
        return cls(kinds_of((known.number_of(host), host) for host in hosts), known)

    @property
    def fixed(self) -> bool:
        """No VM may be moved."""
        held = (item for kind in self.kinds for gpu in kind.first.gpus for item in gpu.occupied)
        return not any(item.migratable for item in held)

    def room(self, request: Request) -> tuple[int, bool]:
        """How many VMs fit on all hosts, nothing moved, and whether that is proved to be the most.

        The proof: each host has as many as it has vCPUs or memory for, or as its GPUs could ever hold beside what is
        on them. ``request`` names neither a host nor other VMs to be apart from.
        """
        total, proved = 0, True
        for kind in self.kinds:
            here, most = self._room_on(kind, request)
            total += here * kind.count
            proved = proved and here >= most
        return total, proved

    def taking(self, request: Request) -> frozenset[int]:
        """Numbers of the kinds with room for one; ``request`` as for :meth:`room`."""
        return frozenset(kind.number for kind in self.kinds if self._room_on(kind, request)[0])

    def _room_on(self, kind: Kind, request: Request) -> tuple[int, int]:
        """As :meth:`KnownRooms.room`."""
        if kind.first.cordoned or lacks_what_it_needs(request, kind.first) or not _offers(kind.first, request):
            return 0, 0
        return self._known.room(kind, replace(request, vm_id=""), self._found)

    def why_none(self, request: Request) -> Reason:
        """As :func:`leading_reason`; ``request`` as for :meth:`room`."""
        return leading_reason(self._engine, request, [(self._host(kind), kind.count) for kind in self.kinds])

    def _host(self, kind: Kind) -> FleetHost:
        host = self._engine.fleet.host(kind.first.host_id)
        if host is None:
            self._engine.add_host(kind.first)
            host = self._engine.fleet.hosts[-1]
        return host

    def _found(self, kind: Kind, request: Request) -> tuple[int, int]:
        host = self._host(kind)
        most = min(_most_beside(host, request), self._most_on_gpus(host, request))
        return self._fill(request, kind.first.host_id), most

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
        if gpu.whole or next(gpu_obstacles(request, gpu), None) is not None:
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
    if host.most_vcpus < request.vcpus:
        return 0
    own = (sum(host.numa_vcpus.values()), needed(request, host.view))
    huge = (sum(host.pages.get(request.page_kib, {}).values()), request.huge_mib)
    nics = (sum(host.nics.values()), int(request.nic))
    rooms = ((host.vcpus, request.vcpus), (host.memory_mib, request.memory_mib), own, huge, nics)
    return min((max(0, free) // each for free, each in rooms if each > 0), default=len(host.gpus) * _MAX_ON_A_GPU)


def _offers(host: HostView, request: Request) -> bool:
    return bool(request.whole_gpus) or any(request.profile in gpu.geometry.options for gpu in host.gpus)


def _room_of(host: HostView) -> Hashable:
    """Everything of a host but names, ids, reasons and what its GPUs can be cut into."""
    return (
        host.vcpus, host.free_vcpus, host.free_memory_mib, host.free_disk_gib, host.cordoned, host.free_nics,
        host.numa_free_vcpus, host.numa_free_memory, host.numa_shared, host.core_threads, host.pinnable,
        host.free_pages, host.fabric_partitions, host.whole_gpus, host.labels, host.bridges, host.uefi,
        tuple(_held_on(gpu) for gpu in host.gpus),
    )  # fmt: skip


def _held_on(gpu: GpuView) -> Hashable:
    held = tuple(
        (
            one.profile,
            one.start,
            one.size,
            one.tenant,
            one.isolation,
            one.priority,
            one.migratable,
            one.scheduler,
            one.host_labels,
            one.uplinks,
            one.uefi,
        )
        for one in gpu.occupied
    )
    whole, joins = gpu.reason_not_whole is None, gpu.reason_alone is None
    return gpu.cut, gpu.numa, gpu.module_id, gpu.usable, whole, joins, gpu.takes_schedulers, gpu.near_nics, held
