# SPDX-License-Identifier: Apache-2.0
"""``make bench-placement``: runs all suites and writes build/bench/placement.json.

``VGPUCTL_BENCH_SCALE`` is the length of the runs (0.5; 1 has less noise and takes twice as long),
``VGPUCTL_BENCH_SUITES`` names some suites (``S1,S7``); the rows of the others stay as they were measured before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.bench.placement import suite_latency, suite_offline, suite_priorities, suites_online
from tests.bench.placement.rows import Row, averaged, read, table, write

OUT = Path("build/bench/placement.json")
SUITES = ("S1", "S3", "S4", "S5", "S6", "S7", "S8")


def main() -> None:
    scale = float(os.environ.get("VGPUCTL_BENCH_SCALE", "0.5"))
    wanted = set(os.environ.get("VGPUCTL_BENCH_SUITES", ",".join(SUITES)).split(","))
    online = [job for job in suites_online.jobs(scale) if job.suite in wanted]
    if online:
        rows: list[Row] = []
        with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
            for found in pool.map(suites_online.perform, online, chunksize=4):
                rows += found
        _keep(rows)
    alone: tuple[tuple[str, Callable[[float], list[Row]]], ...] = (
        ("S8", suite_priorities.measure), ("S6", suite_offline.measure), ("S7", suite_latency.measure),
    )  # fmt: skip
    for suite, measure in alone:
        if suite in wanted:
            _keep(measure(scale))
    means = read(OUT)
    print(table(means))
    print(f"{len(means)} rows in {OUT}")


def _keep(rows: list[Row]) -> None:
    """Write these suites' rows at once, so that a run that is stopped keeps what it has."""
    new = {row.suite for row in rows}
    kept = [row for row in read(OUT) if row.suite not in new]
    write(sorted([*averaged(rows), *kept], key=lambda row: row.suite), OUT)


if __name__ == "__main__":
    main()
