# SPDX-License-Identifier: Apache-2.0
"""Defragmenting: moves that empty GPUs are planned, what they gain is counted, and they are declared as a maintenance.
Who makes them is reconcile/defragmenting.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import Conflict
from orchestrator.core.maintenance.maintenance import (
    NOW,
    OVER,
    DefragmentMove,
    FitGain,
    HostTurn,
    Maintenance,
    Planned,
    is_over,
)
from orchestrator.core.moves.rearranging import PlannedMove
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.clock import Clock, Ids
from orchestrator.services.acting import actor
from orchestrator.services.maintenance.waits import may_be_stopped
from orchestrator.services.vms.capacity import CapacityService
from orchestrator.services.vms.moves import MoveService
from orchestrator.services.vms.rearranging import LegalMoves, asking
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

MAX_MOVES: Final = 16
"""Where nobody says how many."""


@dataclass(frozen=True, kw_only=True)
class WantedDefragmentation:
    """How many VMs may move, how, and when."""

    max_moves: int = MAX_MOVES
    parallel: int = 2
    max_bytes_per_s: int | None = None
    cold: bool = False
    """VMs that may not move while they run are shut down for it, where their tenants let them be stopped."""
    when: Planned = NOW


@dataclass(frozen=True, kw_only=True)
class DefragmentationPlan:
    """What would be done; nothing was stored."""

    moves: tuple[DefragmentMove, ...]
    """In the order in which they begin."""
    gpus: int
    """That get empty."""
    gains: tuple[FitGain, ...]


@dataclass(frozen=True, kw_only=True)
class DefragmentationService:
    """``advance`` is told that there is something to do."""

    store: Store
    clock: Clock
    ids: Ids
    advance: Callable[[], object]
    moves: MoveService
    capacity: CapacityService

    def plan(self, wanted: WantedDefragmentation) -> DefragmentationPlan:
        """What :meth:`declare` would begin; no moves where no GPU gets empty by legal ones."""
        return asking(self.moves, lambda may_ask: self._plan(wanted, may_ask=may_ask))

    def _plan(self, wanted: WantedDefragmentation, *, may_ask: bool) -> DefragmentationPlan:
        now = self.clock.now()
        with self.moves.index.current() as fleet, self.store.read() as tx:
            its = self._maintenance(wanted, (), (), now)

            def may_stop(vm: Vm) -> bool:
                return wanted.cold and may_be_stopped(tx, its, vm, now)

            legal = LegalMoves(tx=tx, fleet=fleet, moves=self.moves, may_stop=may_stop, may_ask=may_ask)
            search = legal.search()
            try:
                gpus = search.empty_gpus(wanted.max_moves)
                legal.check_asked(search.moves)
                then = search.views()
            finally:
                search.undo()
            moves = tuple(_named(tx, move) for move in search.moves)
            gains = self.capacity.gains(then) if moves else ()
        return DefragmentationPlan(moves=moves, gpus=gpus, gains=gains)

    def declare(self, wanted: WantedDefragmentation) -> Maintenance:
        """From now on, or from when that was said, the moves are made.

        :raises InvalidInput: ``maintenance.past``
        :raises Conflict: ``defragment.active``: one goes on; ``defragment.nothing_to_do``"""
        now = self.clock.now()
        wanted.when.begin(now)
        with self.store.read() as tx:
            _check_no_other(tx)
        plan = self.plan(wanted)
        if not plan.moves:
            hint = "'vgpuctl gpu map' shows what lies where; VMs that may not move while they run are left out"
            raise Conflict(
                "defragment.nothing_to_do", f"no GPU gets empty by {wanted.max_moves} legal moves or fewer", hint=hint
            )
        its = self._maintenance(wanted, plan.moves, plan.gains, now)
        with self.store.begin() as tx:
            _check_no_other(tx)
            tx.maintenances.add(its)
            subject = f"{len(plan.moves)} VMs on {len(its.hosts)} hosts"
            tx.audit.append(at=now, actor=actor(), action="defragment", subject=subject, outcome="accepted")
        self.advance()
        with self.store.read() as tx:
            return tx.maintenances.find(its.id) or its

    def _maintenance(
        self, wanted: WantedDefragmentation, moves: tuple[DefragmentMove, ...], gains: tuple[FitGain, ...], now: float
    ) -> Maintenance:
        hosts = tuple(HostTurn(host=name) for name in dict.fromkeys(move.source for move in moves))
        return Maintenance(
            id=self.ids.new_uuid(), act="defragment", policy="move", max_unavailable=len(hosts) + 1, canary=0,
            failure_budget=len(hosts), created_at=now, hosts=hosts, reason=wanted.when.reason,
            starts_at=wanted.when.begin(now), ends_by=wanted.when.end(now), parallel=wanted.parallel,
            max_bytes_per_s=wanted.max_bytes_per_s, moves=moves, gains=gains, cold=wanted.cold,
        )  # fmt: skip


def _named(tx: Transaction, move: PlannedMove) -> DefragmentMove:
    vm = tx.vms.find_id(move.vm)
    return DefragmentMove(
        vm=move.vm, name=move.vm if vm is None else vm.full_name, source=move.source, leaves=move.leaves,
        target=move.target, gpu=move.gpu,
    )  # fmt: skip


def _check_no_other(tx: Transaction) -> None:
    """One site has one balancer."""
    active = (its for its in tx.maintenances.active() if its.act == "defragment" and not is_over(its))
    other = next(active, None)
    if other is not None:
        ends = "" if other.state in OVER else f", 'vgpuctl maintenance cancel {other.id}' ends it"
        hint = f"'vgpuctl maintenance show {other.id}' tells how far it is{ends}"
        raise Conflict("defragment.active", "another defragmentation goes on, or is declared", hint=hint)
