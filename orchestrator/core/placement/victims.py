# SPDX-License-Identifier: Apache-2.0
"""Which VMs of a host would have to go for a request to fit there: small sets, found from the GPUs' tables.

What belongs to no tenant was not made here and is never proposed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from orchestrator.core.geometry.board import AnySetBoard
from orchestrator.core.geometry.cut import Cut, IllegalLayout, Taken
from orchestrator.core.placement.constraints import closed_to, in_the_way, is_other_gpu, shortage
from orchestrator.core.placement.engine import demand_of
from orchestrator.core.placement.fleet import FleetHost
from orchestrator.core.placement.rules.rule import Amounts, with_more
from orchestrator.core.placement.state_table import EMPTY, Demand, StateTable
from orchestrator.core.placement.views import GpuView, HostView, Occupied, Request

_MAX_TOGETHER = 3
_MAX_CONSIDERED = 12
_MAX_FOR_RESOURCES = 8
_MAX_ALIKE = 16

Positions = tuple[int, ...]
"""Indices into ``GpuView.occupied``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VmOnHost:
    """One VM with all it holds on a host. ``gpu_mib``: GPU memory of its slots."""

    vm_id: str
    tenant: str
    profile: str
    gpu_ids: tuple[str, ...]
    gpu_mib: int
    vcpus: int
    memory_mib: int
    spent: Amounts
    """What else it has of its host."""


def vms_on(host: HostView) -> dict[str, VmOnHost]:
    """The VMs that hold something on the host's GPUs, by id."""
    vms: dict[str, VmOnHost] = {}
    for gpu in host.gpus:
        for item in gpu.occupied:
            size = _slots_mib(gpu, item)
            known = vms.get(item.vm_id)
            if known is not None:
                vms[item.vm_id] = replace(
                    known,
                    gpu_ids=tuple(dict.fromkeys((*known.gpu_ids, gpu.gpu_id))),
                    gpu_mib=known.gpu_mib + size,
                )
                continue
            vms[item.vm_id] = VmOnHost(
                vm_id=item.vm_id, tenant=item.tenant, profile=item.profile, gpu_ids=(gpu.gpu_id,),
                gpu_mib=size, vcpus=item.vcpus, memory_mib=item.memory_mib,
                spent=item.spent,
            )  # fmt: skip
    return vms


def _slots_mib(gpu: GpuView, item: Occupied) -> int:
    cut = _cut_of(gpu)
    return gpu.geometry.memory_mib if cut is None else item.size * cut.slot_mib


def without(host: HostView, vms: Iterable[VmOnHost]) -> HostView:
    """The host as it would be if these VMs had never been there."""
    gone = {vm.vm_id: vm for vm in vms}
    gpus = tuple(_emptied(gpu, gone.keys()) for gpu in host.gpus)
    return replace(
        host, gpus=gpus, vms=host.vms - gone.keys(),
        free_vcpus=host.free_vcpus + sum(vm.vcpus for vm in gone.values()),
        free_memory_mib=host.free_memory_mib + sum(vm.memory_mib for vm in gone.values()),
        free=tuple(with_more(dict(host.free), (vm.spent for vm in gone.values())).items()),
    )  # fmt: skip


def _emptied(gpu: GpuView, gone: Iterable[str]) -> GpuView:
    left = tuple(item for item in gpu.occupied if item.vm_id not in set(gone))
    return replace(gpu, occupied=left, cut=gpu.cut if left else None)


