# SPDX-License-Identifier: Apache-2.0
"""Will there ever be a place? Of a request that fits nowhere now, asked of the hosts as if nothing were on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from orchestrator.core.errors import Reason
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.reasons import NOT_MEANT, refusal
from orchestrator.core.placement.rules.disk import NeedsDisk
from orchestrator.core.placement.rules.rule import need_of
from orchestrator.core.placement.views import HostView, Request
from orchestrator.core.units import MIB, show_size
from orchestrator.core.vms.vm import Vm

NEVER_FITS: Final = "vm.never_fits"
NOT_SET_UP: Final = "host.not_set_up"
OWN_IN_THE_WAY: Final = "vm.own_in_the_way"
_TOO_SMALL: Final = frozenset({
    "profile.unsupported", "host.too_small", "host.vcpus", "host.memory", "host.disk", "host.devices", "host.no_gpus",
    "host.other", "host.no_snapshot", "gpu.other", "gpu.too_few", "gpu.no_partition", "gpu.no_capacity",
    "gpu.fragmented",
})  # fmt: skip
"""What nobody changes by settings: sizes and kinds of what there is."""


def lasting_reason(request: Request, empty: Iterable[HostView], *, asked: str, place: str | None) -> Reason | None:
    """Why the request fits nowhere whatever goes: ``vm.never_fits`` where something is too small or of another kind,
    ``host.not_set_up`` where an operator may change it. None: it would fit.

    :param empty: every host as if nothing were on it; none: nothing can be said
    :param asked: how the profile was asked for
    :param place: the host or GPU that was named
    """
    engine = PlacementEngine(empty)
    if not engine.fleet.hosts or engine.plan(request) is not None:
        return None
    reasons = refusal(engine, request).reasons
    meant = [reason for reason in reasons if reason.code not in NOT_MEANT]
    lead = max(meant or reasons, key=lambda reason: reason.count)
    if any(reason.code not in _TOO_SMALL for reason in meant):
        return Reason(code=NOT_SET_UP, message="no host of this pool is set up for it")
    fewer = None if meant else _no_such_set(engine, request, place)
    fewer = fewer or (_fewer_gpus(engine, request) if place is None and not meant else None)
    if fewer is not None:
        return fewer
    what, which = _lacking(lead.code, request, asked), f" with GPUs for {asked}" if len(meant) < len(reasons) else ""
    if place is not None:
        return Reason(code=NEVER_FITS, message=f"{place} can never hold {what}")
    return Reason(code=NEVER_FITS, message=f"no host of this pool{which if meant else ''} can ever hold {what}")


def _fewer_gpus(engine: PlacementEngine, request: Request) -> Reason | None:
    """None: it asks for no whole GPUs, a host has as many, or none has any that would do."""
    models = request.gpu_models
    models_of_hosts = [[gpu.table.geometry.model for gpu in host.gpus] for host in engine.fleet.hosts]
    most = max(sum(not models or model in models for model in of_host) for of_host in models_of_hosts)
    if most == 0 or most >= request.whole_gpus:
        return None
    which = f" ({', '.join(models)})" if models else ""
    message = f"no host of this pool has {request.whole_gpus} GPUs{which} (the most: {most})"
    return Reason(code=NEVER_FITS, message=message)


def _no_such_set(engine: PlacementEngine, request: Request, place: str | None) -> Reason | None:
    """None: it asks for no set of whole GPUs, one host has such sets, or none has larger ones."""
    number, boards = request.whole_gpus, [board.cut for board in engine.fleet.boards]
    sizes = sorted({board.size(shape) for board in boards for shape in board.shapes})
    if number < 2 or number in sizes or not sizes or sizes[-1] < number:
        return None
    who = "no host of this pool gives" if place is None else f"{place} never gives"
    message = f"{who} out {number} GPUs together (sets of {', '.join(map(str, sizes))})"
    return Reason(code=NEVER_FITS, message=message)


def _lacking(code: str, request: Request, asked: str) -> str:
    if code in {"host.too_small", "host.vcpus"}:
        return f"{request.vcpus} vCPUs"
    if code == "host.memory":
        return f"{show_size(request.memory_mib * MIB)} of memory"
    disk = need_of(request.needs, NeedsDisk)
    if code == "host.disk" and disk is not None:
        return f"{disk.gib}GiB of disk"
    return asked if request.count == 1 else f"{request.count} devices of {asked}"


def own_reason(request: Request, hosts: Collection[HostView], own: Collection[Vm], *, asked: str) -> Reason | None:
    """Which of the tenant's ``own`` VMs have its place: those whose going costs least. None: others' have it."""
    named = {vm.id: vm for vm in own}
    preemption = place_preempting(request, hosts, named)
    if preemption is None:
        return None
    vms = sorted((named[vm_id] for vm_id in preemption[1].victims), key=lambda vm: vm.spec.name)
    holding = " and ".join(f"your VM {vm.spec.name} holds {_held(vm, asked)}" for vm in vms)
    return Reason(code=OWN_IN_THE_WAY, message=holding, subjects=tuple(vm.spec.name for vm in vms), count=len(vms))


def _held(vm: Vm, asked: str) -> str:
    return f"{len(vm.devices)} of them" if vm.spec.profile == asked else f"{len(vm.devices)} of {vm.spec.profile}"
