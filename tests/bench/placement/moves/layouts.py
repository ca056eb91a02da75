# SPDX-License-Identifier: Apache-2.0
"""GPUs and hosts grouped by what exactly lies where: the classes that a search for moves looks at."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import islice

from orchestrator.core.geometry.build import EqualSizeCut
from orchestrator.core.placement.fleet import Fleet, FleetHost, Gpu
from orchestrator.core.placement.index_set import IndexSet
from orchestrator.core.placement.state_table import Demand
from orchestrator.core.placement.views import Request

NeedKey = tuple[Demand, int, int]
"""(demand, vCPUs, memory): requests that are equal in these find room in the same places."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A place that could be cleared on every GPU of one layout."""

    starts: tuple[int, ...]
    """Start slots of what has to leave."""
    needs: tuple[NeedKey, ...]
    """What those that have to leave need elsewhere, sorted."""
    cost: float
    mask: int
    """Slots to clear; 0: all, and the GPU is cut anew."""


class Layouts:
    """One entry per distinct layout in use. Switched on when the first search needs it, kept up to date from then."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.patterns: dict[tuple[Hashable, Demand], tuple[Pattern, ...]] = {}
        """Filled in by the search for moves."""
        self.examples: dict[NeedKey, Request] = {}
        """A request for each key that a pattern names."""
        self._on = False
        self._gpu_key: dict[int, Hashable] = {}
        self._host_key: dict[int, Hashable] = {}
        self._gpus: dict[Hashable, IndexSet] = {}
        self._hosts: dict[Hashable, IndexSet] = {}

    def _start(self) -> None:
        if not self._on:
            self._on = True
            for gpu in self._fleet.gpus:
                self.note(gpu)

    def note(self, gpu: Gpu) -> None:
        """A GPU's contents changed."""
        if self._on:
            _file(self._gpus, self._gpu_key, gpu.number, layout_of(gpu))
            _file(self._hosts, self._host_key, gpu.host.number, _host_layout(gpu.host))

    def forget(self) -> None:
        """Hosts came, went or were seen anew: the next search looks at all of them."""
        self._on = False
        for known in (self._gpu_key, self._host_key, self._gpus, self._hosts):
            known.clear()

    def gpus(self) -> list[tuple[Hashable, IndexSet]]:
        """The numbers of the GPUs of each layout of partly taken GPUs."""
        self._start()
        return list(self._gpus.items())

    def hosts(self) -> Iterator[list[FleetHost]]:
        """For each layout of hosts that are used, up to eight hosts that have it."""
        self._start()
        for members in list(self._hosts.values()):
            yield [self._fleet.hosts[number] for number in islice(members, 8)]


def _file(index: dict[Hashable, IndexSet], keys: dict[int, Hashable], number: int, key: Hashable | None) -> None:
    old = keys.get(number)
    if old == key:
        return
    if old is not None:
        index[old].discard(number)
        if not index[old]:
            del index[old]
    if key is None:
        keys.pop(number, None)
    else:
        keys[number] = key
        index.setdefault(key, IndexSet()).add(number)


def layout_of(gpu: Gpu) -> Hashable | None:
    """Equal for GPUs on which the same lies in the same places; None where no search for moves looks."""
    if not gpu.held or gpu.whole or not gpu.usable or gpu.host.view.cordoned:
        return None
    if isinstance(gpu.table.cuts[gpu.cut], EqualSizeCut):
        return (gpu.table.number, gpu.cut, len(gpu.held))
    return (gpu.table.number, gpu.cut, tuple(sorted((taken.start, taken.shape) for taken, _ in gpu.held)))


def _host_layout(host: FleetHost) -> Hashable | None:
    if not host.used or host.view.cordoned:
        return None
    owners: dict[str, int] = {}
    for gpu in host.gpus:
        if gpu.whole:
            vm_id = gpu.held[0][1].vm_id
            owners[vm_id] = owners.get(vm_id, 0) | 1 << gpu.position
    parts = tuple(0 if gpu.whole else len(gpu.held) for gpu in host.gpus)
    return (host.board, host.busy, tuple(sorted(owners.values())), parts)
