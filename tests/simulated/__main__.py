# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.simulated --seed N``: one run, its log, and what did not hold."""

from __future__ import annotations

import argparse
import sys

from tests.simulated.databases import fresh_sqlite
from tests.simulated.moves import simulate_moves
from tests.simulated.restores import soak
from tests.simulated.run import MIG, Report, RunPlan, simulate
from tests.simulated.upgrades import simulate_upgrade


def main() -> int:
    """Exit code 1 when something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulated", description="Replay one seed.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--hosts", type=int, default=RunPlan().hosts)
    parser.add_argument("--urgent", action="store_true", help="with VMs for which others are stopped")
    parser.add_argument("--pairs", action="store_true", help="VMs have two vGPUs each")
    parser.add_argument("--mig", action="store_true", help="VMs have vGPUs in GPU instances")
    parser.add_argument("--upgrade", action="store_true", help="in the middle of a rolling driver upgrade")
    parser.add_argument("--moves", action="store_true", help="VMs go from host to host all the time")
    parser.add_argument("--clocks", action="store_true", help="with wall clocks that jump all the time")
    parser.add_argument("--restores", action="store_true", help="the database goes back to copies, clocks jump by days")
    parser.add_argument("--quiet", action="store_true", help="no event log")
    wanted = parser.parse_args()
    report = _report(wanted)
    if not wanted.quiet:
        print("\n".join(report.log))
    for text in report.broken:
        print(f"BROKEN {text}")
    print(f"seed {report.seed}: {report.operations} operations in {report.virtual_s:.0f} virtual seconds")
    return 1 if report.broken else 0


def _report(wanted: argparse.Namespace) -> Report:
    if wanted.restores:
        with fresh_sqlite() as url:
            return soak(wanted.seed, url, two=False)
    if wanted.moves:
        return simulate_moves(wanted.seed)
    if wanted.upgrade:
        return simulate_upgrade(wanted.seed)
    plan = RunPlan(hosts=wanted.hosts, urgent=wanted.urgent, clocks=wanted.clocks, pairs=wanted.pairs)
    return simulate(wanted.seed, MIG if wanted.mig else plan)


if __name__ == "__main__":
    sys.exit(main())
