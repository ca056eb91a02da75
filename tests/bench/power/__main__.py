# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.bench.power``: writes build/bench/power.json.

Hosts of eight GPUs that take 200 to 700 W, four hosts in a rack; each rack and the site have a budget. A GPU is at
rest, or at work for a while, asking for a part of its highest limit that is drawn anew. Each pass plans and carries
out as reconcile/power.py does: what is lowered counts less once it is confirmed, then what is left raises others.
Draws are those of the pass before, as readings come as often.

``work_share`` is what GPUs at work drew of what they would have drawn without limits. Of their work less is lost: a GPU
at nine tenths of its power has more than nine tenths of its clock.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.core.gpu.power import SITE, Budget, GpuPower, plan
from orchestrator.reconcile.power import POWER_S
from tests.bench.placement.rows import Row, keep, read, rows_of, table

REPORT: Final = Path("build/bench/power.json")
HOSTS: Final = 1000
HOSTS_OF_RACK: Final = 4
GPUS: Final = 8
MIN_W: Final = 200
MAX_W: Final = 700
IDLE_W: Final = 75.0
AT_WORK: Final = 0.55
"""Of the time."""
SPAN_S: Final = 1200.0
"""Of one piece of work, and of a rest, on average."""
BUDGETS: Final = (0.6, 0.7, 0.8)
"""Of the sum of highest limits."""


@dataclass
class Load:
    """Of one GPU. ``asks``: watts."""

    asks: float
    works: bool
    ends_at: float


class Fleet:
    def __init__(self, hosts: int, share: float, seed: int) -> None:
        self._rng = random.Random(seed)
        names = [(f"h{host:04}", f"r{host // HOSTS_OF_RACK:03}") for host in range(hosts)]
        of_host = share * GPUS * MAX_W
        self.budgets = {SITE: int(hosts * of_host)}
        self.budgets |= {Budget("rack", rack): int(HOSTS_OF_RACK * of_host) for _, rack in names}
        self.gpus = {
            (host, f"gpu-{gpu}"): GpuPower(
                key=(host, f"gpu-{gpu}"), budgets=(Budget("rack", rack), SITE), least=MIN_W, most=MAX_W,
                counts=int(share * MAX_W),
            )
            for host, rack in names
            for gpu in range(GPUS)
        }  # fmt: skip
        self.loads = {key: self._drawn_anew(0.0) for key in self.gpus}
        self.drawn = self.asked = 0.0
        self.passes = self.sent = self.over = 0

    def _drawn_anew(self, now: float) -> Load:
        works = self._rng.random() < AT_WORK
        asks = self._rng.uniform(0.5, 1.0) * MAX_W if works else IDLE_W
        return Load(asks, works, now + self._rng.expovariate(1 / SPAN_S))

    def pass_at(self, now: float) -> None:
        """GPUs draw since the pass before, then it is planned."""
        for key in self.loads:
            if self.loads[key].ends_at <= now:
                self.loads[key] = self._drawn_anew(now)
            load = self.loads[key]
            draws = min(load.asks, self.gpus[key].counts)
            if load.works:
                self.drawn, self.asked = self.drawn + draws, self.asked + load.asks
            self.gpus[key] = replace(self.gpus[key], drawn=draws)
        self._carried_out(plan(tuple(self.gpus.values()), self.budgets).lower)
        self._carried_out(plan(tuple(self.gpus.values()), self.budgets).higher)
        self.passes += 1

    def _carried_out(self, limits: Mapping[tuple[str, str], int]) -> None:
        for key, watts in limits.items():
            self.gpus[key] = replace(self.gpus[key], counts=watts)
        self.sent += len(limits)
        sums = dict.fromkeys(self.budgets, 0)
        for gpu in self.gpus.values():
            for budget in gpu.budgets:
                sums[budget] += gpu.counts
        self.over += sum(sums[budget] > watts for budget, watts in self.budgets.items())


def hours_of(hosts: int, hours: float, share: float) -> dict[str, float | int | None]:
    """What must never be, and what is lost."""
    fleet, began = Fleet(hosts, share, seed=17), time.process_time()
    for number in range(round(hours * 3600 / POWER_S)):
        fleet.pass_at(number * POWER_S)
    return {
        "budgets_exceeded": fleet.over, "work_share": fleet.drawn / fleet.asked,
        "sent_a_pass": fleet.sent / fleet.passes, "server_s_a_pass": (time.process_time() - began) / fleet.passes,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.power")
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--hours", type=float, default=0.5)
    given = parser.parse_args()
    rows: list[Row] = []
    for share in BUDGETS:
        case = f"{given.hours} h, hosts={given.hosts}"
        rows += rows_of("power", case, f"budget {share:.0%}", hours_of(given.hosts, given.hours, share))
    keep(rows, REPORT)
    sys.stdout.write(f"{table(read(REPORT))}\n")


if __name__ == "__main__":
    main()
