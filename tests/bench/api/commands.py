# SPDX-License-Identifier: Apache-2.0
"""Seconds that a whole command takes, process start included."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Final

from tests.fakes.typed import COMMAND

ROUNDS: Final = 10


def command_seconds(state: Path, *words: str) -> dict[str, float]:
    """Median and longest of some rounds; the first one, which may compile, does not count."""
    took: list[float] = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        subprocess.run(
            [COMMAND, *words], env={**os.environ, "VGPUCTL_STATE": str(state)}, check=True, stdout=subprocess.DEVNULL
        )
        took.append(time.perf_counter() - began)
    return {"seconds": statistics.median(took[1:]), "seconds_most": max(took[1:])}
