# SPDX-License-Identifier: Apache-2.0
"""What would make a refused request fit: VMs to delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.core.placement.constraints import host_obstacles
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.fleet import FleetHost
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.rules import CURABLE
from orchestrator.core.placement.victims import VictimSearch, VmOnHost, vms_on, without
from orchestrator.core.placement.views import HostView, Placement, Request

RemedyKind = Literal["deletions"]

_MAX_TRIED = 64
"""Sets of VMs tried, cheapest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """A VM to delete."""

    host: str
    """Name of the host."""
    gpu_ids: tuple[str, ...]
    """PCI addresses of the GPUs."""
    vm_id: str
    """Id of the VM."""
    tenant: str
    """Whose it is."""
    profile: str
    """Offering, vGPU type, MIG profile or gpu:N."""
    cost_mib: int
    """GPU memory that is given up, in MiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """All of ``actions`` together make ``placement`` possible on ``host``."""

    kind: RemedyKind
    """Which kind of thing this is."""
    actions: tuple[Action, ...]
    """What to do, in this order."""
    host: str
    """Name of the host."""
    placement: Placement

    @property
    def cost_mib(self) -> int:
        """Sum over the actions."""
        return sum(action.cost_mib for action in self.actions)


def remedies(engine: PlacementEngine, request: Request) -> tuple[Remedy, ...]:
    """The cheapest remedy found. Empty: none.

    ``engine`` must have refused the request; it is left as it was.
    The search is bounded: sets of up to three VMs per GPU (or all on it), for several devices as many as it takes on
    one host.
    """
    found = _deletions(request, _candidates(engine, request))
    if found is None and request.count > 1:
        found = _deletions_together(engine, request)
    return () if found is None else (found,)


_Candidate = tuple[FleetHost, tuple[VmOnHost, ...]]


def _candidates(engine: PlacementEngine, request: Request) -> list[_Candidate]:
    search = VictimSearch(request)
    return [
        (host, vms)
        for host in engine.fleet.hosts
        if CURABLE.issuperset(host_obstacles(request, host))
        for vms in search.sets(host)
    ]


def _deletions(request: Request, sets: list[_Candidate]) -> Remedy | None:
    """Fewest VMs, then least GPU memory."""
    ordered = sorted(sets, key=lambda c: (len(c[1]), sum(vm.gpu_mib for vm in c[1]), c[0].number))
    for host, vms in ordered[:_MAX_TRIED]:
        placement = _placed(request, without(host.view, vms))
        if placement is not None:
            actions = tuple(_action(host, vm) for vm in vms)
            return Remedy(kind="deletions", actions=actions, host=host.view.name, placement=placement)
    return None


def _deletions_together(engine: PlacementEngine, request: Request) -> Remedy | None:
    """For several devices, whose room is on several GPUs: found as preempting finds it, on hosts with fewest VMs."""
    able = [host for host in engine.fleet.hosts if host.vms and CURABLE.issuperset(host_obstacles(request, host))]
    able.sort(key=lambda host: (len(host.vms), host.number))
    views = {host.view.host_id: host for host in able[:_MAX_TRIED]}
    plan = place_preempting(
        request, [host.view for host in views.values()], frozenset(vm for host in views.values() for vm in host.vms)
    )
    if plan is None:
        return None
    placement, preemption = plan
    host = views[placement.host_id]
    vms = vms_on(host.view)
    actions = tuple(_action(host, vms[vm]) for vm in preemption.victims)
    return Remedy(kind="deletions", actions=actions, host=host.view.name, placement=placement)


def _placed(request: Request, host: HostView) -> Placement | None:
    """Where the request goes on that one host."""
    engine = PlacementEngine((host,))
    plan = engine.plan(request)
    return None if plan is None else engine.take(request, plan)


def _action(host: FleetHost, vm: VmOnHost) -> Action:
    return Action(
        host=host.view.name, gpu_ids=vm.gpu_ids, vm_id=vm.vm_id, tenant=vm.tenant, profile=vm.profile,
        cost_mib=vm.gpu_mib,
    )  # fmt: skip


__all__ = ["Action", "Remedy", "RemedyKind", "remedies"]
