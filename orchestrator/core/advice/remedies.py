# SPDX-License-Identifier: Apache-2.0
"""What would make a refused request fit: VMs to move, or VMs to delete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.core.placement.constraints import host_obstacles
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.fleet import FleetHost
from orchestrator.core.placement.planned_action import Action, move_action
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.repack import make_room
from orchestrator.core.placement.running import on_like_gpus
from orchestrator.core.placement.trial import Trial
from orchestrator.core.placement.victims import VictimSearch, VmOnHost, vms_on, without
from orchestrator.core.placement.views import HostView, Placement, Request

RemedyKind = Literal["moves", "deletions"]

_MAX_TRIED = 64
"""Sets of VMs tried per kind of remedy, cheapest first."""
_CURABLE = frozenset({
    "host.vcpus", "host.memory", "host.disk", "host.cpus", "host.hugepages", "host.nics_taken", "host.anti_affinity",
})  # fmt: skip
"""What the going of a VM may cure; a host with another obstacle is not looked at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """All of ``actions`` together make ``placement`` possible on ``host``."""

    kind: RemedyKind
    actions: tuple[Action, ...]
    host: str
    placement: Placement

    @property
    def cost_mib(self) -> int:
        """Sum over the actions; compare within one kind only."""
        return sum(action.cost_mib for action in self.actions)


def remedies(engine: PlacementEngine, request: Request, *, most_moves: int = 3) -> tuple[Remedy, ...]:
    """The cheapest remedy found of each kind, least disturbing kind first. Empty: none.

    ``engine`` must have refused the request; it is left as it was.
    The search is bounded: sets of up to three VMs per GPU (or all on it), for several devices as many as it takes on
    one host, ``most_moves`` moves.
    """
    sets = _candidates(engine, request)
    deletions = _deletions(request, sets)
    if deletions is None and request.count > 1:
        deletions = _deletions_together(engine, request)
    found = _moves(engine, request, sets, most_moves), deletions
    return tuple(remedy for remedy in found if remedy is not None)


_Candidate = tuple[FleetHost, tuple[VmOnHost, ...]]


def _candidates(engine: PlacementEngine, request: Request) -> list[_Candidate]:
    search = VictimSearch(request)
    return [
        (host, vms)
        for host in engine.fleet.hosts
        if _CURABLE.issuperset(host_obstacles(request, host))
        for vms in search.sets(host)
    ]


def _deletions(request: Request, sets: list[_Candidate]) -> Remedy | None:
    """Fewest VMs, then least GPU memory."""
    ordered = sorted(sets, key=lambda c: (len(c[1]), sum(vm.gpu_mib for vm in c[1]), c[0].number))
    for host, vms in ordered[:_MAX_TRIED]:
        placement = _placed(request, without(host.view, vms))
        if placement is not None:
            actions = tuple(_action(host, vm, cost_mib=vm.gpu_mib) for vm in vms)
            return Remedy(kind="deletions", actions=actions, host=host.view.name, placement=placement)
    return None


def _deletions_together(engine: PlacementEngine, request: Request) -> Remedy | None:
    """For several devices, whose room is on several GPUs: found as preempting finds it, on hosts with fewest VMs."""
    able = [host for host in engine.fleet.hosts if host.vms and _CURABLE.issuperset(host_obstacles(request, host))]
    able.sort(key=lambda host: (len(host.vms), host.number))
    views = {host.view.host_id: host for host in able[:_MAX_TRIED]}
    found = place_preempting(
        request, [host.view for host in views.values()], frozenset(vm for host in views.values() for vm in host.vms)
    )
    if found is None:
        return None
    placement, preemption = found
    host = views[placement.host_id]
    there = vms_on(host.view)
    actions = tuple(_action(host, there[vm], cost_mib=there[vm].gpu_mib) for vm in preemption.victims)
    return Remedy(kind="deletions", actions=actions, host=host.view.name, placement=placement)


def _moves(engine: PlacementEngine, request: Request, sets: list[_Candidate], most: int) -> Remedy | None:
    """Fewest moves where GPUs lack room; where the host lacks something else, least memory to copy."""
    trial = Trial(engine)
    moved = make_room(engine, request, most, trial)
    if moved is None:
        return _moves_off(engine, request, sets, most)
    actions = tuple(move_action(engine, move) for move in moved)
    plan = engine.plan(request)
    placement = None if plan is None else engine.take(request, plan)
    if placement is not None:
        engine.release(request.vm_id)
    trial.undo()
    if plan is None or placement is None:
        return None
    return Remedy(kind="moves", actions=actions, host=engine.fleet.hosts[plan.host].view.name, placement=placement)


def _moves_off(engine: PlacementEngine, request: Request, sets: list[_Candidate], most: int) -> Remedy | None:
    """VMs with several devices stay: they cannot be moved in one piece."""
    movable = [c for c in sets if len(c[1]) <= most and all(vm.migratable and len(vm.gpu_ids) == 1 for vm in c[1])]
    movable.sort(key=lambda c: (sum(_to_copy(vm) for vm in c[1]), len(c[1]), c[0].number))
    for host, vms in movable[:_MAX_TRIED]:
        placement = _placed(request, without(host.view, vms))
        actions = _moved_away(engine, host, vms) if placement is not None else None
        if placement is not None and actions is not None:
            return Remedy(kind="moves", actions=actions, host=host.view.name, placement=placement)
    return None


def _moved_away(engine: PlacementEngine, host: FleetHost, vms: Sequence[VmOnHost]) -> tuple[Action, ...] | None:
    """A move to another host for every VM, None when one has no place. Leaves the engine as it was."""
    actions, taken = list[Action](), list[str]()
    for vm in vms:
        request = _elsewhere(engine, host, vm)
        plan = engine.plan(request)
        if plan is None:
            break
        placement = engine.take(request, plan)
        taken.append(request.vm_id)
        to = engine.fleet.hosts[plan.host].view.name
        moved = _action(host, vm, cost_mib=_to_copy(vm))
        there = replace(moved, to_host=to, to_gpu=placement.gpu_id, to_start=placement.start, disk_gib=vm.disk_gib)
        actions.append(there)
    for vm_id in taken:
        engine.release(vm_id)
    return tuple(actions) if len(actions) == len(vms) else None


def _elsewhere(engine: PlacementEngine, host: FleetHost, vm: VmOnHost) -> Request:
    """The VM asked for again: on another host where a running VM can follow."""
    gpu = engine.fleet.gpu_by_id[host.view.host_id, vm.gpu_ids[0]]
    asked = on_like_gpus(engine.vms[vm.vm_id].request, gpu)
    return replace(asked, vm_id=f"{vm.vm_id} (moved)", apart_from_vms=(vm.vm_id,))


def _to_copy(vm: VmOnHost) -> int:
    return vm.memory_mib + vm.huge_mib + vm.gpu_mib


def _placed(request: Request, host: HostView) -> Placement | None:
    """Where the request goes on that one host."""
    engine = PlacementEngine((host,))
    plan = engine.plan(request)
    return None if plan is None else engine.take(request, plan)


def _action(host: FleetHost, vm: VmOnHost, *, cost_mib: int) -> Action:
    return Action(
        host=host.view.name, gpu_ids=vm.gpu_ids, vm_id=vm.vm_id, tenant=vm.tenant, profile=vm.profile,
        cost_mib=cost_mib,
    )  # fmt: skip


__all__ = ["Remedy", "RemedyKind", "remedies"]
