# SPDX-License-Identifier: Apache-2.0
"""Rolling upgrades of three lab hosts, one out at a time, against hosts that are upgraded alone in the same run."""

from __future__ import annotations

import statistics
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.lab.three_hosts import FIRST, NAMES, SECOND, ThreeHosts, three_hosts

_ONE_AT_A_TIME: Final = ("--canary", "0", "--max-unavailable", "1")


def rolled_in_the_lab(state: Path, bundles: Path) -> dict[str, float | int | None]:
    """Seconds. Every host has had both drivers before anything is measured: the files are there, caches are warm.

    :raises AssertionError: a host was not done, a VM is not as it was, or two hosts were out at once
    """
    with three_hosts(state, bundles) as site:
        before = site.vms()
        _took(site, SECOND, "--canary", "0", "--max-unavailable", str(len(NAMES)))
        wall = _took(site, FIRST, *_ONE_AT_A_TIME)
        most = _most_out(site.upgrade())
        assert most == 1, f"{most} hosts were out at once"
        alone = [_took(site, SECOND, *_ONE_AT_A_TIME, "--hosts", name) for name in NAMES[:2]]
        assert site.vms() == before
        waves, each = len(NAMES), statistics.mean(alone)
        ratio = wall / (waves * each)
        return {"wall_s": wall, "most_out": most, "waves": waves, "one_alone_s": each, "wall_over_waves": ratio}


def _took(site: ThreeHosts, version: str, *options: str) -> float:
    site.begin(version, *options)
    upgrade = site.ended()
    assert {one["phase"] for one in upgrade["hosts"]} == {"done"}, upgrade
    return _moment(upgrade["ended_at"]) - _moment(upgrade["created_at"])


def _most_out(upgrade: Any) -> int:
    """Hosts that were out at once, by when each had begun and ended."""
    spans = [(_moment(one["began_at"]), _moment(one["ended_at"])) for one in upgrade["hosts"]]
    return max(sum(began <= at < ended for began, ended in spans) for at, _ in spans)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
