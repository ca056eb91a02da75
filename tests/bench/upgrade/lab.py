# SPDX-License-Identifier: Apache-2.0
"""Rolling upgrades of three lab hosts, one out at a time, against the same hosts upgraded alone in the same run."""

from __future__ import annotations

import statistics
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.lab.three_hosts import FIRST, NAMES, SECOND, ThreeHosts, three_hosts

_ONE_AT_A_TIME: Final = ("--canary", "0", "--max-unavailable", "1")


def rolled_in_the_lab(state: Path, bundles: Path) -> dict[str, float | int | None]:
    """Seconds. Each host alone, all in a row, all in a row, each alone: every host and each direction counts as often
    alone as in a row, and other work beside this that comes and goes weighs on both alike. ``between_s`` is what does
    not depend on it: of the wall time, the part in which no host was out.

    :raises AssertionError: a host was not done, a VM is not as it was, or two hosts were out at once
    """
    with three_hosts(state, bundles) as site:
        before = site.vms()
        _took(site, SECOND, "--max-unavailable", str(len(NAMES)))
        alone = [_took(site, FIRST, "--hosts", name) for name in NAMES]
        rows = [_in_a_row(site, version) for version in (SECOND, FIRST)]
        alone += [_took(site, SECOND, "--hosts", name) for name in NAMES]
        assert site.vms() == before
    wall, between = (statistics.mean(values) for values in zip(*rows, strict=True))
    waves, each = len(NAMES), statistics.mean(alone)
    values = {"wall_s": wall, "most_out": 1, "waves": waves, "one_alone_s": each, "between_s": between}
    return {**values, "wall_over_waves": wall / (waves * each)}


def _in_a_row(site: ThreeHosts, version: str) -> tuple[float, float]:
    """All hosts one after the other: wall time, and how much of it no host was out."""
    wall = _took(site, version)
    spans = _spans(site.upgrade())
    most = max(sum(began <= at < ended for began, ended in spans) for at, _ in spans)
    assert most == 1, f"{most} hosts were out at once"
    return wall, wall - sum(ended - began for began, ended in spans)


def _took(site: ThreeHosts, version: str, *options: str) -> float:
    site.begin(version, *_ONE_AT_A_TIME, *options)
    upgrade = site.ended()
    assert {one["phase"] for one in upgrade["hosts"]} == {"done"}, upgrade
    return _moment(upgrade["ended_at"]) - _moment(upgrade["created_at"])


def _spans(upgrade: Any) -> list[tuple[float, float]]:
    """When each host had begun and ended."""
    return [(_moment(one["began_at"]), _moment(one["ended_at"])) for one in upgrade["hosts"]]


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
