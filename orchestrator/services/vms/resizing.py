# SPDX-License-Identifier: Apache-2.0
"""VMs become another size: on their host where that fits, else they go to another one for it, with their disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

from orchestrator.core.advice.outlook import NEVER_FITS
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, Reason, VgpuctlError
from orchestrator.core.geometry.board import WHOLE
from orchestrator.core.offerings.offering import check_supported
from orchestrator.core.vms.claim import Claim
from orchestrator.core.vms.size import HeldSize, sizes_of, with_functions_of
from orchestrator.core.vms.vm import Vm, VmSpec
from orchestrator.operations.steps.resizing import hold
from orchestrator.ports.engine import Engine
from orchestrator.services.begin import held_by, new_operation, record, undo_inputs
from orchestrator.services.fleet.cpus import check_node_memory
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.fleet.sharing import check_neighbours
from orchestrator.services.messages import MoveVm, ResizePlan, ResizeVm, Started
from orchestrator.services.tenancy.quotas import within_quota
from orchestrator.services.vm_checks import check_lease, check_settled, known_vm
from orchestrator.services.vms.moving import VmMoves
from orchestrator.services.vms.planning import Planner, VmPlan, check_still_open, never_fits
from orchestrator.services.vms.requirements import check_size
from orchestrator.services.vms.vm_volumes import check_may_change
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction

_T = TypeVar("_T")
_RACES = 5
"""How often a lost race is planned again."""


@dataclass(frozen=True, kw_only=True)
class VmResizing:
    """Its disk, network cards, TPM and firmware stay as they are."""

    store: Store
    engine: Engine
    planner: Planner
    moving: VmMoves

    def plan(self, request: ResizeVm) -> ResizePlan:
        """What :meth:`resize` would do; raises what it would raise, but that one that runs has to be restarted."""
        vm, spec, here, _ = self._planned(replace(request, restart=True))
        if isinstance(here, VmPlan):
            target, why, gpus = here.vm.host, here.why, tuple(device.gpu for device in here.vm.devices)
        else:
            move = _elsewhere(vm, spec, here, self.moving.plan)
            target, why, gpus = move.target, move.why, move.gpus
        restarts, size = vm.state == "running", (spec.vcpus, spec.memory_mib)
        return ResizePlan(
            source=vm.host, target=target, gpus=gpus, why=why, vcpus=size[0], memory_mib=size[1], restarts=restarts
        )

    def resize(self, request: ResizeVm) -> Started:
        """:raises NotFound: ``vm.unknown``, ``profile.unknown``
        :raises Conflict: ``vm.busy``, ``vm.adopted``, ``vm.needs_restart``, ``vm.deallocated``, ``lease.over``
        :raises NoCapacity, QuotaExceeded, InvalidInput: as create does"""
        for _ in range(_RACES):
            try:
                return self._resize(request)
            except ClaimLost:
                continue
        hint = "many VMs are being made at once; try again"
        raise NoCapacity("gpu.no_capacity", "others were faster at every try", hint=hint)

    def _resize(self, request: ResizeVm) -> Started:
        vm, spec, here, sizes = self._planned(request)
        if spec == vm.spec:
            return Started(operation=None, name=request.name, existing=True)
        if not isinstance(here, VmPlan) or sizes is None:
            return _elsewhere(vm, spec, here, self.moving.move)
        with self.store.begin() as tx:
            started = self._begin(tx, request, vm, here, sizes)
        self.engine.submit(str(started.operation))
        return started

    def _planned(self, request: ResizeVm) -> tuple[Vm, VmSpec, VmPlan | VgpuctlError, tuple[HeldSize, HeldSize] | None]:
        """The VM, as what it is wanted, its place on its host or why it has none there, and the two sizes."""
        with self.planner.index.current() as fleet, self.store.read() as tx:
            vm = self._settled(tx, request)
            spec = _spec_of(fleet, vm, request)
            if spec != vm.spec:
                self._check_may_restart(vm, request)
            try:
                here = _like_before(vm, self.planner.plan(tx, replace(spec, host=vm.host), vm), spec)
            except (NoCapacity, InvalidInput) as error:
                if isinstance(error, InvalidInput) and error.code != NEVER_FITS:
                    raise
                self._check_ever_fits(tx, fleet, vm, spec)
                return vm, spec, error, None
            within_quota(tx, here.vm, vm)
            return vm, spec, here, _sizes(fleet, vm, tx.claims.find(vm.id), here, self.planner.ids.new_uuid())

    def _check_ever_fits(self, tx: Transaction, fleet: FleetIndex, vm: Vm, spec: VmSpec) -> None:
        """On any host, as if it were a new one. :raises InvalidInput: ``vm.never_fits``"""
        offering = fleet.known.of_tenants({spec.tenant}).resolve(spec.profile)
        wanted = self.planner.wanted(tx, fleet, replace(spec, host=None, gpu=None), vm.id, offering, None)
        lasting = fleet.lasting_reason(self.planner.request(wanted), asked=spec.profile, place=None)
        if lasting is not None and lasting.code == NEVER_FITS:
            raise never_fits(lasting)

    def _begin(
        self, tx: Transaction, request: ResizeVm, planned_for: Vm, plan: VmPlan, sizes: tuple[HeldSize, HeldSize]
    ) -> Started:
        """:raises ClaimLost: what was planned is true no more"""
        vm, (before, after) = self._settled(tx, request), sizes
        self._check_may_restart(vm, request)
        claim = tx.claims.find(vm.id)
        if vm != planned_for or claim != before.claim:
            raise ClaimLost(f"VM {vm.full_name} has changed")
        check_still_open(tx, vm)
        resized = after.of(vm)
        within_quota(tx, resized, vm)
        kind = "resize_vm" if vm.state == "stopped" else "resize_running_vm"
        operation = new_operation(kind, vm, clock=self.planner.clock, ids=self.planner.ids)
        held = held_by(operation, vm if vm.state == "stopped" else replace(vm, state="stopping"))
        hold(tx, held, before, plan.capacity)
        check_neighbours(tx, resized, plan.claim)
        check_node_memory(tx, resized, plan.capacity)
        inputs: dict[str, object] = {
            "vm": vm.spec.name, **undo_inputs(vm), "before": asdict(before), "after": asdict(after),
            "capacity": asdict(plan.capacity), "why_there": plan.why,
        }  # fmt: skip
        record(tx, operation, host=vm.host, inputs=inputs, said=f"to {request.profile}")
        return Started(operation=operation.id, name=vm.spec.name)

    def _settled(self, tx: Transaction, request: ResizeVm) -> Vm:
        vm = known_vm(tx, request.tenant, request.name)
        check_may_change(vm)
        check_settled(tx, vm)
        if vm.deallocated is not None:
            hint = f"'vgpuctl start-vm {vm.spec.name}' claims one again"
            raise Conflict("vm.deallocated", f"VM {vm.spec.name} has given its place on a GPU back", hint=hint)
        return vm

    def _check_may_restart(self, vm: Vm, request: ResizeVm) -> None:
        """:raises Conflict: ``vm.needs_restart``, ``lease.over``"""
        if vm.state == "running":
            check_lease(vm, self.planner.clock.now())
            if not request.restart:
                raise Conflict(
                    "vm.needs_restart",
                    f"VM {vm.spec.name} runs, and no vGPU, vCPU or memory is added or exchanged under a guest",
                    hint=f"'{_command(request)} --restart' shuts it down, and starts it with its new size",
                )


def _command(request: ResizeVm) -> str:
    """It as typed."""
    size = f" --vcpus {request.vcpus}" if request.vcpus else ""
    size += f" --memory {request.memory_mib}MiB" if request.memory_mib else ""
    return f'vgpuctl vm resize {request.name} --tenant {request.tenant} --offering "{request.profile}"{size}'


def _spec_of(fleet: FleetIndex, vm: Vm, request: ResizeVm) -> VmSpec:
    """:raises NotFound: ``profile.unknown``; :raises InvalidInput: ``profile.unsupported``, ``….out_of_range``"""
    check_size(request.vcpus, request.memory_mib)
    known = fleet.known.of_tenants({vm.spec.tenant})
    offering = known.resolve(request.profile)
    check_supported(offering)
    wanted = replace(vm.spec, profile=request.profile, vcpus=request.vcpus, memory_mib=request.memory_mib)
    return replace(known.sized(wanted, offering), disk_limits=offering.disk_limits)


def _like_before(vm: Vm, plan: VmPlan, spec: VmSpec) -> VmPlan:
    """With the functions that it has, of GPUs and of a network card, where they are of the same."""
    devices = with_functions_of(vm.devices, plan.vm.devices)
    nic = vm.nic if plan.vm.nic is not None and vm.nic is not None and vm.nic.card == plan.vm.nic.card else plan.vm.nic
    parts = zip(plan.claim.devices, devices, strict=True)
    claim = replace(
        plan.claim,
        devices=tuple(replace(part, function=device.function) for part, device in parts),
        nic=None if nic is None else nic.function,
    )
    return replace(plan, vm=replace(plan.vm, spec=spec, devices=devices, nic=nic), claim=claim)


def _sizes(fleet: FleetIndex, vm: Vm, claim: Claim | None, plan: VmPlan, place: str) -> tuple[HeldSize, HeldSize]:
    """:raises ClaimLost: it has given its place back, or its host has only just come"""
    viewed = fleet.host(vm.host)
    if claim is None or viewed is None:
        raise ClaimLost(f"VM {vm.full_name} has changed")
    geometries = {gpu.gpu_id: gpu.geometry for gpu in viewed.view.gpus}

    def slots_of(gpu: str, cut: str) -> int:
        shapes = None if cut == WHOLE else geometries[gpu].cut(cut)
        return 1 if shapes is None else shapes.slots

    return sizes_of((vm, claim), (plan.vm, plan.claim), place, slots_of)


def _elsewhere(vm: Vm, spec: VmSpec, here: VmPlan | VgpuctlError, move: Callable[[MoveVm], _T]) -> _T:
    """``here``: why it does not fit on its host, which is told where it fits nowhere."""
    wanted = MoveVm(
        name=vm.spec.name, tenant=vm.spec.tenant, cold=vm.state == "running", force=True, spec=spec,
        why=f"resized to {spec.profile}",
    )  # fmt: skip
    try:
        return move(wanted)
    except (NoCapacity, Conflict) as error:
        if isinstance(here, VgpuctlError):
            elsewhere = (_without(reason, vm.host) for reason in error.reasons)
            here.reasons = (*here.reasons, *(reason for reason in elsewhere if reason.count))
            raise here from error
        raise


def _without(reason: Reason, host: str) -> Reason:
    """Its own host has a truer one than that the VM is there."""
    if reason.code != "move.not_there" or host not in reason.subjects:
        return reason
    subjects = tuple(subject for subject in reason.subjects if subject != host)
    return replace(reason, subjects=subjects, count=reason.count - 1)
