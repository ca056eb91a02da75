# SPDX-License-Identifier: Apache-2.0
"""Places that are taken now but could be cleared: which VMs would have to leave."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from orchestrator.core.geometry.equal_size import EqualSizeCut
from orchestrator.core.placement.engine import Engine, demand_of
from orchestrator.core.placement.fleet import Gpu, Host
from orchestrator.core.placement.layouts import Pattern
from orchestrator.core.placement.state_table import EMPTY, Demand
from orchestrator.core.placement.views import Request


@dataclass(frozen=True, slots=True)
class Target:
    """A place to clear: who has to leave, and the slots (or whole GPUs) that must become free."""

    leavers: tuple[str, ...]
    cost: float
    """Slots that the leavers take; a little less on GPUs that are badly fragmented already."""
    gpus: tuple[Gpu, ...]
    mask: int
    """Slots to clear on the only GPU of ``gpus``; 0: everything on them."""


def targets(engine: Engine, request: Request, most: int, busy: frozenset[str]) -> Iterator[Target]:
    """Targets with at most ``most`` leavers, all of them movable and none in ``busy``."""
    if request.count > 1:
        return
    if request.whole_gpus:
        for hosts in engine.layouts.hosts():
            host = next((h for h in hosts if _has_room(request, h)), None)
            if host is not None:
                yield from _on_host(engine, request, host, most, busy)
        return
    for key, gpus in engine.layouts.gpus():
        patterns = _of_layout(engine, key, gpus[0], demand_of(request))
        if patterns and min(len(pattern.starts) for pattern in patterns) <= most:
            gpu = next((g for g in gpus if _has_room(request, g.host)), None)
            if gpu is not None:
                yield from _on_gpu(engine, gpu, patterns, most, busy)


def _of_layout(engine: Engine, key: Hashable, gpu: Gpu, demand: Demand) -> tuple[Pattern, ...]:
    """What follows from a layout alone is worked out once per layout."""
    found = engine.layouts.patterns.get((key, demand))
    if found is None:
        found = engine.layouts.patterns[key, demand] = tuple(_patterns(engine, gpu, demand))
    return found


def _patterns(engine: Engine, gpu: Gpu, demand: Demand) -> Iterator[Pattern]:
    here = gpu.table.cuts[gpu.cut]
    everyone = tuple(taken.start for taken, _ in gpu.held)
    size = float(sum(taken.size for taken, _ in gpu.held))
    fragments = engine.scores.fragments(gpu.table, gpu.cut, gpu.table.states[gpu.state][1])
    other_cut = False
    for step in gpu.table.steps(EMPTY, demand):
        if step.cut == gpu.cut and step.choice.mask and not isinstance(here, EqualSizeCut):
            mask = step.choice.mask
            leavers = [taken for taken, _ in gpu.held if mask >> taken.start & ((1 << taken.size) - 1)]
            leavers = leavers or [taken for taken, _ in gpu.held if "+" in taken.shape]
            cost = sum(taken.size for taken in leavers) - fragments / (gpu.table.total_mib * 2)
            yield Pattern(tuple(taken.start for taken in leavers), cost, mask)
        elif step.cut != gpu.cut and not other_cut:
            other_cut = True
            yield Pattern(everyone, size + 0.5, 0)


def _on_gpu(engine: Engine, gpu: Gpu, patterns: Iterable[Pattern], most: int, busy: frozenset[str]) -> Iterator[Target]:
    owners = {taken.start: item.vm_id for taken, item in gpu.held}
    for pattern in patterns:
        if len(pattern.starts) <= most:
            starts = pattern.starts if pattern.mask else tuple(owners)
            leavers = tuple(dict.fromkeys(owners[start] for start in starts))
            if leavers and _movable(engine, leavers, busy):
                yield Target(leavers, pattern.cost, (gpu,), pattern.mask)


def _has_room(request: Request, host: Host) -> bool:
    named = request.host is None or request.host in {host.view.host_id, host.view.name}
    return named and host.vcpus >= request.vcpus and host.memory_mib >= request.memory_mib


def _movable(engine: Engine, vm_ids: Iterable[str], busy: frozenset[str]) -> bool:
    for vm_id in vm_ids:
        held = engine.vms.get(vm_id)
        if held is None or vm_id in busy or not held.request.migratable or held.request.count > 1:
            return False
    return True


def _on_host(engine: Engine, request: Request, host: Host, most: int, busy: frozenset[str]) -> Iterator[Target]:
    board = engine.fleet.boards[host.board].cut
    if request.profile not in board.shapes:
        return
    for choice in board.choices(host.blocked, request.profile):
        gpus = tuple(gpu for gpu in host.gpus if choice.mask >> gpu.position & 1)
        leavers = tuple(dict.fromkeys(item.vm_id for gpu in gpus for _, item in gpu.held))
        if leavers and len(leavers) <= most and _movable(engine, leavers, busy):
            yield Target(leavers, float(sum(len(engine.vms[vm_id].gpus) for vm_id in leavers)), gpus, 0)
