# SPDX-License-Identifier: Apache-2.0
"""Targets beside what was measured: ``python -m tests.bench.placement.targets`` writes the page from the last run."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.bench.placement.rows import Row, read

PAGE = Path("docs/reference/placement-numbers.md")
BY_HAND = "## Notes"
"""What follows this heading is kept when the page is written again."""
MEASURED = Path("build/bench/placement.json")


class Target(NamedTuple):
    """The mean of ``metric`` over the cases that begin with ``case`` must be at least or at most ``bar``.

    ``hosts=1000`` is that one case alone.
    """

    suite: str
    case: str
    policy: str
    metric: str
    at_least: bool
    bar: float


_MIG = "load=0.95 gpus=100 mix="
_LARGE = "load=0.95 gpus=1000 mix="
TARGETS = (
    Target("S1", _MIG, "vgpuctl", "weighted_acceptance", True, 94.0),
    Target("S1", _MIG, "vgpuctl_moves", "moves_per_vm", False, 0.05),
    Target("S1", "load=0.85 gpus=100 mix=", "vgpuctl_moves", "moves_per_vm", False, 0.015),
    Target("S1", _MIG, "vgpuctl_moves", "avoidable_rejections", False, 1.5),
    Target("S1", _LARGE, "vgpuctl", "avoidable_rejections", False, 0.0),
    Target("S1", _MIG, "vgpuctl", "active_over_min", False, 1.06),
    Target("S1", _LARGE, "vgpuctl", "active_over_min", False, 1.02),
    Target("S3", "load=0.95 hosts=100 mix=standard", "vgpuctl", "weighted_acceptance", True, 94.0),
    Target("S3", "load=0.95 hosts=100 mix=standard", "vgpuctl", "acceptance_of_8_gpus", True, 88.5),
    Target("S3", "load=0.95 hosts=100 mix=standard", "vgpuctl_moves", "weighted_acceptance", True, 95.5),
    Target("S4", "load=0.95 gpus=100 mix=small", "vgpuctl", "weighted_acceptance", True, 95.8),
    Target("S4", "load=0.95 gpus=100 mix=small", "vgpuctl_moves", "weighted_acceptance", True, 97.5),
    Target("S4", "load=0.95 gpus=100 mix=uniform sizes=equal", "vgpuctl", "weighted_acceptance", True, 93.7),
    Target("S4", "load=0.95 gpus=100 mix=uniform sizes=equal", "vgpuctl_moves", "weighted_acceptance", True, 96.0),
    Target("S6", "batch ", "vgpuctl", "gap_gpus", False, 0.0),
    Target("S6", "batch ", "vgpuctl", "batch_seconds", False, 1.0),
    Target("S6", "compaction ", "vgpuctl", "active_over_min", False, 1.005),
    Target("S6", "compaction ", "vgpuctl_optimum", "active_over_min", False, 1.005),
    Target("S6", "compaction ", "vgpuctl", "moves_per_freed_gpu", False, 2.0),
    Target("S7", "hosts=1000", "vgpuctl", "latency_p50_us", False, 30.0),
    Target("S7", "hosts=1000", "vgpuctl", "latency_p99_us", False, 150.0),
    Target("S7", "hosts=10000", "vgpuctl", "latency_p50_us", False, 40.0),
    Target("S7", "hosts=10000", "vgpuctl", "latency_p99_us", False, 200.0),
    Target("S7", "hosts=10000", "vgpuctl", "latency_p999_us", False, 1000.0),
    Target("S7", "hosts=10000", "vgpuctl", "decisions_per_s", True, 10_000.0),
    Target("S7", "hosts=10000 state=full", "vgpuctl", "latency_p99_us", False, 100.0),
    Target("S7", "hosts=10000 state=repack", "vgpuctl_moves", "latency_p99_us", False, 10_000.0),
    Target("S8", "load=", "vgpuctl", "quota_violations", False, 0.0),
)


def page(rows: Iterable[Row], head: str) -> str:
    """Markdown: each target, what was measured, and the same for the two bounds on the same seeds."""
    found = list(rows)
    lines = [
        "<!-- SPDX-License-Identifier: Apache-2.0 -->",
        "# Placement: targets and what was measured",
        "",
        f"Written by `python -m tests.bench.placement.targets` after `make bench-placement`. {head}",
        "The ceiling accepts whatever fits after a free rearrangement of everything, on the same requests: no policy",
        "that turns nothing away of its own accord can do better. The LP bound also knows all requests beforehand and",
        "may turn any away: nobody can do better. Percentages are of arrivals; means over cases.",
        "",
        "| suite | cases | policy | metric | target | measured | ceiling | LP bound | met |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_line(target, found) for target in TARGETS)]) + "\n"


def by_hand(old: str) -> str:
    """The part of an older page that people wrote: it stays."""
    at = old.find(BY_HAND)
    return "" if at < 0 else "\n" + old[at:]


def _line(target: Target, rows: list[Row]) -> str:
    value = _mean(target, rows, target.policy)
    is_acceptance = target.metric.endswith("acceptance")
    ceiling, bound = (_mean(target, rows, name) if is_acceptance else None for name in ("ceiling", "lp_bound"))
    bar = f"{'≥' if target.at_least else '≤'} {target.bar:g}"
    cells = (
        target.suite, target.case.removesuffix(" mix=").strip(), target.policy, target.metric, bar,
        _shown(value), _shown(ceiling), _shown(bound), _met(target, value),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _mean(target: Target, rows: list[Row], policy: str) -> float | None:
    values = [
        row.value for row in rows
        if row.suite == target.suite and row.policy == policy and row.metric == target.metric
        and _covers(target.case, row.case) and not row.case.endswith("lognormal")
    ]  # fmt: skip
    return sum(values) / len(values) if values else None


def _covers(wanted: str, case: str) -> bool:
    return case == wanted if wanted.startswith("hosts=") else case.startswith(wanted)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".rstrip("0").rstrip(".")


def _met(target: Target, value: float | None) -> str:
    if value is None:
        return "not measured"
    return "yes" if (value >= target.bar if target.at_least else value <= target.bar) else "no"


def main() -> None:
    rows = read(MEASURED)
    day = datetime.datetime.fromtimestamp(MEASURED.stat().st_mtime, datetime.UTC).date()
    scale = os.environ.get("VGPUCTL_BENCH_SCALE", "0.5")
    cores = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    text = page(rows, f"Measured {day} at scale {scale} on {cores}.")
    PAGE.write_text(text + by_hand(PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""), encoding="utf-8")


if __name__ == "__main__":
    main()
