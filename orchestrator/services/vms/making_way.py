# SPDX-License-Identifier: Apache-2.0
"""VMs that make way for a new one: they move where that is legal, else less important ones are stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from orchestrator.core.vms.vm import Vm
from orchestrator.services.acting import actor
from orchestrator.services.begin import held_by, new_operation, record, undo_inputs
from orchestrator.services.messages import CreateVm, MoveVm, Started
from orchestrator.services.vms.deallocating import begin_deallocation
from orchestrator.services.vms.moving import VmMoves
from orchestrator.services.vms.planning import Fitting, VmPlan
from orchestrator.services.vms.rearranging import LegalMoves, fit_by_moves, may_move_for
from orchestrator.store.transaction import Transaction

_WHY = "room is made for another VM"


@dataclass(frozen=True, kw_only=True)
class MakingWay:
    """Of one service of VMs."""

    moving: VmMoves

    def fitting(self, tx: Transaction, request: CreateVm, *, may_ask: bool) -> Fitting | None:
        """For the planner; None: nobody moves for the request."""
        if not (request.with_moves or request.preempt):
            return None
        may = may_move_for(tx, request, with_moves=request.with_moves, preempt=request.preempt)

        return lambda fleet, wanted: fit_by_moves(
            LegalMoves(
                tx=tx, fleet=fleet, moves=self.moving.moves, may_ask=may_ask,
                may_move=lambda vm: may is None or vm.id in may,
            ),
            wanted,
        )  # fmt: skip

    def with_places(self, tx: Transaction, plan: VmPlan, *, reserve: Callable[[VmPlan], None] | None) -> VmPlan:
        """With what those that move get where they go. Inside the block of the index that it was planned in.
        ``reserve``: what keeps it: all, or nothing where one of them has no place any more.

        :raises Conflict: ``vm.stays``; :raises NoCapacity: with reasons; :raises ClaimLost: plan again"""
        planner, leaving = self.moving.planner, list[tuple[Vm, VmPlan]]()
        try:
            if reserve:
                reserve(plan)
            for move in plan.moves:
                vm = tx.vms.find_id(move.vm)
                if vm is not None:
                    place = self.moving.planned(tx, planner.index, vm, _request(vm, move.target, move.gpu))
                    leaving.append((vm, place))
                    if reserve:
                        reserve(place)
        except BaseException:
            planner.release(replace(plan, leaving=tuple(leaving)))
            raise
        return replace(plan, leaving=tuple(leaving))

    def begin(self, tx: Transaction, plan: VmPlan) -> Started:
        """Those who make way go first. Until then nobody else gets what they leave (services/fleet/view.py).

        :raises ClaimLost: what was planned is true no more"""
        planner, vm = self.moving.planner, plan.vm
        clock, ids = planner.clock, planner.ids
        moves = [
            self.moving.begin(tx, _request(mover, place.vm.host, None), mover, place) for mover, place in plan.leaving
        ]
        stops = [begin_deallocation(tx, victim, "preempted", clock=clock, ids=ids) for victim in plan.victims]
        for victim in plan.victims:
            subject, outcome = victim.full_name, f"for {vm.full_name}"
            tx.audit.append(at=clock.now(), actor=actor(), action="preempt", subject=subject, outcome=outcome)
        first = (*(str(move.operation) for move in moves), *(stop.id for stop in stops))
        operation = new_operation("preempt_for_vm", vm, clock=clock, ids=ids)
        add_vm(tx, held_by(operation, vm))
        plan.take_volumes(tx)
        claim, capacity = asdict(plan.claim), asdict(plan.capacity)
        inputs: dict[str, object] = {
            "vm": vm.spec.name,
            **undo_inputs(vm),
            "claim": claim,
            "capacity": capacity,
            **plan.inputs,
        }
        record(tx, operation, host=vm.host, inputs=inputs, waits_for=first)
        return Started(
            operation=operation.id, name=vm.spec.name, first=first,
            preempted=tuple(victim.full_name for victim in plan.victims),
            moved=tuple(mover.full_name for mover, _ in plan.leaving),
        )  # fmt: skip


def _request(vm: Vm, target: str, gpu: str | None) -> MoveVm:
    return MoveVm(name=vm.spec.name, tenant=vm.spec.tenant, host=target, gpu=gpu, why=_WHY)


def add_vm(tx: Transaction, vm: Vm) -> None:
    """With what its disk takes of its pool, or the key that encrypts it.

    :raises Conflict: ``vm.exists``; :raises ClaimLost: the pool is full"""
    tx.vms.add(vm)
    if vm.spec.encrypted:
        tx.volume_keys.draw(vm.spec.tenant, vm.id)
    if vm.spec.pool is not None:
        tx.pools.take(vm.spec.pool, vm.id, vm.spec.disk_bytes)
