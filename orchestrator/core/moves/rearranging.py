# SPDX-License-Identifier: Apache-2.0
"""Moves that make room: each legal, and into space that is free before any of them. Pure.

No move of a plan waits for another one, so they can be made in any order, several at once, and one that fails costs
what it was for and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.core.placement.constraints import host_obstacles, shortage
from orchestrator.core.placement.engine import HeldClaim, PlacementEngine, PlacementPlan
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.preemption import Trial
from orchestrator.core.placement.rules import CURABLE
from orchestrator.core.placement.rules.affinity import apart_from
from orchestrator.core.placement.rules.named import OffHosts, on_host
from orchestrator.core.placement.rules.rule import GpuInUse, Need
from orchestrator.core.placement.victims import VictimSearch
from orchestrator.core.placement.views import HostView, Placement, Request

MAX_FOR_ONE: Final = 3
"""VMs that move for one that does not fit: with three nearly all is won that moves can win (placement-numbers.md)."""
_MAX_TRIED: Final = 64
"""Sets of VMs, or GPUs, that are tried in vain, the cheapest first."""


@dataclass(frozen=True, kw_only=True)
class Mover:
    """A VM that may move. ``goes``: whether it goes onto the GPU of the host of that name, room aside."""

    request: Request
    """What placement is asked for it, off its own host and off those where it may not go."""
    goes: Callable[[str, str], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedMove:
    """One VM that goes from a GPU of a host to one of another."""

    vm: str
    """Id of the VM."""
    source: str
    """Name of the host that it leaves."""
    leaves: str
    """PCI address of the GPU that it leaves."""
    target: str
    """Name of the host that it goes to."""
    gpu: str
    """PCI address of the GPU that it gets."""


@dataclass(frozen=True, slots=True)
class _Goes(Need):
    """Onto GPUs that take it, and of those, where it is to open none, onto those in use."""

    codes = ("gpu.other",)

    goes: Callable[[str, str], bool]
    opens_gpus: bool

    @property
    def judges_empty_gpus(self) -> bool:
        return True

    def off_gpu(self, gpu: GpuInUse) -> Iterator[str]:
        if not (self.opens_gpus or gpu.held) or not self.goes(gpu.host.view.name, gpu.gpu_id):
            yield "gpu.other"

    def message(self, code: str) -> str:
        return "it does not go onto this GPU"


@dataclass
class Rearrangement:
    """Moves tried in an engine. :meth:`undo` leaves it as it was."""

    engine: PlacementEngine
    mover: Callable[[str], Mover | None]
    """Of the VM with that id; None: it stays where it is."""
    moves: list[PlannedMove] = field(default_factory=list)

    _had: dict[str, HeldClaim] = field(default_factory=dict)
    """Id of a VM → what it has where it is."""

    def __post_init__(self) -> None:
        self._trial = Trial(self.engine)

    def undo(self) -> None:
        self._trial.undo()

    def fit(self, request: Request, most: int = MAX_FOR_ONE) -> Placement | None:
        """Where the request goes after :attr:`moves`, which are as few as may be and all leave the host that it goes
        to; None, with none made: not even then."""
        engine = self.engine
        for host, leaving in self._sets(request, most)[:_MAX_TRIED]:
            confined = replace(request, needs=on_host(request.needs, host.view.host_id))
            moves = self._all_off(leaving, opens_gpus=True)
            plan = None if moves is None else engine.plan(confined)
            if moves is not None and plan is not None:
                self.moves += moves
                placement = engine.take(confined, plan)
                engine.release(request.vm_id)
                return placement
            self.undo()
        return None

    def _sets(self, request: Request, most: int) -> list[tuple[FleetHost, tuple[str, ...]]]:
        """Few VMs first, then little GPU memory; the largest of each first."""
        search, sets = VictimSearch(request), list[tuple[int, int, int, FleetHost, tuple[str, ...]]]()
        for host in self.engine.fleet.hosts:
            if not CURABLE.issuperset(host_obstacles(request, host)):
                continue
            for vms in search.sets(host):
                if 0 < len(vms) <= most:
                    names = tuple(vm.vm_id for vm in sorted(vms, key=lambda vm: (-vm.gpu_mib, vm.vm_id)))
                    sets.append((len(vms), sum(vm.gpu_mib for vm in vms), host.number, host, names))
        return [(host, names) for *_, host, names in sorted(sets, key=lambda item: (item[:3], item[4]))]

    def empty_gpus(self, most: int) -> int:
        """Empty as many GPUs as ``most`` moves do, into others that are in use: those with the fewest and smallest VMs
        first. A GPU is emptied whole or left alone, and one that took a VM in is not emptied. How many are."""
        emptied, tried = 0, 0
        for gpu in sorted((gpu for gpu in self.engine.fleet.gpus if _may_be_emptied(gpu)), key=_weight):
            leaving = [item.vm_id for _, item in sorted(gpu.held, key=lambda pair: (-pair[0].size, pair[1].vm_id))]
            taken_in = {(move.target, move.gpu) for move in self.moves}
            if len(self.moves) + len(leaving) > most or (gpu.host.view.name, gpu.gpu_id) in taken_in:
                continue
            mark = self._trial.mark
            moves = self._all_off(leaving, opens_gpus=False)
            if moves is None:
                self._trial.undo(mark)
                tried += 1
            else:
                self.moves += moves
                emptied += 1
            if tried >= _MAX_TRIED or len(self.moves) >= most:
                break
        return emptied

    def _all_off(self, leaving: Iterable[str], *, opens_gpus: bool) -> list[PlannedMove] | None:
        """None: one of them stays; those before it have been moved."""
        moves = []
        for vm_id in leaving:
            move = self._off(vm_id, opens_gpus=opens_gpus)
            if move is None:
                return None
            moves.append(move)
        return moves

    def _off(self, vm_id: str, *, opens_gpus: bool) -> PlannedMove | None:
        held, mover = self.engine.vms.get(vm_id), self.mover(vm_id)
        if held is None or mover is None or len(held.gpus) != 1:
            return None
        request = replace(mover.request, needs=(*mover.request.needs, _Goes(mover.goes, opens_gpus)))
        off, plan = request, self.engine.plan(request)
        while plan is not None and not self._is_free_already(request, plan):
            off = replace(off, needs=(OffHosts(frozenset({self.engine.fleet.hosts[plan.host].view.name})), *off.needs))
            plan = self.engine.plan(off)
        if plan is None:
            return None
        self._had[vm_id] = held
        source, leaves = held.host.view.name, held.gpus[0].gpu_id
        placement = self._trial.carry(request, plan)
        target = self.engine.vms[vm_id].host.view.name
        return PlannedMove(vm=vm_id, source=source, leaves=leaves, target=target, gpu=placement.gpu_ids[0])

    def _is_free_already(self, request: Request, plan: PlacementPlan) -> bool:
        """Whether it goes there with all that :attr:`moves` leave of the host still held: of its CPUs, memory and such,
        which a move holds to its end."""
        host = self.engine.fleet.hosts[plan.host]
        left = [self._had[move.vm] for move in self.moves if move.source == host.view.name]
        if not {held.request.vm_id for held in left}.isdisjoint(apart_from(request.needs)):
            return False
        still = (
            (-held.request.vcpus, -held.request.memory_mib, tuple((kind, -amount) for kind, amount in held.spent))
            for held in left
        )
        short = shortage(request, host, [self.engine.fleet.gpus[number] for number, _ in plan.gpus], still)
        return not left or (short is not None and not any(short))

    def views(self) -> dict[str, HostView]:
        """By name, the hosts that :attr:`moves` change as they are then."""
        names = {name for move in self.moves for name in (move.source, move.target)}
        hosts = (self.engine.fleet.host(name) for name in names)
        return {host.view.name: _view_of(host) for host in hosts if host is not None}


def _may_be_emptied(gpu: Gpu) -> bool:
    return bool(gpu.held) and not gpu.whole and gpu.usable and not gpu.host.view.cordoned


def _weight(gpu: Gpu) -> tuple[int, int, int]:
    """The highest number first of those alike, as placement fills from the lowest."""
    return len(gpu.held), sum(taken.size for taken, _ in gpu.held) * gpu.table.cuts[gpu.cut].slot_mib, -gpu.number


def _view_of(host: FleetHost) -> HostView:
    gpus = (replace(gpu.view, cut=gpu.cut_name, occupied=tuple(item for _, item in gpu.held)) for gpu in host.gpus)
    return replace(
        host.view, gpus=tuple(gpus), free_vcpus=host.vcpus, free_memory_mib=host.memory_mib,
        free=tuple(host.free.items()), vms=frozenset(host.vms),
    )  # fmt: skip
