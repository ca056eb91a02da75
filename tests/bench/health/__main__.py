# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.bench.health``: writes build/bench/health.json.

A year in virtual time. Faults come as often as The Llama 3 Herd of Models (arXiv 2407.21783, table 5) counts them: 148
faulty GPUs and 72 of their memories among 16,384 in 54 days, 9.1 % of the GPUs in a year, independent of each other.
Once in that year a driver goes wrong, and a third of the fleet hangs within ten minutes.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.bench.health.year import DAY_S, Year
from tests.bench.placement.rows import Row, keep, read, rows_of, table

REPORT: Final = Path("build/bench/health.json")
HOSTS: Final = 1000
RATE: Final = (148 + 72) / 16_384 * 365 / 54
"""Of a GPU, faults in a year."""
FAULTS: Final = {95: 0.4, 48: 0.33, 119: 0.17, 79: 0.1}
"""Xids, and how often each of them it is; 79 asks for a reboot, which nobody does here but a person a day later."""
STORM_AT: Final = 200 * DAY_S
STORM_SHARE: Final = 1 / 3
A_DAY: Final = 8


def year_of(hosts: int, directory: Path) -> dict[str, float | int | None]:
    """All that is done by itself in it, and what must never be."""
    rng, began = random.Random(41), time.monotonic()
    with Year(hosts, A_DAY, directory) as year:
        gpus = year.gpus
        moments = sorted(rng.uniform(0.0, 365 * DAY_S) for _ in range(round(RATE * len(gpus))))
        for at in moments:
            if at > STORM_AT and not year.stormed:
                year.storm(rng.sample(gpus, round(STORM_SHARE * len(gpus))), STORM_AT)
            year.until(at)
            year.strike(rng.choice(gpus), rng.choices(list(FAULTS), list(FAULTS.values()))[0])
            year.calm()
            year.create()
        year.until(365 * DAY_S + 2 * DAY_S)
        year.calm()
        return {
            "faults": len(moments), "emptied": year.emptied, "resets": year.resets,
            "vms_made": year.made, "vms_on_closed_gpus": year.on_closed, "vms_lost": year.lost,
            "actions_with_open_breaker": year.with_open_breaker, "closed_in_the_storm": year.closed_in_storm,
            "most_falls_of_a_gpu_in_a_week": year.most_falls, "closed_after_a_year": year.closed,
            "most_emptied_in_a_day": year.most_in_a_day, "server_s": time.monotonic() - began,
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.health")
    parser.add_argument("--hosts", type=int, default=HOSTS)
    hosts = parser.parse_args().hosts
    with tempfile.TemporaryDirectory() as directory:
        rows: list[Row] = rows_of("health", f"a year, hosts={hosts}", f"{A_DAY} a day", year_of(hosts, Path(directory)))
    keep(rows, REPORT)
    sys.stdout.write(f"{table(read(REPORT))}\n")


if __name__ == "__main__":
    main()