class VictimSearch:
    """Sets of VMs whose going makes room for one request.

    GPUs in the same state are worked out once and proposed a few times only, so that big fleets of like GPUs
    cost no more than small ones.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self._demand = demand_of(request)
        self._known: dict[Hashable, tuple[Positions, ...]] = {}
        self._proposed: Counter[Hashable] = Counter()
        self._tables: dict[Hashable, StateTable] = {}

    def sets(self, host: FleetHost) -> Iterator[tuple[VmOnHost, ...]]:
        """Candidates on the host; some may still be ruled out by a rule that only the engine knows."""
        candidates = set(self._for_gpus(host))
        if not candidates:
            return
        vms = vms_on(host.view)
        filled = {self._for_resources(host, vms, names) for names in sorted(candidates, key=sorted)}
        for full in sorted((f for f in filled if f), key=sorted):
            if all(vms[name].tenant for name in full):
                yield tuple(vms[name] for name in sorted(full))

    def _for_gpus(self, host: FleetHost) -> Iterator[frozenset[str]]:
        if self.request.whole_gpus:
            yield from self._for_whole(host)
            return
        short = any(self._shortage(host, ()) or ())
        if self.request.count > 1:
            yield from self._for_several(host, short=short)
            return
        for gpu in host.gpus:
            key = _alike(self.request, gpu.view, short)
            if gpu.usable and not is_other_gpu(self.request, gpu) and self._proposed[key] < _MAX_ALIKE:
                self._proposed[key] += 1
                others = frozenset(in_the_way(self.request, gpu.view.occupied, gpu.view.geometry, gpu.view.cut))
                for positions in self._for_gpu(gpu.view):
                    yield others | {gpu.view.occupied[i].vm_id for i in positions}

    def _for_several(self, host: FleetHost, *, short: bool) -> Iterator[frozenset[str]]:
        """A few of the smallest, whichever GPUs they are on."""
        key = tuple(_alike(self.request, gpu.view, short) for gpu in host.gpus)
        if self._proposed[key] < _MAX_ALIKE:
            self._proposed[key] += 1
            vms = {name: vm for name, vm in vms_on(host.view).items() if vm.tenant}
            few = sorted(vms, key=lambda name: (vms[name].gpu_mib, name))[:_MAX_CONSIDERED]
            yield from (frozenset(c) for n in range(_MAX_TOGETHER + 1) for c in combinations(few, n))

    def _for_whole(self, host: FleetHost) -> Iterator[frozenset[str]]:
        cut = host.group.board.cut if host.group is not None else None
        shape = self.request.profile
        if cut is None or shape not in cut.shapes:
            return
        closed = closed_to(self.request, host)
        if isinstance(cut, AnySetBoard):
            usable = [gpu for gpu in host.gpus if not closed >> gpu.position & 1]
            cheapest = sorted(usable, key=lambda g: (sum(_slots_mib(g.view, i) for _, i in g.held), g.position))
            masks = [sum(1 << gpu.position for gpu in cheapest[: self.request.whole_gpus])]
        else:
            masks = [choice.mask for choice in cut.choices(closed, shape)]
        for mask in masks:
            yield frozenset(i.vm_id for gpu in host.gpus if mask >> gpu.position & 1 for _, i in gpu.held)

    def _for_gpu(self, gpu: GpuView) -> tuple[Positions, ...]:
        """Smallest sets of places to free, each without a needless member; ``((),)`` when there is room."""
        places = tuple((item.profile, item.start, item.size) for item in gpu.occupied)
        key = (gpu.geometry.key, gpu.cut, places)
        if key not in self._known:
            self._known[key] = tuple(self._smallest(gpu))
        return self._known[key]

    def _smallest(self, gpu: GpuView) -> Iterator[Positions]:
        table = self._tables.setdefault(gpu.geometry.key, StateTable(gpu.geometry, 0))
        if not table.options(self._demand):
            return
        count, smallest = len(gpu.occupied), list[frozenset[int]]()
        for size in range(min(_MAX_TOGETHER, count) + 1):
            for gone in combinations(range(count), size):
                if not any(less <= frozenset(gone) for less in smallest) and _has_room(table, gpu, gone, self._demand):
                    smallest.append(frozenset(gone))
                    yield gone
        if not smallest:
            yield tuple(range(count))

    def _for_resources(self, host: FleetHost, vms: dict[str, VmOnHost], names: frozenset[str]) -> frozenset[str] | None:
        """``names`` and as many more as it takes until nothing is short on the host; None: never enough."""
        going = [vms[name] for name in sorted(names)]
        for _ in range(_MAX_FOR_RESOURCES):
            short = self._shortage(host, going)
            if short is None:
                return None
            if not any(short):
                return frozenset(vm.vm_id for vm in going)
            left = [vm for vm in vms.values() if vm not in going and vm.tenant]
            shares = [(self._share_left(short, host, [*going, vm]), vm.gpu_mib, vm.vm_id) for vm in left]
            share, _, vm_id = min(shares, default=(math.inf, 0, ""))
            if share >= sum(1 for lack in short if lack):
                return None
            going.append(vms[vm_id])
        return None

    def _shortage(self, host: FleetHost, gone: Iterable[VmOnHost]) -> tuple[int, ...] | None:
        """What the host lacks once these have left, wherever on it; None: it lacks what nobody has."""
        return shortage(self.request, host, None, [(vm.vcpus, vm.memory_mib, vm.spent) for vm in gone])

    def _share_left(self, short: tuple[int, ...], host: FleetHost, gone: Iterable[VmOnHost]) -> float:
        """What is still short then, as a share of what is ``short`` now, over all of them."""
        then = self._shortage(host, gone) or ()
        return sum(after / before for before, after in zip(short, then, strict=True) if before)


def _has_room(table: StateTable, gpu: GpuView, gone: Positions, demand: Demand) -> bool:
    left = [item for i, item in enumerate(gpu.occupied) if i not in gone]
    if not left:
        return bool(table.steps(EMPTY, demand))
    index = table.cut_index(gpu.cut or "")
    if index is None:
        return False
    cut = table.cuts[index]
    shapes = (table.geometry.shape_in(item.profile, cut.name) or item.profile for item in left)
    taken = [Taken(shape, item.start, item.size) for shape, item in zip(shapes, left, strict=True)]
    try:
        number, _ = table.number_of(index, cut.classify(taken))
    except IllegalLayout:
        return False
    return bool(table.steps(number, demand))


def _cut_of(gpu: GpuView) -> Cut | None:
    return gpu.geometry.cut(gpu.cut) if gpu.cut else None


def _alike(request: Request, gpu: GpuView, short: bool) -> Hashable:
    """Equal for GPUs that promise equal remedies. ``short``: the host lacks more than GPU room."""
    held = tuple(
        (
            item.profile,
            item.start,
            bool(item.tenant),
            item.tenant == request.tenant,
            tuple(need.as_neighbour(request.needs) for need in item.needs),
        )
        for item in gpu.occupied
    )
    return (gpu.geometry.key, gpu.cut, held, short)


__all__ = ["VictimSearch", "VmOnHost", "vms_on", "without"]
