# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.step import Definition
from tests.simulated.run import RunPlan, simulate

SEEDS = range(40)
SHOWS_A_MISSING_FENCE = 131
"""Tried first, since each seed is a second's work; when the simulator draws otherwise, one of the others shows it."""


def without_undo(step_name: str) -> Mapping[str, Definition]:
    """Every operation as it is, but that step is not taken back."""
    return {
        kind: replace(
            definition,
            steps=tuple(
                replace(step, undo=None, no_undo_reason="removed on purpose") if step.name == step_name else step
                for step in definition.steps
            ),
        )
        for kind, definition in DEFINITIONS.items()
    }


def first_broken(plan: RunPlan, seeds: Iterable[int] = SEEDS) -> str:
    return next((report.broken[0] for seed in seeds if (report := simulate(seed, plan)).broken), "")


@pytest.mark.parametrize("step", ["volume.1", "seed.1", "device.1", "define.1"])
def test_an_undo_that_is_missing_is_noticed_as_a_leak(step: str) -> None:
    plan = RunPlan(definitions=without_undo(step))
    assert any("i2_nothing_leaks" in text for seed in SEEDS for text in simulate(seed, plan).broken[:1])


def test_an_agent_without_a_fence_is_noticed() -> None:
    # rare: the journal refuses a replaced controller too, so only an effect that is on its way gets through
    plan = RunPlan(fenced=False, faults=40, requests=40, alone=True, pauses=True)
    seeds = sorted(range(100, 140), key=lambda seed: seed != SHOWS_A_MISSING_FENCE)
    assert "i8_a_controller_that_was_replaced_does_not_act" in first_broken(plan, seeds)
