# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulated.moves import moves_of, simulate_moves
from tests.simulated.test_seeds import check, sampled

SEEDS = range(8000, 8085)
AT_ONCE = 2
"""In make test; all of them, in make soak, are more than ten thousand moves."""
LEAST = 60
"""Moves that a run has, so that it shows anything."""


@pytest.mark.fault("F13", "F15")
@sampled("seed", SEEDS, AT_ONCE)
def test_a_vm_that_moves_runs_on_one_host_and_its_claims_are_its_once_whatever_fails(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    report = simulate_moves(seed)
    check(report, f"--seed {seed} --moves")
    assert moves_of(report) >= LEAST
    record_property("moves of VMs in memory while whatever can fails", moves_of(report))
