# SPDX-License-Identifier: Apache-2.0
"""How many more of a profile fit: found by placing them one after another, never by counting free functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.advice.alike import OneOfEach
from orchestrator.core.advice.whole_gpus import most_whole_sets, serves
from orchestrator.core.errors import Reason
from orchestrator.core.placement.ceiling import Ceiling
from orchestrator.core.placement.engine import PlacementEngine, demand_of
from orchestrator.core.placement.repack import MAX_MOVES, make_room
from orchestrator.core.placement.views import HostView, Request

MAX_PLACED = 100_000
"""VMs placed per profile; where more fit, the numbers are lower bounds."""
MAX_FILLED = 1_000
"""Where more fit already, it is not tried whether moves make room for another: that takes placing them all first."""
MAX_REPACKS = 100
"""Times that VMs are moved to make room for one more."""


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """How many more VMs fit. Every number was reached by really placing them on a copy of the fleet."""

    profile: str
    fits_now: int
    fits_with_moves: int
    """When up to three VMs may be moved for each one placed."""
    exact: bool
    """Whether it is proved that no rearrangement of the GPUs holds one more."""
    reason: Reason | None = None
    """Why none fits now, where that was asked for."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a tenant is told: how many more VMs of one profile it could create now."""

    profile: str
    fits_now: int
    reason: Reason | None = None
    """Why none does."""


def capacity(requests: Iterable[Request], hosts: Sequence[HostView]) -> tuple[CapacityRow, ...]:
    """A row per request, each on the fleet as it is, the others not placed.

    ``requests`` are examples: one VM of each kind, with the vCPUs, memory and tenant it would have. Of hosts that are
    alike one is filled, and the number multiplied; the whole fleet only to see whether moving VMs helps.
    """
    each, fleet = OneOfEach.among(hosts), PlacementEngine(hosts)
    return tuple(without_filling(request, each, fleet) or placed(request, hosts) for request in requests)


def without_filling(request: Request, each: OneOfEach, fleet: PlacementEngine) -> CapacityRow | None:
    """The row, where it is told by one host of each kind; None: only :func:`placed` tells it. Changes nothing."""
    now, all_full = each.room(request)
    if now >= MAX_PLACED:
        return CapacityRow(request.profile, MAX_PLACED, MAX_PLACED, exact=False)
    # Where no VM may be moved, nothing but its own room counts for a host.
    if (each.fixed and all_full) or _is_full(fleet, request, now):
        return CapacityRow(request.profile, now, now, exact=True)
    if now > MAX_FILLED:
        return CapacityRow(request.profile, now, now, exact=False)
    return None


def placed(request: Request, hosts: Sequence[HostView]) -> CapacityRow:
    """Found by filling the whole fleet, and then by moving VMs for as long as that makes room."""
    engine = PlacementEngine(hosts)
    count = 0
    for host in hosts:
        if request.host in {None, host.host_id, host.name}:
            count = _fill(engine, replace(request, host=host.host_id), count)
    now = count
    for _ in range(MAX_REPACKS):
        if count >= MAX_PLACED or make_room(engine, request, MAX_MOVES) is None:
            break
        count = _fill(engine, request, count)
    return CapacityRow(request.profile, now, count, count < MAX_PLACED and _is_full(engine, request))


def _fill(engine: PlacementEngine, request: Request, placed: int) -> int:
    """Place as many as fit, host by host where the request names one; how many there are then."""
    while placed < MAX_PLACED:
        one = replace(request, vm_id=f"capacity {placed}")
        plan = engine.plan(one)
        if plan is None:
            break
        engine.take(one, plan)
        placed += 1
    return placed


def _is_full(engine: PlacementEngine, request: Request, more: int = 0) -> bool:
    """Whether one more is impossible however the VMs are arranged or no GPU has the profile.

    ``more``: VMs like it that are to be thought of as placed.
    """
    demand = demand_of(request)
    if request.whole_gpus and _whole_sets(engine, request) + more * request.count >= most_whole_sets(
        engine.fleet, demand
    ):
        return True
    known = request.whole_gpus or any(table.options(demand) for table in engine.fleet.tables)
    if not known:
        return True
    ceiling = Ceiling(engine.fleet, {one: count for one, count in engine.counts.items() if count})
    ceiling.add(demand, more * request.count)
    return not ceiling.fits(demand, request.count)


def _whole_sets(engine: PlacementEngine, request: Request) -> int:
    """Sets of as many whole GPUs, of the models asked for, that VMs have now."""
    demand = demand_of(request)
    return sum(
        held.request.count
        for held in engine.vms.values()
        if held.request.whole_gpus == request.whole_gpus and serves(held.host, demand)
    )


__all__ = ["MAX_PLACED", "CapacityRow", "Room", "capacity", "placed", "without_filling"]
