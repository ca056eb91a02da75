# SPDX-License-Identifier: Apache-2.0
"""What a step of a suite is, and steps for what vgpuctl does not have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from integrations.isvctl.site import Results, Site

Phase = Literal["setup", "test", "teardown"]
Output = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """``act`` does it and tells what it saw, ``success`` in any case."""

    act: Callable[[Site], Output]
    phase: Phase = "test"
    timeout_s: int = 900


def absent(route: str, why: str, *probes: str, member: str = "tests", **more: object) -> Step:
    """A step for something that vgpuctl lacks: no probe passes, and ``why`` says so for as long as the API refuses
    ``route`` as none of its own."""

    def act(site: Site) -> Output:
        results = Results()
        known = site.has(route)
        reason = f"the API has {route} now: this step has to be written" if known else why
        results.fail(probes or ("available",), reason)
        return results.told(member, **more)

    return Step(act)
