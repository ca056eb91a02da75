# SPDX-License-Identifier: Apache-2.0
"""Which VMs of lower priority to stop for one of higher priority: those whose loss wastes the fewest slot-hours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from orchestrator.core.geometry.equal_size import EqualSizeCut
from orchestrator.core.placement.constraints import host_obstacles
from orchestrator.core.placement.engine import Engine, demand_of
from orchestrator.core.placement.fleet import Gpu, Host
from orchestrator.core.placement.state_table import EMPTY
from orchestrator.core.placement.views import HostView, Placement, Request

_SECONDS = 3600.0
_MAY_GO, _STAYS = 0, 1


@dataclass(frozen=True, slots=True)
class Preemption:
    """Stop ``victims`` and the request fits. ``slot_hours``: GiB of GPU memory times hours that they have run."""

    victims: tuple[str, ...]
    slot_hours: float
    host_id: str


def plan_preemption(engine: Engine, request: Request) -> Preemption | None:
    """The cheapest set of victims on one GPU (or one host, for whole GPUs); None when priority does not help.

    Looks at every GPU that holds something of lower priority. Only hosts count that have, or get back from the
    victims, the vCPUs and memory.
    """
    if request.count > 1 or engine.usage.refuses(request) is not None:
        return None
    if not any(count for priority, count in engine.priorities.items() if priority < request.priority):
        return None
    best: tuple[float, int, Preemption] | None = None
    for host in engine.fleet.hosts:
        if _closed(request, host):
            continue
        for victims in _sets(engine, request, host):
            if not victims or not _frees_enough(engine, request, host, victims):
                continue
            cost = sum(slot_hours(engine, vm_id, request.now_s) for vm_id in victims)
            if best is None or (cost, len(victims)) < best[:2]:
                best = (cost, len(victims), Preemption(victims, cost, host.view.host_id))
    return best[2] if best is not None else None


def place_preempting(
    request: Request, hosts: Iterable[HostView], preemptible: Collection[str]
) -> tuple[Placement, Preemption] | None:
    """Where the request goes once some of ``preemptible`` have given their places back; None: not even then.

    Whoever has to go keeps its disk, so a host must have the disk's room already.
    """
    able = (host for host in hosts if host.free_disk_gib >= request.disk_gib)
    engine = Engine(_divided(host, preemptible) for host in able)
    found = plan_preemption(engine, replace(request, priority=_STAYS))
    if found is None:
        return None
    for vm_id in found.victims:
        engine.release(vm_id)
    asked = replace(request, host=found.host_id)
    plan = engine.plan(asked)
    return None if plan is None else (engine.take(asked, plan), found)


def _divided(host: HostView, preemptible: Collection[str]) -> HostView:
    """With two priorities only, and without the disks that stay."""
    gpus = tuple(
        replace(
            gpu,
            occupied=tuple(
                replace(item, priority=_MAY_GO if item.vm_id in preemptible else _STAYS, disk_gib=0)
                for item in gpu.occupied
            ),
        )
        for gpu in host.gpus
    )
    return replace(host, gpus=gpus)


def slot_hours(engine: Engine, vm_id: str, now_s: float) -> float:
    """GiB of GPU memory times hours a VM has had so far: the work that stopping it may throw away."""
    held = engine.vms[vm_id]
    gib = 0.0
    for gpu in dict.fromkeys(held.gpus):
        slot = gpu.table.total_mib if gpu.whole else gpu.table.cuts[gpu.cut].slot_mib
        gib += sum(taken.size for taken, item in gpu.held if item.vm_id == vm_id) * slot / 1024
    return gib * max(0.0, now_s - held.request.now_s) / _SECONDS


def _closed(request: Request, host: Host) -> bool:
    """Whether a rule keeps the request off the host that no victim could lift."""
    return any(code not in {"host.vcpus", "host.memory", "host.disk"} for code in host_obstacles(request, host))


def _frees_enough(engine: Engine, request: Request, host: Host, victims: Iterable[str]) -> bool:
    given = [engine.vms[vm_id].request for vm_id in victims]
    return host.vcpus + sum(r.vcpus for r in given) >= request.vcpus and (
        host.memory_mib + sum(r.memory_mib for r in given) >= request.memory_mib
    )


def _sets(engine: Engine, request: Request, host: Host) -> Iterator[tuple[str, ...]]:
    if request.whole_gpus:
        board = engine.fleet.boards[host.board].cut
        choices = board.choices(host.blocked, request.profile) if request.profile in board.shapes else ()
        for choice in choices:
            gpus = [gpu for gpu in host.gpus if choice.mask >> gpu.position & 1]
            yield from _lower(engine, request, [item.vm_id for gpu in gpus for _, item in gpu.held])
        return
    for gpu in host.gpus:
        if gpu.held and gpu.usable:
            for owners in _on_gpu(gpu, request):
                yield from _lower(engine, request, owners)


def _on_gpu(gpu: Gpu, request: Request) -> Iterator[list[str]]:
    everyone = [item.vm_id for _, item in gpu.held]
    for step in gpu.table.steps(EMPTY, demand_of(request)):
        if gpu.whole or step.cut != gpu.cut:
            yield everyone
        elif step.choice.mask:
            mask = step.choice.mask
            yield [item.vm_id for taken, item in gpu.held if mask >> taken.start & ((1 << taken.size) - 1)]
        elif isinstance(gpu.table.cuts[gpu.cut], EqualSizeCut):
            yield from ([vm_id] for vm_id in everyone)
        else:
            yield everyone


def _lower(engine: Engine, request: Request, vm_ids: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The set, when every VM in it is of lower priority."""
    victims = tuple(dict.fromkeys(vm_ids))
    if all(vm_id in engine.vms and engine.vms[vm_id].request.priority < request.priority for vm_id in victims):
        yield victims
