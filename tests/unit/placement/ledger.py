# SPDX-License-Identifier: Apache-2.0
"""A second set of books: claims as the store would keep them, one per slot, checked at every entry.

It knows nothing of the engine's states and indexes, so a mistake in those cannot hide itself here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from orchestrator.core.geometry.nested import NestedCut
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.views import HostView, Placement, Request
from tests.bench.placement.moves.stays import may_move
from tests.bench.placement.moves.trial import Moved

Slot = tuple[str, str, int]


class Ledger:
    def __init__(self, hosts: Sequence[HostView]) -> None:
        self.hosts = {host.host_id: host for host in hosts}
        self.gpus = {(host.host_id, gpu.gpu_id): gpu for host in hosts for gpu in host.gpus}
        self.owner: dict[Slot, str] = {}
        self.cuts: dict[tuple[str, str], str] = {}
        self.on_gpu: Counter[tuple[str, str]] = Counter()
        self.live: dict[str, tuple[Request, Placement]] = {}
        self.vcpus: Counter[str] = Counter()
        self.memory_mib: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def claim(self, request: Request, placement: Placement) -> None:
        assert request.vm_id not in self.live
        self.counts["placed"] += 1
        self.live[request.vm_id] = (request, placement)
        self._spend(request, placement.host_id, 1)
        assert not self.hosts[placement.host_id].cordoned
        for part in placement.parts:
            where = (placement.host_id, part.gpu_id)
            assert self._legal(request, where, part.cut, part.start, part.size), f"{request.profile} at {where} {part}"
            assert self.cuts.setdefault(where, part.cut) == part.cut, f"{where} has two cuts"
            self.on_gpu[where] += 1
            for slot in part.slots:
                key = (*where, slot)
                assert key not in self.owner, f"{key} is claimed by {self.owner[key]} and {request.vm_id}"
                self.owner[key] = request.vm_id

    def give_back(self, vm_id: str) -> None:
        self.counts["released"] += 1
        request, placement = self.live.pop(vm_id)
        self._spend(request, placement.host_id, -1)
        for part in placement.parts:
            where = (placement.host_id, part.gpu_id)
            for slot in part.slots:
                assert self.owner.pop((*where, slot)) == vm_id
            self.on_gpu[where] -= 1
            if not self.on_gpu[where]:
                del self.cuts[where]

    def move(self, moves: Sequence[Moved]) -> None:
        """Moves are made one after the other, so each must be legal by itself."""
        for moved in moves:
            request, placement = self.live[moved.vm_id]
            assert may_move(request)
            assert placement.host_id == moved.from_host
            self.give_back(moved.vm_id)
            self.claim(request, moved.to)
            self.counts["moved"] += 1

    def check(self, engine: PlacementEngine) -> None:
        """The engine holds what the books say, no more and no less."""
        assert engine.vms.keys() == self.live.keys()
        held = {
            (gpu.host.view.host_id, gpu.view.gpu_id, item.vm_id) for gpu in engine.fleet.gpus for _, item in gpu.held
        }
        assert held == {(host, gpu, vm) for (host, gpu, _), vm in self.owner.items()}

    def _spend(self, request: Request, host_id: str, sign: int) -> None:
        host = self.hosts[host_id]
        self.vcpus[host_id] += sign * request.vcpus
        self.memory_mib[host_id] += sign * request.memory_mib
        assert 0 <= self.vcpus[host_id] <= host.free_vcpus
        assert 0 <= self.memory_mib[host_id] <= host.free_memory_mib

    def _legal(self, request: Request, where: tuple[str, str], cut: str, start: int, size: int) -> bool:
        """The start is one that an empty GPU's table has for the profile; equal slots may start anywhere.

        What lies inside a GPU instance is left to the table's own rules, which ``broken_rules`` asks.
        """
        if cut == "whole":
            return request.whole_gpus > 0 and (start, size) == (0, 1)
        table = self.gpus[where].geometry.cut(cut)
        shape = self.gpus[where].geometry.shape_in(request.profile, cut)
        if table is None or shape is None or not 0 <= start <= table.slots - size:
            return False
        starts = {choice.start for choice in table.choices(table.empty, shape)}
        return isinstance(table, NestedCut) or table.kind == "time_sliced" or start in starts
