# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.sim.run import simulate

SEEDS = 40
SHARES = 8


@pytest.mark.parametrize("share", range(SHARES))
def test_whatever_goes_wrong_the_invariants_hold_and_everything_settles(share: int) -> None:
    for seed in range(share, SEEDS, SHARES):
        report = simulate(seed)
        assert report.broken == (), f"python -m orchestrator.sim --seed {seed}"
        assert report.operations > 0
