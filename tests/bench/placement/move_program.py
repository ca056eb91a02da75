# SPDX-License-Identifier: Apache-2.0
"""Direct moves as a whole-number program: which VMs leave, and which free places they could go to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from orchestrator.core.geometry.build import EqualSizeCut
from orchestrator.core.geometry.mask_cut import MaskCut
from orchestrator.core.placement.engine import PlacementPlan
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.state_table import Demand, StateStep
from tests.bench.placement.moves.engine import MovingEngine
from tests.bench.placement.moves.stays import may_move
from tests.bench.placement.moves.trial import Moved, MovingTrial
from tests.bench.placement.whole_program import Answer, WholeProgram

Alike = tuple[Demand, int, int]
"""(demand, vCPUs, memory): VMs that are equal in these stand for one another."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where VMs of one kind can go; ``column`` says how many do."""

    column: int
    gpu: Gpu
    alike: Alike
    step: StateStep


class MoveProgram:
    """Say who may leave, then where there is room, then ``close``. Every move costs ``cost``."""

    def __init__(self, engine: MovingEngine, *, cost: float) -> None:
        self.engine = engine
        self.program = WholeProgram()
        self._cost = cost
        self._leaving: dict[Alike, list[tuple[int, float]]] = defaultdict(list)
        self._waiting: dict[Alike, int] = defaultdict(int)
        self._places: list[_Place] = []

    def leave(self, vm_ids: Iterable[str], if_column: int) -> None:
        """These leave if the column is 1."""
        for vm_id in vm_ids:
            alike = _alike(self.engine, vm_id)
            self._waiting[alike] += 1
            self._leaving[alike].append((if_column, 1.0))

    def offer(self, gpu: Gpu, cut: int, *, closed_by: int | None = None) -> None:
        """Free places of a GPU under one cut; none of them if ``closed_by`` is 1."""
        here = gpu.table.cuts[cut]
        state = gpu.table.states[gpu.state][1] if gpu.held else here.empty
        covering: dict[int, list[tuple[int, float]]] = defaultdict(list)
        room = 1
        for alike, count in self._waiting.items():
            for step in gpu.table.steps(gpu.state, alike[0]):
                if step.cut != cut:
                    continue
                if isinstance(here, EqualSizeCut):
                    slots, room = 1, here.free(state)
                elif isinstance(here, MaskCut):
                    slots = cast("int", step.choice.after) & ~cast("int", state)
                else:
                    continue
                column = self.program.column(min(room, count), -self._cost)
                self._places.append(_Place(column, gpu, alike, step))
                for bit in range(slots.bit_length()):
                    if slots >> bit & 1:
                        covering[bit].append((column, 1.0))
        for terms in covering.values():
            if closed_by is not None:
                self.program.bound(0, [*terms, (closed_by, float(room))], room)
            else:
                self.program.bound(0, terms, room)

    def close(self) -> None:
        """Everybody who leaves arrives somewhere, and no host takes more than it has room for now."""
        arriving: dict[Alike, list[tuple[int, float]]] = defaultdict(list)
        on_host: dict[FleetHost, list[_Place]] = defaultdict(list)
        for place in self._places:
            arriving[place.alike].append((place.column, 1.0))
            on_host[place.gpu.host].append(place)
        for alike in self._waiting:
            leaving = [(column, -1.0) for column, _ in self._leaving[alike]]
            self.program.bound(0, arriving[alike] + _summed(leaving), 0)
        for host, places in on_host.items():
            for position, free in ((1, host.vcpus), (2, host.memory_mib)):
                terms = [(place.column, float(cast("int", place.alike[position]))) for place in places]
                if sum(amount * self.program.uppers[column] for column, amount in terms) > free:
                    self.program.bound(0, terms, free)

    def moves(self, answer: Answer) -> int:
        """How many moves the answer is."""
        return sum(answer.values[place.column] for place in self._places)

    def carry_out(self, answer: Answer, trial: MovingTrial, vm_ids: Iterable[str]) -> tuple[Moved, ...]:
        """Make the moves: VMs of ``vm_ids`` go where the answer wants VMs like them."""
        waiting: dict[Alike, list[str]] = defaultdict(list)
        for vm_id in vm_ids:
            waiting[_alike(self.engine, vm_id)].append(vm_id)
        moves = []
        for place in self._places:
            for _ in range(answer.values[place.column]):
                plan = PlacementPlan(place.gpu.host.number, ((place.gpu.number, _step_now(place)),), 0.0)
                moves.append(trial.move(waiting[place.alike].pop(), plan))
        return tuple(moves)


def is_movable(engine: MovingEngine, vm_id: str) -> bool:
    """Whether the program knows all that limits where the VM may go."""
    held = engine.vms.get(vm_id)
    if held is None:
        return False
    request = held.request
    return may_move(request) and request.count == 1 and not request.is_filtered and not request.whole_gpus


def _alike(engine: MovingEngine, vm_id: str) -> Alike:
    request = engine.vms[vm_id].request
    return (request.demand, request.vcpus, request.memory_mib)


def _summed(terms: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Each column once: VMs of one kind on one GPU leave together."""
    sums: dict[int, float] = {}
    for column, amount in terms:
        sums[column] = sums.get(column, 0.0) + amount
    return list(sums.items())


def _step_now(place: _Place) -> StateStep:
    """The step to the same place from the state that the GPU is in by now."""
    steps = place.gpu.table.steps(place.gpu.state, place.alike[0])
    equal = isinstance(place.gpu.table.cuts[place.step.cut], EqualSizeCut)
    return next(
        step for step in steps
        if (step.cut, step.shape) == (place.step.cut, place.step.shape)
        and (equal or step.choice.start == place.step.choice.start)
    )  # fmt: skip
