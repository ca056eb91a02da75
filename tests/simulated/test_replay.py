# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulated.run import simulate


@pytest.mark.parametrize("seed", [3, 47])
def test_a_seed_gives_the_same_events_again(seed: int) -> None:
    first, second = simulate(seed), simulate(seed)
    assert first.log == second.log
    assert first == second


def test_another_seed_gives_other_events() -> None:
    assert simulate(3).log != simulate(4).log


def test_another_process_replays_the_seed_exactly() -> None:
    logs = [
        subprocess.run(
            [sys.executable, "-m", "tests.simulated", "--seed", "3"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert logs[0] == logs[1]
    assert "seed 3:" in logs[0]
