# SPDX-License-Identifier: Apache-2.0
"""Seeded streams of requests: Poisson arrivals, exponential or heavy-tailed lifetimes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.core.placement.views import Request

MIG_MIXES = {
    "uniform": (1 / 6,) * 6,
    "skew-small": (0.30, 0.25, 0.20, 0.10, 0.10, 0.05),
    "skew-big": (0.05, 0.10, 0.10, 0.20, 0.25, 0.30),
    "bimodal": (0.30, 0.15, 0.05, 0.05, 0.15, 0.30),
}
MIG_PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
MIG_SLICES = (1, 2, 2, 4, 4, 8)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request: what it asks for and how many slots of a GPU that is."""

    profile: str
    slots: float
    share: float
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    request: Request
    depart_s: float
    kind: Kind


def mig_kinds(mix: str) -> tuple[Kind, ...]:
    return tuple(
        Kind(profile, slots, share)
        for profile, slots, share in zip(MIG_PROFILES, MIG_SLICES, MIG_MIXES[mix], strict=True)
    )


def arrivals(
    kinds: tuple[Kind, ...],
    *,
    slots: float,
    load: float,
    count: int,
    seed: int,
    heavy: bool = False,
    tenants: Mapping[str, float] | None = None,
) -> Iterator[Arrival]:
    """``count`` requests that would keep ``load`` of ``slots`` busy if all were served. Mean lifetime: one hour."""
    rng = random.Random(seed)
    shares = [kind.share for kind in kinds]
    mean = sum(kind.slots * kind.share for kind in kinds) / sum(shares)
    rate = load * slots / mean / 3600
    names, weights = zip(*(tenants or {"t": 1.0}).items(), strict=True)
    now = 0.0
    for number in range(count):
        now += rng.expovariate(rate)
        kind = rng.choices(kinds, shares)[0]
        life = rng.lognormvariate(-2.0, 2.0) if heavy else rng.expovariate(1.0)
        request = Request(
            vm_id=f"vm{number}", profile=kind.profile, vcpus=max(1, math.ceil(kind.slots)), memory_mib=1024,
            tenant=rng.choices(names, weights)[0], priority=kind.priority, now_s=now,
        )  # fmt: skip
        yield Arrival(request, now + life * 3600, kind)
