# SPDX-License-Identifier: Apache-2.0
"""For each demand, everything that could serve it, best first: states of GPUs, and groups of hosts with empty ones.

A decision walks a ranking until it meets members; it never looks at GPUs one by one.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.core.geometry.board import other_models
from orchestrator.core.geometry.cut import Choice
from orchestrator.core.placement.fleet import Fleet, Group, Members
from orchestrator.core.placement.scores import Scores
from orchestrator.core.placement.state_table import EMPTY, Demand, StateStep, StateTable


class RankedPlace(NamedTuple):
    """One kind of place. ``position`` -1: ``members`` are GPUs in a state; otherwise hosts with that GPU empty.

    Whole GPUs: ``step`` is None and ``choice`` says which GPUs of the host.
    """

    score: float
    rank: int
    """1 for hosts without VMs where used hosts are preferred."""
    serial: int
    members: Members
    step: StateStep | None
    position: int
    choice: Choice | None


class Rankings:
    """Rankings by demand, kept up to date as states and groups are met for the first time."""

    def __init__(self, fleet: Fleet, scores: Scores) -> None:
        self.fleet = fleet
        self.scores = scores
        self._lists: dict[Demand, list[RankedPlace]] = {}
        self._serial = 0
        fleet.on_state = self._add_state
        fleet.on_group = self._add_group

    def of(self, demand: Demand) -> list[RankedPlace]:
        ranking = self._lists.get(demand)
        if ranking is None:
            ranking = self._lists[demand] = sorted(self._all(demand))
        return ranking

    def _all(self, demand: Demand) -> Iterator[RankedPlace]:
        if not demand.whole_gpus:
            for table in self.fleet.tables:
                for number in range(1, len(table.states)):
                    yield from self._of_state(table, number, demand)
        for group in self.fleet.groups:
            yield from self._of_group(group, demand)

    def _add_state(self, table: StateTable, number: int) -> None:
        for demand, entries in self._lists.items():
            if not demand.whole_gpus:
                for entry in self._of_state(table, number, demand):
                    insort(entries, entry)

    def _add_group(self, group: Group) -> None:
        for demand, entries in self._lists.items():
            for entry in self._of_group(group, demand):
                insort(entries, entry)

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def best_step(self, table: StateTable, number: int, demand: Demand) -> tuple[float, StateStep] | None:
        """The best way to place a demand on a GPU in that state, with its score."""
        best: tuple[float, StateStep] | None = None
        for step in table.steps(number, demand):
            score = self.scores.of_step(table, number, step)
            if best is None or score < best[0]:
                best = (score, step)
        return best

    def _of_state(self, table: StateTable, number: int, demand: Demand) -> Iterator[RankedPlace]:
        best = self.best_step(table, number, demand)
        if best is not None:
            yield RankedPlace(best[0], 0, self._next(), self.fleet.members[table.number][number], best[1], -1, None)

    def _of_group(self, group: Group, demand: Demand) -> Iterator[RankedPlace]:
        rank = int(self.scores.prefers_used_hosts and not group.used)
        if demand.whole_gpus:
            for score, choice in self.whole_choices(group, demand)[:1]:
                yield RankedPlace(score, rank, self._next(), group.members, None, 0, choice)
            return
        for number in sorted(set(group.board.tables)):
            table = self.fleet.tables[number]
            best = self.best_step(table, EMPTY, demand)
            where = self.opening(group, number) if best is not None else None
            if best is not None and where is not None:
                yield RankedPlace(best[0] + where[0], rank, self._next(), group.members, best[1], where[1], None)

    def whole_choices(self, group: Group, demand: Demand) -> list[tuple[float, Choice]]:
        """Legal sets of whole GPUs, best first."""
        board, shape = group.board, f"gpu:{demand.whole_gpus}"
        if shape not in board.cut.shapes:
            return []
        models = [self.fleet.tables[number].geometry.model for number in board.tables]
        scored = []
        for others in other_models(models, demand.gpu_models):
            busy = group.busy | group.closed | others
            for choice in board.cut.choices(busy, shape):
                after = group.busy | choice.mask
                score = self.scores.of_board(board.cut, board.number, group.busy, after, opens=False)
                scored.append((score, choice))
        return sorted(scored, key=lambda pair: pair[0])

    def opening(self, group: Group, table: int) -> tuple[float, int] | None:
        """Which empty GPU of a host to open for parts: the one whose loss hurts whole-GPU requests least."""
        board = group.board
        options = [
            (
                self.scores.of_board(board.cut, board.number, group.busy, group.busy | 1 << position, opens=True),
                position,
            )
            for position, number in enumerate(board.tables)
            if number == table and not group.busy >> position & 1
        ]
        return min(options) if options else None
