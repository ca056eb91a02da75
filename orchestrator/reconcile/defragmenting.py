# SPDX-License-Identifier: Apache-2.0
"""Takes a declared defragmentation on: begins moves that are due, reads how far they are, and counts at the end what
was gained. All that is known is in the database, so any controller takes it on at any time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from orchestrator.core.errors import NotFound, VgpuctlError
from orchestrator.core.maintenance.maintenance import (
    UNDER_WAY,
    DefragmentMove,
    HostTurn,
    Maintenance,
    MoveState,
    settled,
    turn_on,
)
from orchestrator.core.manifest import BUSY
from orchestrator.core.operation import FINISHED, Operation
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.clock import Clock
from orchestrator.services.begin import running_operation
from orchestrator.services.maintenance.waits import may_be_stopped
from orchestrator.services.messages import MoveVm
from orchestrator.services.vms.capacity import CapacityService
from orchestrator.services.vms.moving import VmMoves
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_OPEN: frozenset[MoveState] = frozenset({"waiting", "moving"})


@dataclass(frozen=True, kw_only=True)
class Defragmenter:
    """Safe to call from many threads and controllers: a VM that moves is refused to whoever comes second."""

    store: Store
    clock: Clock
    moves: VmMoves
    capacity: CapacityService

    def advance(self, maintenance_id: str) -> bool:
        """What has ended is written down. Whether :meth:`round` has something to do now."""
        its = self._change(maintenance_id, self._as_it_is)
        return its is not None and bool(self._due(its) or _has_ended(its))

    def round(self, maintenance_id: str) -> None:
        """As far as it goes now. For a thread that nobody waits for."""
        its, tried = self._change(maintenance_id, self._as_it_is), set[str]()
        while its is not None and (due := self._due(its, tried)):
            tried.add(due[0].vm)
            its = self._begin(its, due[0])
        if its is not None and _has_ended(its):
            names = [gain.profile for gain in its.gains]
            measured = self.capacity.count(names)
            self._change(its.id, lambda _, its: self._ended(its, measured))

    def _due(self, its: Maintenance, tried: Collection[str] = ()) -> list[DefragmentMove]:
        """Those that begin now. VMs that something works on are passed over, until a later round."""
        now = self.clock.now()
        if its.state != "running" or not its.is_open(now):
            return []
        free = its.parallel - sum(move.state == "moving" for move in its.moves)
        may = [move for move in its.moves if move.state == "waiting" and its.chosen.get(move.vm, 0.0) <= now]
        with self.store.read() as tx:
            return [move for move in may if move.vm not in tried and not _is_busy(tx, move.vm)][: max(free, 0)]

    def _as_it_is(self, tx: Transaction, its: Maintenance) -> Maintenance:
        """By the operations that were begun. The other VMs of a GPU stay where one of it does."""
        now = self.clock.now()
        begins = its.state == "running" and its.is_open(now)
        taken = _under_others(tx, its) if begins else {}
        moves = [_left_to(taken, self._ended_move(tx, move)) for move in its.moves]
        stay = {(move.source, move.leaves) for move in moves if _stays(move)}
        left = [
            replace(move, state="left", why="it would free no GPU: another VM of it stays")
            if move.state == "waiting" and (move.source, move.leaves) in stay
            else move
            for move in moves
        ]  # fmt: skip
        turns = (
            replace(turn, phase="moving", began_at=now)
            if begins and turn.phase == "waiting" and turn.host not in taken
            else turn
            for turn in its.hosts
        )
        return settled(replace(its, moves=tuple(left), hosts=tuple(turns)), now)

    def _ended_move(self, tx: Transaction, move: DefragmentMove) -> DefragmentMove:
        if move.state != "moving":
            return move
        vm, operation = tx.vms.find_id(move.vm), _operation_of(tx, move)
        if operation is not None and operation.state not in FINISHED:
            return move
        if vm is None or vm.host != move.source:
            return _gone(vm, move)
        error = {} if operation is None else operation.error or {}
        return replace(move, state="failed", why=str(error.get("message", "it was taken back")))

    def _begin(self, its: Maintenance, move: DefragmentMove) -> Maintenance | None:
        """Outside of a transaction: looking for a place holds the fleet."""
        with self.store.read() as tx:
            vm = tx.vms.find_id(move.vm)
            cold = its.cold and vm is not None and may_be_stopped(tx, its, vm, self.clock.now())
        if vm is None or vm.host != move.source:
            return self._moved(its, _gone(vm, move))
        request = MoveVm(
            name=vm.spec.name, tenant=vm.spec.tenant, host=move.target, gpu=move.gpu, why=its.title,
            max_bytes_per_s=its.max_bytes_per_s, or_cold=cold,
        )  # fmt: skip
        try:
            started = self.moves.move(request)
        except VgpuctlError as error:
            with self.store.read() as tx:
                if _is_busy(tx, move.vm):  # somebody else was faster, another controller perhaps
                    return its
            return self._moved(its, replace(move, state="failed", why=error.message))
        return self._moved(its, replace(move, state="moving", operation=started.operation))

    def _moved(self, its: Maintenance, changed: DefragmentMove) -> Maintenance | None:
        def put(tx: Transaction, now: Maintenance) -> Maintenance:
            moves = tuple(
                changed if move.vm == changed.vm and (move.state == "waiting" or changed.operation) else move
                for move in now.moves
            )  # another controller has begun the others meanwhile
            return self._as_it_is(tx, replace(now, moves=moves))

        return self._change(its.id, put)

    def _ended(self, its: Maintenance, measured: dict[str, int]) -> Maintenance:
        gains = tuple(replace(gain, measured=measured.get(gain.profile)) for gain in its.gains)
        turns = (self._ended_turn(turn, (m for m in its.moves if m.source == turn.host)) for turn in its.hosts)
        return settled(replace(its, gains=gains, hosts=tuple(turns)), self.clock.now())

    def _ended_turn(self, turn: HostTurn, moves: Iterable[DefragmentMove]) -> HostTurn:
        why = "; ".join(f"VM {move.name} stays: {move.why}" for move in moves if _stays(move))
        return replace(turn, phase="kept" if why else "done", why=why, ended_at=self.clock.now())

    def _change(
        self, maintenance_id: str, change: Callable[[Transaction, Maintenance], Maintenance]
    ) -> Maintenance | None:
        """None: it is gone, or over."""
        with self.store.begin() as tx:
            its = tx.maintenances.find(maintenance_id)
            if its is None or not any(turn.phase in {*UNDER_WAY, "waiting"} for turn in its.hosts):
                return None
            after = change(tx, its)
            if after != its:
                tx.maintenances.put(after)
            return after


def _operation_of(tx: Transaction, move: DefragmentMove) -> Operation | None:
    try:
        return tx.operations.get(move.operation or "").operation
    except NotFound:  # it ended so long ago that it is forgotten
        return None


def _under_others(tx: Transaction, its: Maintenance) -> dict[str, str]:
    """What another maintenance under way is called, by name of the host that it has."""
    active = tx.maintenances.active()
    names = {name for move in its.moves for name in (move.source, move.target)}
    return {name: other[0].title for name in names if (other := turn_on(active, name)) is not None}


def _left_to(taken: Mapping[str, str], move: DefragmentMove) -> DefragmentMove:
    """Nothing begins from or to a host that another maintenance has."""
    host = next((name for name in (move.source, move.target) if name in taken), None)
    if move.state != "waiting" or host is None:
        return move
    return replace(move, state="left", why=f"{taken[host]} is under way on host {host}")


def _gone(vm: Vm | None, move: DefragmentMove) -> DefragmentMove:
    """Of a VM that is not on the host any more that it was to leave."""
    if vm is not None and vm.host == move.target:
        return replace(move, state="done")
    return replace(move, state="gone", why="it is gone" if vm is None else "it is elsewhere")


def _is_busy(tx: Transaction, vm_id: str) -> bool:
    vm = tx.vms.find_id(vm_id)
    return vm is not None and (vm.state in BUSY or running_operation(tx, vm) is not None)


def _stays(move: DefragmentMove) -> bool:
    """Its GPU does not get empty."""
    return move.state in {"failed", "left"}


def _has_ended(its: Maintenance) -> bool:
    return all(move.state not in _OPEN for move in its.moves)
