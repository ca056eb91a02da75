# SPDX-License-Identifier: Apache-2.0
"""What moving VMs together would gain in the state that a simulation ends in."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.errors import InvalidInput
from orchestrator.core.placement.ceiling import Ceiling
from orchestrator.core.placement.compaction import compact
from orchestrator.core.placement.engine import Engine
from orchestrator.core.placement.optimum import best_compaction
from orchestrator.ports.optimizer import Optimizer

SECONDS = 60.0
"""What an optimizer is given."""
Gains = dict[str, float | int | None]


def checked_compaction(method: str | None) -> Callable[[Engine], Gains]:
    """How to plan by that name; nothing is planned without one.

    :raises InvalidInput: ``simulate.compaction_unknown``, ``optimizer.missing``
    """
    if method is None:
        return lambda engine: {}
    if method == "greedy":
        return _greedy
    if method == "optimum":
        from orchestrator.adapters.optimizer.highs import load_optimizer

        optimizer = load_optimizer()
        return lambda engine: _best(engine, optimizer)
    raise InvalidInput(
        "simulate.compaction_unknown", f"no compaction is called {method[:60]!a}", hint="one of greedy, optimum"
    )


def _greedy(engine: Engine) -> Gains:
    before = engine.fleet.active
    plan = compact(engine)
    minimum = Ceiling(engine.fleet, engine.counts).minimum_gpus()
    return _gains(before, engine.fleet.active, minimum, len(plan.moves))


def _best(engine: Engine, optimizer: Optimizer) -> Gains:
    before = engine.fleet.active
    best = best_compaction(engine, optimizer, SECONDS)
    return {**_gains(before, best.active, best.minimum, len(best.plan.moves)), "compaction_gap": best.gap}


def _gains(before: int, after: int, minimum: int, moves: int) -> Gains:
    return {
        "compaction_active_before": before, "compaction_active_after": after, "compaction_minimum": minimum,
        "compaction_moves": moves,
    }  # fmt: skip
