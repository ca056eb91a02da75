# SPDX-License-Identifier: Apache-2.0
"""How many more of a profile fit: found by placing them one after another, never by counting free functions, and on one
of the hosts between which a request cannot tell: what is found for it holds for all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.byte_cache import ByteCache
from orchestrator.core.errors import Reason
from orchestrator.core.placement.constraints import lacks_what_it_needs
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.fleet import FleetHost
from orchestrator.core.placement.reasons import leading_reason
from orchestrator.core.placement.rules.named import on_host
from orchestrator.core.placement.views import GpuView, HostView, Request
from orchestrator.core.units import MIB

_ANSWER_BYTES = 256
"""One request is asked of all kinds."""


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """How many more VMs of one profile fit, or could be created by a tenant, now."""

    profile: str
    """Offering, vGPU type, MIG profile or gpu:N."""
    fits_now: int
    reason: Reason | None = None
    """Why none fits now, where that was asked for."""


@dataclass(frozen=True, slots=True)
class CapacityGpus:
    """Managed GPUs, by whether new VMs may be put on them."""

    allocatable: int
    """GPUs of hosts that are not cordoned, with nothing wrong; they may be full."""
    unfit: int
    """Closed by the rules of health until what they tell of is over."""
    quarantined: int
    """Closed until a person returns them."""


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
        self._found = ByteCache[int](64 * MIB)

    def number_of(self, host: HostView) -> int:
        """Of the host's kind: the same for all that are alike."""
        geometries = tuple(self._number(self._geometries, gpu.geometry.key, _size_of(gpu)) for gpu in host.gpus)
        held = sum(len(gpu.occupied) for gpu in host.gpus)
        return self._number(
            self._numbers, (_room_of(host), geometries), 2048 + 512 * held + sum(gpu.size for gpu in host.facts)
        )

    def _number(self, numbers: ByteCache[int], key: Hashable, size: int) -> int:
        """One that nothing else has had."""
        number = numbers.get(key)
        if number is None:
            self._count = number = self._count + 1
            numbers.put(key, number, size)
        return number

    def room(self, kind: Kind, request: Request, find: Callable[[Kind, Request], int]) -> int:
        """VMs like ``request`` that fit on one host of the kind."""
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
        self._alone: dict[int, PlacementEngine] = {}
        """Of one host of each kind that was filled, by its number: a host that is named is planned for slowly."""

    @classmethod
    def among(cls, hosts: Iterable[HostView]) -> OneOfEach:
        """These hosts, of which nothing is known yet."""
        known = KnownRooms()
        return cls(kinds_of((known.number_of(host), host) for host in hosts), known)

    def room(self, request: Request) -> int:
        """How many VMs fit on all hosts. ``request`` names neither a host nor other VMs to be apart from."""
        return sum(self._room_on(kind, request) * kind.count for kind in self.kinds)

    def taking(self, request: Request) -> frozenset[int]:
        """Numbers of the kinds with room for one; ``request`` as for :meth:`room`."""
        return frozenset(kind.number for kind in self.kinds if self._room_on(kind, request))

    def _room_on(self, kind: Kind, request: Request) -> int:
        """As :meth:`KnownRooms.room`."""
        if kind.first.cordoned or lacks_what_it_needs(request, kind.first) or not _offers(kind.first, request):
            return 0
        return self._known.room(kind, replace(request, vm_id=""), self._fill)

    def why_none(self, request: Request) -> Reason:
        """As :func:`leading_reason`; ``request`` as for :meth:`room`."""
        return leading_reason(self._engine, request, [(self._host(kind), kind.count) for kind in self.kinds])

    def _host(self, kind: Kind) -> FleetHost:
        host = self._engine.fleet.host(kind.first.host_id)
        if host is None:
            self._engine.add_host(kind.first)
            host = self._engine.fleet.hosts[-1]
        return host

    def _fill(self, kind: Kind, request: Request) -> int:
        engine = self._alone.get(kind.number)
        if engine is None:
            engine = self._alone[kind.number] = PlacementEngine((kind.first,))
        needs = request.needs if request.host is None else on_host(request.needs, kind.first.host_id)
        placed = 0
        while True:
            one = replace(request, vm_id=f"room {placed}", needs=needs)
            plan = engine.plan(one)
            if plan is None:
                break
            engine.take(one, plan)
            placed += 1
        for number in reversed(range(placed)):
            engine.release(f"room {number}")
        return placed


def _offers(host: HostView, request: Request) -> bool:
    return bool(request.whole_gpus) or any(request.profile in gpu.geometry.options for gpu in host.gpus)


def _room_of(host: HostView) -> Hashable:
    """Everything of a host but names, ids, reasons and what its GPUs can be cut into."""
    return (
        host.vcpus, host.free_vcpus, host.free_memory_mib, host.free, host.cordoned, host.fabric_partitions,
        host.whole_gpus, host.facts,
        tuple(_held_on(gpu) for gpu in host.gpus),
    )  # fmt: skip


def _held_on(gpu: GpuView) -> Hashable:
    held = tuple(
        (
            one.profile,
            one.start,
            one.size,
            one.tenant,
            one.priority,
            one.needs,
        )
        for one in gpu.occupied
    )
    whole, joins = gpu.reason_not_whole is None, gpu.reason_alone is None
    return gpu.cut, gpu.numa, gpu.module_id, gpu.usable, whole, joins, gpu.facts, held
