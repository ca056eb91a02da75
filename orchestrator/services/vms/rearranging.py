# SPDX-License-Identifier: Apache-2.0
"""Which VMs may move to make room, and onto which GPUs: what the search for it asks (core/moves/rearranging.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from orchestrator.core.errors import NotFound
from orchestrator.core.moves.moves import UNASKED, Moving, barred_hosts, limits_onto, own_verdicts
from orchestrator.core.moves.rearranging import Mover, PlannedMove, Rearrangement
from orchestrator.core.moves.verdicts import MoveKind, limits_on
from orchestrator.core.placement.rules.named import OffHosts
from orchestrator.core.placement.views import Placement, Request
from orchestrator.core.vms.vm import Vm, VmShape
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.vms.deallocating import idle, preemptible_now
from orchestrator.services.vms.moves import MoveService
from orchestrator.store.transaction import Transaction

_MAX_JUDGED: Final = 500
"""VMs in one search; the fleet is held meanwhile."""
_ROUNDS: Final = 3
"""How often drivers are asked about what was planned, and then it is planned again."""

T = TypeVar("T")


class Unasked(Exception):
    """Of what was planned drivers have the last word, and have not been asked. ``pairs``: tenant and name of a VM, and
    a host."""

    def __init__(self, pairs: frozenset[tuple[str, str, str]]) -> None:
        super().__init__(len(pairs))
        self.pairs = pairs


def asking(moves: MoveService, act: Callable[[bool], T]) -> T:
    """What ``act`` returns, which is told whether it may raise :class:`Unasked`: then these are asked, while nobody
    holds the fleet, and it is called again."""
    for _ in range(_ROUNDS):
        try:
            return act(True)
        except Unasked as error:
            for tenant, name, host in sorted(error.pairs):
                with suppress(NotFound):  # gone meanwhile: it is planned without it
                    moves.to_host(tenant, name, host)
    return act(False)


def may_move_for(tx: Transaction, shape: VmShape, *, with_moves: bool, preempt: bool) -> frozenset[str] | None:
    """Ids of the VMs that may move for such a one; None: each. Those of its own tenant, and of others where an operator
    lets its tenant have them make way; of a request that would stop VMs, at least those."""
    if with_moves and tx.policies.get(shape.tenant).preempt:
        return None
    own = (vm.id for vm in tx.vms.list(tenant=shape.tenant)) if with_moves else ()
    lower = preemptible_now(tx, tenant=shape.tenant, priority=shape.priority) if preempt else {}
    return frozenset((*own, *lower))


def fit_by_moves(legal: LegalMoves, request: Request) -> tuple[Placement, tuple[PlannedMove, ...]] | None:
    """Where a request goes that fits nowhere, once VMs have moved: what a create does is what explain says. None: no
    few legal moves make it fit.

    :raises Unasked: drivers may still refuse some of these"""
    search = legal.search()
    try:
        placement, moves = search.fit(request), tuple(search.moves)
        legal.check_asked(moves)
    finally:
        search.undo()
    return None if placement is None else (placement, moves)


@dataclass(kw_only=True)
class LegalMoves:
    """At one moment, inside :meth:`FleetIndex.current`. VMs that are stopped go as they are; of those that run only
    such as may go on running, and those that ``may_stop`` says may be shut down for it."""

    tx: Transaction
    fleet: FleetIndex
    moves: MoveService
    may_move: Callable[[Vm], bool] = lambda _: True
    may_stop: Callable[[Vm], bool] = lambda _: False
    may_ask: bool
    """Whether a driver that has not been asked is taken for one that says yes, until :meth:`check_asked`."""
    _unasked: dict[tuple[str, str], tuple[str, str, str]] = field(default_factory=dict)
    _known: dict[str, Mover | None] = field(default_factory=dict)
    _onto: dict[tuple[str, str, str], bool] = field(default_factory=dict)

    def search(self) -> Rearrangement:
        """In the fleet's own engine: undo it before the end of the block."""
        return Rearrangement(self.fleet.engine, self.mover)

    def mover(self, vm_id: str) -> Mover | None:
        if vm_id not in self._known and len(self._known) < _MAX_JUDGED:
            self._known[vm_id] = self._judged(vm_id)
        return self._known.get(vm_id)

    def _judged(self, vm_id: str) -> Mover | None:
        vm = self.tx.vms.find_id(vm_id)
        if vm is None or len(vm.devices) != 1 or vm.devices[0].is_whole_gpu or vm.state not in {"running", "stopped"}:
            return None
        if not (self.may_move(vm) and idle(self.tx, vm)):
            return None
        moving = self.moves.moving(self.tx, self.fleet, vm)
        legal = {verdict.kind for verdict in own_verdicts(moving.traveller) if verdict.legal}
        ways: tuple[MoveKind, ...] = ("cold",) if vm.state == "stopped" else ("live",)
        if vm.state == "running" and self.may_stop(vm):
            ways = ("live", "cold")
        way = next((way for way in ways if way in legal), None)
        if way is None:
            return None
        hosts = ((viewed.view.name, viewed.facts) for viewed in self.fleet.fleet().hosts)
        request = moving.request
        request = replace(request, needs=(OffHosts(barred_hosts(moving, way, hosts)), *request.needs))
        if way == "cold":
            return Mover(request=request, goes=lambda *_: True)
        if moving.cuts:
            request = replace(request, cut_kinds=moving.cuts)
        return Mover(request=request, goes=partial(self._goes, moving))

    def _goes(self, moving: Moving, host: str, gpu: str) -> bool:
        """Its state, onto that GPU."""
        vm, viewed = moving.traveller.vm, self.fleet.host(host)
        if viewed is None:
            return False
        key = vm.id, host, gpu
        if key not in self._onto:
            snapshot = next((item for item in viewed.facts.gpus if item.address == gpu), None)
            limits = limits_on("live", limits_onto(moving, vm.devices[0], snapshot, viewed.facts, host))
            unasked = bool(limits) and self.may_ask and all(limit.code == UNASKED for limit in limits)
            self._onto[key] = unasked or not limits
            if unasked:
                self._unasked[vm.id, host] = vm.spec.tenant, vm.spec.name, host
        return self._onto[key]

    def check_asked(self, moves: Sequence[PlannedMove]) -> None:
        """:raises Unasked: drivers may still refuse some of these"""
        pairs = (self._unasked.get((move.vm, move.target)) for move in moves)
        if waiting := frozenset(filter(None, pairs)):
            raise Unasked(waiting)
