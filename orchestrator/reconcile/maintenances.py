# SPDX-License-Identifier: Apache-2.0
"""Takes declared maintenances on: reads how far each host is, begins the operations that are due, writes it down.

All that is known is in the database, so any controller takes it on at any time: what was begun is found by its id, in
the same transaction that said so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.core.errors import VgpuctlError
from orchestrator.core.maintenance.maintenance import MAX_TRIES, MOVING, Act, HostTurn, Maintenance, why_of
from orchestrator.core.moves.moves import UNASKED
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.reconcile.defragmenting import Defragmenter
from orchestrator.reconcile.host_turns import HostTurns, stay
from orchestrator.services.messages import MoveVm
from orchestrator.services.vms.moving import VmMoves
from orchestrator.store.database import Store

_FIRST_REST_S: Final = 30.0
_MAX_REST_S: Final = 300.0
"""So long a VM that was refused a place, or is evacuated, is not tried again: doubled from the first to this."""


@dataclass(frozen=True, kw_only=True)
class MaintenanceKeeper:
    """Safe to call from many threads and controllers; nothing is done without a maintenance that is not over."""

    store: Store
    engine: Engine
    clock: Clock
    ids: Ids
    moves: VmMoves
    defragmenter: Defragmenter
    _rests: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By id of such a VM: until when it is left alone, on the monotonic clock, and for how long that is."""

    def advance(self) -> bool:
        """As far as it goes now without looking for places, which takes long and holds the fleet. Whether VMs are to
        move now, which :meth:`round` has them do."""
        turns = [self._advance(name) for name, act in self._active() if act != "defragment"]
        waits = [self.defragmenter.advance(name) for name, act in self._active() if act == "defragment"]
        return any(waits) or any(any(its.leaving.values()) for its in turns if its is not None)

    def round(self) -> None:
        """As far as it goes now; VMs that are to move do. For a thread that nobody waits for. Raises what the first
        one did that did not go well, once all others have had their round."""
        active, first = self._active(), None
        if not active:
            self._rests.clear()
        for maintenance_id, act in active:
            try:
                if act == "defragment":
                    self.defragmenter.round(maintenance_id)
                else:
                    self._empty(maintenance_id)
            except VgpuctlError as error:
                first = first or error
        if first is not None:
            raise first

    def _empty(self, maintenance_id: str) -> None:
        while (turns := self._advance(maintenance_id)) is not None and any(turns.leaving.values()):
            for host, vms in turns.leaving.items():
                for vm, may_stop in vms:
                    self._leave(turns.maintenance, host, vm, may_stop=may_stop, besides=turns.blocked.get(host))

    def _active(self) -> list[tuple[str, Act]]:
        """Ids and what is done, the oldest first."""
        with self.store.read() as tx:
            return [(maintenance.id, maintenance.act) for maintenance in reversed(tx.maintenances.active())]

    def _advance(self, maintenance_id: str) -> HostTurns | None:
        now = self.clock.monotonic()
        resting = frozenset(vm for vm, (until, _) in self._rests.items() if until > now)
        with self.store.begin() as tx:
            maintenance = tx.maintenances.find(maintenance_id)
            if maintenance is None:
                return None
            turns = HostTurns(tx, self.clock, self.ids, maintenance, resting)
            after = turns.advance()
            if after != maintenance:
                tx.maintenances.put(after)
        for operation in turns.begun:
            self.engine.submit(operation)
        return turns

    def _leave(self, maintenance: Maintenance, host: str, vm: Vm, *, may_stop: bool, besides: str | None) -> None:
        """Outside of the round's transaction. One that runs moves while it runs where that is legal; else it is
        stopped, once it has claimed a place elsewhere. ``besides``: of whom else something is to be told."""
        evacuate = maintenance.act == "evacuate"
        request = MoveVm(
            name=vm.spec.name, tenant=vm.spec.tenant, why=maintenance.title, evacuate=evacuate,
            max_bytes_per_s=maintenance.max_bytes_per_s, or_cold=may_stop and not evacuate, force=may_stop,
        )  # fmt: skip
        if evacuate:  # before it may be elsewhere: it is given up there
            self._change(maintenance.id, host, lambda turn: replace(turn, vms=tuple({*turn.vms, vm.id})))
        try:
            self.moves.move(request)
            if evacuate:  # its move may be taken back; it is never given up, as nobody else gets it out
                self._rest(vm)
            else:
                self._rests.pop(vm.id, None)
            self._change(maintenance.id, host, lambda turn: _leaves(turn, vm, besides or ""))
        except VgpuctlError as error:
            rest_s = self._rest(vm)
            if maintenance.act == "upgrade":
                unread = any(reason.code == UNASKED for reason in error.reasons)
                if not unread or rest_s == _MAX_REST_S:  # else hosts are observed again before that
                    self._change(maintenance.id, host, lambda turn: stay(turn, {vm.id}))
                return
            what = f"VM {vm.full_name} stays: {error.message}"
            self._change(maintenance.id, host, lambda turn: _refused_by(turn, vm, what, besides))

    def _rest(self, vm: Vm) -> float:
        """In seconds, for how long it is left alone from now on."""
        rest_s = min(2 * self._rests.get(vm.id, (0.0, _FIRST_REST_S / 2))[1], _MAX_REST_S)
        self._rests[vm.id] = (self.clock.monotonic() + rest_s, rest_s)
        return rest_s

    def _change(self, maintenance_id: str, host: str, change: Callable[[HostTurn], HostTurn]) -> None:
        """Of one host that is still being emptied."""
        with self.store.begin() as tx:
            maintenance = tx.maintenances.find(maintenance_id)
            turn = None if maintenance is None else maintenance.host(host)
            if maintenance is None or turn is None or turn.phase not in MOVING:
                return
            after = maintenance.put(change(turn))
            if after != maintenance:
                tx.maintenances.put(after)


def _leaves(turn: HostTurn, vm: Vm, besides: str) -> HostTurn:
    """A move of it has begun."""
    refused = tuple(name for name in turn.refused if name != vm.id)
    tries = turn.tries if turn.tries.count(vm.id) >= MAX_TRIES else (*turn.tries, vm.id)
    return replace(turn, tries=tries, refused=refused, why=turn.why if refused else besides)


def _refused_by(turn: HostTurn, vm: Vm, what: str, besides: str | None) -> HostTurn:
    """It stays for now."""
    others = tuple(name for name in turn.refused if name != vm.id)
    stays = {**turn.stays, vm.id: what}
    refused = (*others, vm.id)
    why = why_of(besides or "", [stays[name] for name in refused if name in stays])
    return replace(turn, refused=refused, why=why, stays=stays)
