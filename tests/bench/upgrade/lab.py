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
    """Seconds. Hosts alone are measured before and after all of them, as much each way, because other work beside this
    comes and goes; ``between_s`` is what does not depend on it: of the wall time, the part in which no host was out.

    :raises AssertionError: a host was not done, a VM is not as it was, or two hosts were out at once
    """
    with three_hosts(state, bundles) as site:
        before = site.vms()
        _took(site, SECOND, "--canary", "0", "--max-unavailable", str(len(NAMES)))
        alone = [_took(site, version, *_ONE_AT_A_TIME, "--hosts", NAMES[0]) for version in (FIRST, SECOND)]
        wall = _took(site, FIRST, *_ONE_AT_A_TIME)
        spans = _spans(site.upgrade())
        alone += [_took(site, version, *_ONE_AT_A_TIME, "--hosts", NAMES[1]) for version in (SECOND, FIRST)]
        assert site.vms() == before
    most = max(sum(began <= at < ended for began, ended in spans) for at, _ in spans)
    assert most == 1, f"{most} hosts were out at once"
    between = wall - sum(ended - began for began, ended in spans)
    waves, each = len(NAMES), statistics.mean(alone)
    values = {"wall_s": wall, "most_out": most, "waves": waves, "one_alone_s": each, "between_s": between}
    return {**values, "wall_over_waves": wall / (waves * each)}


def _took(site: ThreeHosts, version: str, *options: str) -> float:
    site.begin(version, *options)
    upgrade = site.ended()
    assert {one["phase"] for one in upgrade["hosts"]} == {"done"}, upgrade
    return _moment(upgrade["ended_at"]) - _moment(upgrade["created_at"])


def _spans(upgrade: Any) -> list[tuple[float, float]]:
    """When each host had begun and ended."""
    return [(_moment(one["began_at"]), _moment(one["ended_at"])) for one in upgrade["hosts"]]


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
