# SPDX-License-Identifier: Apache-2.0
"""The product's policy and those that it is compared with, all on one engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from orchestrator.core.geometry.cut import Cut, State
from orchestrator.core.placement.scores import Options, Scores
from orchestrator.core.placement.state_table import StateStep, StateTable
from orchestrator.core.placement.views import HostView
from tests.bench.placement.moves.engine import MovingEngine

PolicyName = Literal["vgpuctl", "first_fit", "best_fit", "spread", "max_capability", "fgd"]
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)


class PolicyEngine(MovingEngine):
    """The engine under one policy."""

    def __init__(self, hosts: Iterable[HostView] = (), *, policy: PolicyName = "vgpuctl") -> None:
        super().__init__(hosts, scores=_SCORES[policy]())


class _FirstFit(Scores):
    """The lowest number; so do all policies for comparison among places that they find equally good."""

    prefers_used_hosts = False

    def of_step(self, table: StateTable, state: int, step: StateStep) -> float:
        return 0.0

    def of_board(self, board: Cut, number: int, before: int, after: int, *, opens: bool) -> float:
        return 0.0


class _BestFit(_FirstFit):
    """Where the least stays free."""

    def of_step(self, table: StateTable, state: int, step: StateStep) -> float:
        return table.free_mib(step.cut, step.choice.after)

    def of_board(self, board: Cut, number: int, before: int, after: int, *, opens: bool) -> float:
        return 0.0 if opens else board.free(after)


class _Spread(_FirstFit):
    """Where the most stays free."""

    def of_step(self, table: StateTable, state: int, step: StateStep) -> float:
        return -table.free_mib(step.cut, step.choice.after)

    def of_board(self, board: Cut, number: int, before: int, after: int, *, opens: bool) -> float:
        return 0.0 if opens else -board.free(after)


class _MaxCapability(_FirstFit):
    """Where the most places stay legal."""

    def of_step(self, table: StateTable, state: int, step: StateStep) -> float:
        return -_capability(table.cuts[step.cut], step.choice.after)

    def of_board(self, board: Cut, number: int, before: int, after: int, *, opens: bool) -> float:
        return 0.0 if opens else -_capability(board, after)


class _FragmentationGradientDescent(Scores):
    """As the product's, with every request counted alike whatever its size."""

    prefers_used_hosts = False

    def weight(self, table: StateTable, options: Options) -> float:
        return 1.0

    def whole_weight(self, count: int) -> int:
        return 1


_SCORES: dict[PolicyName, type[Scores]] = {
    "vgpuctl": Scores,
    "first_fit": _FirstFit,
    "best_fit": _BestFit,
    "spread": _Spread,
    "max_capability": _MaxCapability,
    "fgd": _FragmentationGradientDescent,
}


def _capability(cut: Cut, state: State) -> int:
    """Number of places still legal, over all shapes."""
    return sum(len(cut.choices(state, shape)) for shape in cut.shapes)
