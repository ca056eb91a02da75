# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.bench.upgrade [--case CASE ...]``: writes build/bench/upgrade.json; other cases keep their rows."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from orchestrator.services.drivers.upgrades import WantedUpgrade
from tests.bench.placement.rows import Row, keep, read, rows_of, table
from tests.bench.upgrade.fleet import NEW, fleet_of
from tests.bench.upgrade.lab import rolled_in_the_lab

REPORT: Final = Path("build/bench/upgrade.json")
HOSTS: Final = 1000
AT_ONCE: Final = 20


def one_alone_s(directory: Path) -> float:
    """Virtual seconds of a host by itself, mean of ten."""
    with fleet_of(10, directory) as fleet:
        fleet.service.start(WantedUpgrade(version=NEW, max_unavailable=1, canary=0))
        while fleet.engine.next():
            fleet.keeper.round()
        return fleet.clock.time / 10


def rolled(hosts: int, at_once: int, directory: Path) -> dict[str, float | int | None]:
    """An upgrade of all of them, each with a canary first. No host is out beyond what may be, at any moment.

    :raises AssertionError: one was, or not all have the driver
    """
    with fleet_of(hosts, directory) as fleet:
        began = time.monotonic()
        fleet.service.start(WantedUpgrade(version=NEW, max_unavailable=at_once))
        most = fleet.most_out()
        while fleet.engine.next():
            fleet.keeper.round()
            most = max(most, fleet.most_out())
        with fleet.store.read() as tx:
            upgrade = tx.maintenances.newest()
        wall = fleet.clock.time
        assert upgrade is not None
        assert most <= at_once, f"{most} hosts were out at once"
        assert {one.phase for one in upgrade.hosts} == {"done"}
        return {"wall_s": wall, "most_out": most, "server_s": time.monotonic() - began}


def _in_memory() -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        alone = one_alone_s(Path(directory))
    with tempfile.TemporaryDirectory() as directory:
        measured = rolled(HOSTS, AT_ONCE, Path(directory))
    waves = 1 + math.ceil((HOSTS - 1) / AT_ONCE)
    ratio = float(measured["wall_s"] or 0.0) / (waves * alone)
    values = {**measured, "waves": waves, "one_alone_s": alone, "wall_over_waves": ratio}
    return rows_of("rolling_upgrade", f"hosts={HOSTS}", f"{AT_ONCE} at a time", values)


def _on_lab_hosts() -> list[Row]:
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryDirectory() as bundles:
        return rows_of("rolling_upgrade", "lab", "1 at a time", rolled_in_the_lab(Path(state), Path(bundles)))


CASES: Final[dict[str, Callable[[], list[Row]]]] = {f"hosts={HOSTS}": _in_memory, "lab": _on_lab_hosts}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.upgrade")
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES))
    for case in parser.parse_args().case:
        keep(CASES[case](), REPORT)
    sys.stdout.write(f"{table(read(REPORT))}\n")


if __name__ == "__main__":
    main()
