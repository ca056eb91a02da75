# SPDX-License-Identifier: Apache-2.0
"""Rules beyond room on the GPU: why a host, or a GPU of it, may not take a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.rules.labels import kept_for_another
from orchestrator.core.placement.rules.rule import Amounts, Resource, with_more
from orchestrator.core.placement.views import HostView, Occupied, Request


def allows(request: Request, host: FleetHost, gpu: Gpu | None) -> bool:
    """Whether the rules allow the request on the host, and on the GPU if one is given."""
    if gpu is not None and next(gpu_obstacles(request, gpu), None) is not None:  # asked of many GPUs of a host
        return False
    return next(host_obstacles(request, host), None) is None


def lacks_what_it_needs(request: Request, host: HostView) -> bool:
    """Whether the host can never take it, whatever room it has: it is kept for another tenant, or lacks a need."""
    return kept_for_another(host.facts, request.tenant) is not None or any(_missing(request, host))


def _missing(request: Request, host: HostView) -> Iterator[str]:
    for need in request.needs:
        yield from need.missing(host)


def host_obstacles(request: Request, host: FleetHost) -> Iterator[str]:
    """Codes of the rules that keep the request off the host, most telling first."""
    if host.view.cordoned:
        yield "host.cordoned"
    yield from _missing(request, host.view)
    if kept_for_another(host.view.facts, request.tenant) is not None:
        yield "host.kept"
    early, late = request.off_host
    for check in early:
        yield from check(host)
    if host.view.vcpus is not None and host.view.vcpus < request.vcpus:
        yield "host.too_small"
    if host.vcpus < request.vcpus:
        yield "host.vcpus"
    if host.memory_mib < request.memory_mib:
        yield "host.memory"
    for check in late:
        yield from check(host)


def gpu_obstacles(request: Request, gpu: Gpu) -> Iterator[str]:
    """Codes of the rules that keep the request off the GPU, room aside."""
    early, late = request.off_gpu
    for check in early:
        yield from check(gpu)
    if not gpu.usable:
        yield "gpu.unusable"
    for check in late:
        yield from check(gpu)


def is_other_gpu(request: Request, gpu: Gpu) -> bool:
    """Whether the GPU is not meant, whatever is on it."""
    return any(True for check in request.off_gpu[0] for _ in check(gpu))


def closed_to(request: Request, host: FleetHost) -> int:
    """The host's GPUs that are closed, to everybody or as another was asked for, a bit for each position."""
    return host.closed | sum(1 << gpu.position for gpu in host.gpus if is_other_gpu(request, gpu))


def shortage(
    request: Request, host: FleetHost, gpus: Sequence[Gpu] | None, leaving: Iterable[tuple[int, int, Amounts]]
) -> tuple[int, ...] | None:
    """How much is too little for it on these GPUs of the host, or wherever on it, once VMs have left that have these
    vCPUs, MiB and else. None: it may not be there."""
    gone = tuple(leaving)
    free: Mapping[Resource, int] = with_more(host.free, (spent for _, _, spent in gone)) if gone else host.free
    lacks = [
        max(0, request.vcpus - host.vcpus - sum(vcpus for vcpus, _, _ in gone)),
        max(0, request.memory_mib - host.memory_mib - sum(mib for _, mib, _ in gone)),
    ]
    for need in request.needs:
        more = need.short(host, gpus, free)
        if more is None:
            return None
        lacks += more
    return tuple(lacks)


def in_the_way(request: Request, held: Sequence[Occupied], geometry: Geometry, cut: str | None) -> Iterator[str]:
    """Ids of the VMs that would have to leave a GPU under that cut, however much room it has."""
    for need in request.needs:
        yield from need.in_the_way(held, geometry, cut)
