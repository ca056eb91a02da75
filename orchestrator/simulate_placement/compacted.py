# SPDX-License-Identifier: Apache-2.0
"""What moving VMs together would gain in the state that a simulation ends in."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.errors import InvalidInput
from orchestrator.core.placement.ceiling import Ceiling
from orchestrator.core.placement.compaction import compact
from orchestrator.core.placement.engine import PlacementEngine

Gains = dict[str, float | int | None]


def checked_compaction(method: str | None) -> Callable[[PlacementEngine], Gains]:
    """How to plan by that name; nothing is planned without one.

    :raises InvalidInput: ``simulate.compaction_unknown``
    """
    if method is None:
        return lambda engine: {}
    if method == "greedy":
        return _greedy
    raise InvalidInput("simulate.compaction_unknown", f"no compaction is called {method[:60]!a}", hint="use greedy")


def _greedy(engine: PlacementEngine) -> Gains:
    before = engine.fleet.active
    plan = compact(engine)
    return {
        "compaction_active_before": before,
        "compaction_active_after": engine.fleet.active,
        "compaction_minimum": Ceiling(engine.fleet, engine.counts).minimum_gpus(),
        "compaction_moves": len(plan.moves),
    }
