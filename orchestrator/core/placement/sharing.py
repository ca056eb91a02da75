# SPDX-License-Identifier: Apache-2.0
"""Which VMs keep a request off a GPU or host that has room: those of other tenants, and those that have the GPU divide
its time otherwise.

The rule is asked of values alone: a request and what is held say each how far they are to be kept apart. What says
nothing (``isolation`` None: what was not made here, fleets without tenants) keeps nobody off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.views import Occupied, Request
from orchestrator.core.vms.isolation import may_share_gpu, may_share_host


def kept_off_gpu(request: Request, gpu: Gpu) -> bool:
    """Whether another tenant's VM is on it that it may not be shared with."""
    return request.isolation is not None and any(True for _ in strangers_on(request, gpu))


def kept_off_host(request: Request, host: FleetHost) -> bool:
    """The same of all that is on the host."""
    mine = request.isolation
    if mine is None:
        return False
    there = (item for gpu in host.gpus for _, item in gpu.held if item.tenant != request.tenant)
    return any(item.isolation is not None and not may_share_host(mine, item.isolation) for item in there)


def strangers_on(request: Request, gpu: Gpu) -> Iterator[str]:
    """Ids of the VMs that would have to leave the GPU for their tenants' sake."""
    cut = gpu.table.cuts[gpu.cut].name if gpu.cut >= 0 else None
    return strangers(request, (item for _, item in gpu.held), gpu.table.geometry, cut)


def scheduled_otherwise(request: Request, held: Iterable[Occupied]) -> Iterator[str]:
    """Ids of the VMs for which the GPU divides its time in another way than the request wants it. The driver changes
    that only while no vGPU is on the GPU, and a VM that is stopped may be started any time."""
    return (item.vm_id for item in held if item.scheduler != request.scheduler)


def in_the_way(request: Request, held: Sequence[Occupied], geometry: Geometry, cut: str | None) -> Iterator[str]:
    """Ids of the VMs that would have to leave the GPU, however much room it has."""
    yield from strangers(request, held, geometry, cut)
    yield from scheduled_otherwise(request, held)


def strangers(request: Request, held: Iterable[Occupied], geometry: Geometry, cut: str | None) -> Iterator[str]:
    """The same of what is held on a GPU under that cut."""
    for item in held:
        mine, theirs = request.isolation, item.isolation
        if item.tenant == request.tenant or mine is None or theirs is None:
            continue
        if not may_share_gpu(mine, theirs, divided=_divided(geometry, cut, request.profile, item.profile)):
            yield item.vm_id


def _divided(geometry: Geometry, cut: str | None, one: str, other: str) -> bool:
    found = None if cut is None else geometry.cut(cut)
    if found is None:
        return False
    return found.divides(geometry.shape_in(one, found.name), geometry.shape_in(other, found.name))
