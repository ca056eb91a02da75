# SPDX-License-Identifier: Apache-2.0
"""Rules beyond room on the GPU: why a host, or a GPU of it, may not take a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.nodes import kept_off_near_nics, kept_off_nics, kept_off_nodes, numa_fits
from orchestrator.core.placement.rules.labels import kept_for_another
from orchestrator.core.placement.views import HostView, Occupied, Request


def allows(request: Request, host: FleetHost, gpu: Gpu | None) -> bool:
    """Whether the rules allow the request on the host, and on the GPU if one is given."""
    if gpu is not None and next(gpu_obstacles(request, gpu), None) is not None:  # asked of many GPUs of a host
        return False
    return next(host_obstacles(request, host), None) is None


_HostRule = Callable[[Request, FleetHost], bool]

_HOST_RULES: tuple[tuple[str, _HostRule], ...] = (
    ("host.too_small", lambda r, h: h.view.vcpus is not None and h.view.vcpus < r.vcpus),
    ("host.vcpus", lambda r, h: h.vcpus < r.vcpus),
    ("host.memory", lambda r, h: h.memory_mib < r.memory_mib),
    ("host.disk", lambda r, h: h.disk_gib < r.disk_gib),
)  # fmt: skip


def lacks_what_it_needs(request: Request, host: HostView) -> bool:
    """Whether the host can never take it, whatever room it has: it is kept for another tenant, or lacks a need."""
    return kept_for_another(host.facts, request.tenant) is not None or any(_missing(request, host))


def _missing(request: Request, host: HostView) -> Iterator[str]:
    for need in request.needs:
        yield from need.missing(host.facts)


def _off_host(request: Request, host: FleetHost, *, after_shortage: bool) -> Iterator[str]:
    for need in request.needs:
        if need.after_shortage == after_shortage:
            yield from need.off_host(host)


def host_obstacles(request: Request, host: FleetHost) -> Iterator[str]:
    """Codes of the rules that keep the request off the host, most telling first."""
    if host.view.cordoned:
        yield "host.cordoned"
    if request.host is not None and request.host not in {host.view.host_id, host.view.name}:
        yield "host.other"
    yield from _missing(request, host.view)
    if kept_for_another(host.view.facts, request.tenant) is not None:
        yield "host.kept"
    yield from _off_host(request, host, after_shortage=False)
    for code, breaks in _HOST_RULES:
        if breaks(request, host):
            yield code
    yield from _off_host(request, host, after_shortage=True)
    yield from filter(None, (kept_off_nodes(request, host), kept_off_nics(request, host)))


def gpu_obstacles(request: Request, gpu: Gpu) -> Iterator[str]:
    """Codes of the rules that keep the request off the GPU, room aside."""
    if is_other_gpu(request, gpu):
        yield "gpu.other"
    if not gpu.usable:
        yield "gpu.unusable"
    for need in request.needs:
        yield from need.off_gpu(gpu)
    if request.numa_strict and not numa_fits(request, gpu):
        yield "host.numa"
    nics = kept_off_near_nics(request, gpu)
    if nics is not None:
        yield nics


def is_other_gpu(request: Request, gpu: Gpu) -> bool:
    """Whether another GPU was asked for."""
    return request.gpu is not None and gpu.view.gpu_id != request.gpu


def closed_to(request: Request, host: FleetHost) -> int:
    """The host's GPUs that are closed, to everybody or as another was asked for, a bit for each position."""
    return host.closed | sum(1 << gpu.position for gpu in host.gpus if is_other_gpu(request, gpu))


def in_the_way(request: Request, held: Sequence[Occupied], geometry: Geometry, cut: str | None) -> Iterator[str]:
    """Ids of the VMs that would have to leave a GPU under that cut, however much room it has."""
    for need in request.needs:
        yield from need.in_the_way(held, geometry, cut)
