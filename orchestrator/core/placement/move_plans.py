# SPDX-License-Identifier: Apache-2.0
"""Plans for operators: how a host could be emptied, and which GPUs could be freed. Nothing is moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.core.errors import Reason
from orchestrator.core.placement.compaction import compact, drain
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.planned_action import Action, move_action
from orchestrator.core.placement.reasons import refusal
from orchestrator.core.placement.running import bind_to_like_gpus
from orchestrator.core.placement.victims import VmOnHost, vms_on
from orchestrator.core.placement.views import HostView

_NOT_OURS = Reason(code="vm.foreign", message="somebody else made it")
_NOT_MIGRATABLE = Reason(code="vm.not_migratable", message="VMs of its profile stay until they are deleted")
_SEVERAL = Reason(code="vm.several_devices", message="it has several devices, which stay together")
_NO_OTHER = Reason(code="host.none", message="there is no other host")


@dataclass(frozen=True, kw_only=True, slots=True)
class UnmovableVm:
    """A VM that could not be moved off, and why: one reason, or one per group of hosts without a place for it."""

    vm_id: str
    tenant: str
    profile: str
    gpu_ids: tuple[str, ...]
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MovePlan:
    """Moves in the order to make them: each goes into space that is free by then."""

    moves: tuple[Action, ...]
    stays: tuple[UnmovableVm, ...] = ()
    freed: tuple[str, ...] = ()
    """``host/GPU`` of those that hold something now and would hold nothing afterwards."""


def plan_drain(hosts: Sequence[HostView], source: HostView) -> MovePlan:
    """Take as many VMs as possible off one of ``hosts``, biggest first; onto hosts that take VMs."""
    engine = _engine(hosts)
    host = engine.fleet.hosts[hosts.index(source)]
    vms = vms_on(source)
    plan = drain(engine, host)
    moves = tuple(move_action(engine, moved) for moved in plan.moves)
    return MovePlan(moves=moves, stays=tuple(_stay(engine, vms[vm_id]) for vm_id in plan.left))


def plan_compaction(hosts: Sequence[HostView]) -> MovePlan:
    """Free as many GPUs as possible by moving their VMs onto GPUs that are in use."""
    engine = _engine(hosts)
    held = [gpu for gpu in engine.fleet.gpus if gpu.held]
    plan = compact(engine)
    moves = tuple(move_action(engine, moved) for moved in plan.moves)
    freed = tuple(f"{gpu.host.view.name}/{gpu.view.gpu_id}" for gpu in held if not gpu.held)
    return MovePlan(moves=moves, freed=freed)


def _engine(hosts: Sequence[HostView]) -> PlacementEngine:
    engine = PlacementEngine(hosts)
    bind_to_like_gpus(engine)
    return engine


def _stay(engine: PlacementEngine, vm: VmOnHost) -> UnmovableVm:
    return UnmovableVm(
        vm_id=vm.vm_id, tenant=vm.tenant, profile=vm.profile, gpu_ids=vm.gpu_ids, reasons=_why_it_stays(engine, vm)
    )


def _why_it_stays(engine: PlacementEngine, vm: VmOnHost) -> tuple[Reason, ...]:
    if not vm.tenant:
        return (_NOT_OURS,)
    if not vm.migratable:
        return (_NOT_MIGRATABLE,)
    request = engine.vms[vm.vm_id].request
    if request.count > 1:
        return (_SEVERAL,)
    found = refusal(engine, replace(request, vm_id="", apart_from_vms=(vm.vm_id,)))
    elsewhere = tuple(reason for reason in found.reasons if reason.code != "host.anti_affinity")
    return elsewhere or (_NO_OTHER,)


__all__ = ["MovePlan", "UnmovableVm", "plan_compaction", "plan_drain"]
