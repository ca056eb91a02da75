# SPDX-License-Identifier: Apache-2.0
"""How far each host of a maintenance is: phase after phase, as far as it goes in one transaction. What it moves is left
to whoever may hold the fleet (maintenances.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, Literal

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.hosts.host import Host
from orchestrator.core.maintenance.maintenance import (
    MAX_TRIES,
    UNDER_WAY,
    HostPhase,
    HostTurn,
    Maintenance,
    begin_next,
    settled,
    why_of,
)
from orchestrator.core.operation import FINISHED
from orchestrator.core.vms.vm import Vm, VmState
from orchestrator.operations.stuck import waits_for_its_host
from orchestrator.ports.clock import Clock, Ids
from orchestrator.reconcile.away_hosts import has_touched, is_away, is_present, why_away
from orchestrator.services.begin import new_operation, record, undo_inputs
from orchestrator.services.drivers.provisioning import begin_swap, check_free, needs_base
from orchestrator.services.drivers.upgrades import GONE, kept_by_others, swap_of
from orchestrator.services.maintenance.reboots import begin_reboot
from orchestrator.services.maintenance.waits import AT_REST, may_be_stopped, waits_of
from orchestrator.services.vms.deallocating import idle
from orchestrator.store.transaction import Transaction

_GIVEN_UP: Final = "the host was given up"
_TOO_LATE: Final = "its VMs that stay may not be stopped any more: it waits until they may"
_NEVER_BEGAN: Final = "the host was removed or given up before its turn"


class HostTurns:
    """One round of a maintenance, in one transaction."""

    def __init__(
        self, tx: Transaction, clock: Clock, ids: Ids, maintenance: Maintenance, resting: Collection[str] = ()
    ) -> None:
        """``resting``: ids of VMs that were just refused, and are not asked to move now."""
        self._tx, self._clock, self._ids, self.maintenance = tx, clock, ids, maintenance
        self._why, self._resting = maintenance.title, resting
        self.begun: list[str] = []
        self.leaving: dict[str, list[tuple[Vm, bool]]] = {}
        """By host, those that are to move now, and whether each may be stopped for it."""
        self.blocked: dict[str, str] = {}
        """By host, in words, those that are not tried: a person has to look."""

    def advance(self) -> Maintenance:
        """The maintenance as it then is."""
        now, hosts = self._clock.now(), {host.name: host for host in self._tx.hosts.list()}
        maintenance, away = settled(self._all_on(self._without_gone(hosts, now)), now), set[str]()
        if maintenance.state == "running" and maintenance.is_open(now):
            at_rest = {turn.host for turn in maintenance.hosts if turn.phase not in UNDER_WAY}
            dead = self.maintenance.act == "evacuate"
            silent = set[str]() if dead else {name for name, host in hosts.items() if is_away(host)}
            away = (silent | self._under_others()) & at_rest
            # Whose turn it is depends on the tenants only while there is one who may begin.
            occupied = waits_of(self._tx, maintenance, now) if begin_next(maintenance, away) else ()
            for name in begin_next(maintenance, away, occupied):
                maintenance = maintenance.put(self._on(self._begin(maintenance.host(name))))
        for turn in maintenance.hosts:
            if turn.phase == "waiting":
                why = why_away(hosts[turn.host]) if turn.host in away & hosts.keys() else ""
                maintenance = maintenance.put(replace(turn, why=why))
        return settled(maintenance, now)

    def _under_others(self) -> set[str]:
        """Hosts that another maintenance has its hands on. A defragmentation leaves off where one begins."""
        active = self._tx.maintenances.active()
        others = [other for other in active if other.act != "defragment" and other.id != self.maintenance.id]
        return {turn.host for other in others for turn in other.hosts if turn.phase in UNDER_WAY}

    def _without_gone(self, hosts: Mapping[str, Host], now: float) -> Maintenance:
        """Nobody waits for the turn of a host that is not there any more."""
        gone = {
            turn.host
            for turn in self.maintenance.hosts
            if turn.phase == "waiting" and not is_present(hosts.get(turn.host))
        }
        ended = (
            replace(turn, phase="kept", seen=True, why=_NEVER_BEGAN, ended_at=now) if turn.host in gone else turn
            for turn in self.maintenance.hosts
        )  # fmt: skip
        return replace(self.maintenance, hosts=tuple(ended))

    def _all_on(self, maintenance: Maintenance) -> Maintenance:
        return replace(maintenance, hosts=tuple(self._on(turn) for turn in maintenance.hosts))

    def _on(self, one: HostTurn) -> HostTurn:
        """Phase after phase, until something has to be waited for."""
        turns = {
            "emptying": self._emptying,
            "empty": self._kept_empty,
            "swapping": self._swapped,
            "refilling": self._refilled,
        }
        while one.phase in turns:
            after = turns[one.phase](one)
            if after == one:
                return one
            one = after
        return one

    def _begin(self, one: HostTurn) -> HostTurn:
        host = self._tx.hosts.get(one.host)
        if self.maintenance.act == "upgrade" and (kept := kept_by_others(self._tx, host)) is not None:
            return self._ended(replace(one, phase="kept", why=kept))
        if not self.maintenance.serves_on and (not host.cordoned or host.cordoned_for is not None):  # a person's stays
            self._tx.hosts.update(replace(host, cordoned=True, cordoned_for=self._why))
        if self.maintenance.fence == "agent":
            one = self._began_on_host(one, host, "fence_host", {})
        vms = () if self.maintenance.policy in {"wait", "move"} else self._tx.vms.list(host=one.host)
        ran = tuple(vm.id for vm in vms if vm.state == "running" and vm.wanted == "running")
        return replace(one, phase="emptying", why="", vms=ran, began_at=self._clock.now())

    def _emptying(self, one: HostTurn) -> HostTurn:
        host = self._host(one)
        if host is None:
            return self._failed(one, _GIVEN_UP)
        if self.maintenance.act == "evacuate":
            return self._evacuated(one, host)
        if self.maintenance.state == "cancelled":
            return self._refill(one, "kept", "it was cancelled before its host was empty")
        return self._moved_away(one) if self.maintenance.policy == "move" else self._emptied(one, host)

    def _emptied(self, one: HostTurn, host: Host) -> HostTurn:
        """VMs go to other hosts while they run where they may, for a driver; the others are stopped, or waited for."""
        leaving = [vm for vm in self._tx.vms.list(host=one.host) if self._has_to_leave(one, vm)]
        if stuck := [vm.full_name for vm in leaving if self._is_stuck(vm)]:
            return self._refill(one, "kept", f"VM {', '.join(stuck)} is stuck")
        if self.maintenance.act == "upgrade":
            one = stay(one, {name for name in one.tries if one.tries.count(name) >= MAX_TRIES} - {*one.refused})
            moving = [vm for vm in leaving if vm.state == "moving"]
            live = [vm for vm in leaving if vm.state == "running" and vm.id not in one.refused and self._may_leave(vm)]
            free = max(self.maintenance.parallel - len(moving), 0)
            tried = islice((vm for vm in live if vm.id not in self._resting), free)
            self.leaving[one.host] = [(vm, False) for vm in tried]
            if live or moving:
                return one
            if self._is_too_late(one, leaving):
                return replace(one, why=_TOO_LATE)
        ready = [vm for vm in leaving if self._may_be_stopped(vm) and idle(self._tx, vm)]
        if refused := [vm.full_name for vm in ready if one.tries.count(vm.id) >= MAX_TRIES]:
            return self._refill(one, "kept", f"VM {', '.join(refused)} could not be stopped")
        if leaving:
            ran = [vm.id for vm in ready if vm.state == "running" and vm.id not in one.vms]
            return replace(self._tried(one, ready, "stop_vm"), vms=(*one.vms, *ran))
        if not one.vms and not self.maintenance.is_open(self._clock.now()):
            return one  # nobody waits for it; a host whose VMs were stopped goes on
        return self._swap(one, host) if self.maintenance.act == "upgrade" else self._empty(one)

    def _evacuated(self, one: HostTurn, host: Host) -> HostTurn:
        """Once it is fenced VMs start elsewhere; once it is back it gives those up before it serves again."""
        if one.swap is not None and one.phase == "emptying":
            operation = self._tx.operations.get(one.swap).operation
            if operation.state not in FINISHED:
                return one
            if operation.state != "done":
                return self._refill(one, "kept", str((operation.error or {}).get("message", "it was not fenced")))
            one = replace(one, swap=None)
        if host.state != "ready":
            return self._moved_away(one)
        busy = any(vm is not None and vm.state == "moving" for vm in map(self._tx.vms.find_id, one.vms))
        return one if busy else self._given_up(replace(one, phase="empty"), host)

    def _given_up(self, one: HostTurn, host: Host) -> HostTurn:
        """It answers again."""
        if one.swap is not None:
            ended = self._tx.operations.get(one.swap).operation
            if ended.state not in FINISHED:
                return one
            if ended.state == "done":
                return replace(one, swap=None, vms=(), why="")
            if ended.state == "stuck":
                return replace(one, why=f"it has not given up VMs that run elsewhere: operation {ended.id} is stuck")
        known = ((name, self._tx.vms.find_id(name)) for name in one.vms)
        gone = [name for name, vm in known if vm is None or vm.host != one.host]
        if not gone:
            return replace(one, vms=(), why="")
        if host.restored is not None:  # one of them may have come back since the backup
            return replace(one, why="the database was restored: settle first what is there, then it gives VMs up")
        return replace(self._began_on_host(one, host, "give_up_vms", {"vms": gone}), why="it gives up VMs that left")

    def _began_on_host(self, one: HostTurn, host: Host, kind: str, inputs: dict[str, object]) -> HostTurn:
        operation = new_operation(kind, host, clock=self._clock, ids=self._ids, why=self._why)
        record(self._tx, operation, host=host.name, inputs=inputs)
        self.begun.append(operation.id)
        return replace(one, swap=operation.id)

    def _empty(self, one: HostTurn) -> HostTurn:
        """Nothing runs there; but for a reboot, what is wrong with it is a person's to find or mend."""
        if self.maintenance.act == "reboot":
            return self._reboot(one, self._tx.hosts.get(one.host))
        return self._refill(one, "done", one.why) if self.maintenance.gpu else replace(one, phase="empty", tries=())

    def _kept_empty(self, one: HostTurn) -> HostTurn:
        """Until somebody uncordons it, or it is there no more."""
        host = next((host for host in self._tx.hosts.list() if host.name == one.host), None)
        if host is not None and is_present(host):
            if self.maintenance.state == "cancelled":
                return self._refill(one, "kept", "it was cancelled while its host did not answer")
            return self._evacuated(one, host) if self.maintenance.act == "evacuate" else one
        given_up = host is not None and host.state == "forgotten"
        return self._failed(one, _GIVEN_UP) if given_up else self._ended(replace(one, phase="done"))

    def _moved_away(self, one: HostTurn) -> HostTurn:
        """Each VM leaves, and runs elsewhere if it ran."""
        vms = [vm for vm in self._tx.vms.list(host=one.host) if self.maintenance.concerns(vm)]
        left = tuple(name for name in one.refused if any(vm.id == name for vm in vms))
        gone = (vm for name in {*one.tries} if (vm := self._tx.vms.find_id(name)) and vm.host != one.host)
        busy = len({vm.operation for vm in (*vms, *gone) if vm.state == "moving"})  # a place held here has its
        given_up = {name for name in one.tries if one.tries.count(name) >= MAX_TRIES}
        self.blocked[one.host] = self._blocked(vms, given_up)
        kept = {name: one.stays[name] for name in left if name in one.stays}
        one = replace(one, refused=left, why=why_of(self.blocked[one.host], kept.values()))
        evacuate = self.maintenance.act == "evacuate"
        rests = {*self._resting} if evacuate else {*given_up, *self._resting}
        may = (vm for vm in vms if vm.id not in rests and self._may_leave(vm))
        ready = sorted(may, key=lambda vm: left.index(vm.id) if vm.id in left else -1)
        free = max(self.maintenance.parallel - busy, 0)
        self.leaving[one.host] = [
            (vm, may_be_stopped(self._tx, self.maintenance, vm, self._clock.now())) for vm in ready[:free]
        ]
        done = {*left, *given_up}
        if evacuate:  # those that stay do not run, whatever the database says
            one = replace(one, stays=kept)
            waits = busy or any(vm.id not in done and vm.state != "stuck" for vm in vms)
            return one if waits else replace(one, phase="empty")
        stays = [vm for vm in vms if vm.state not in AT_REST or (vm.state == "stopped" and vm.id not in done)]
        return one if busy or stays else self._empty(one)

    def _blocked(self, vms: Sequence[Vm], given_up: Collection[str]) -> str:
        """Those of them that do not leave by themselves, in words."""
        stuck = [f"VM {vm.full_name} is stuck" for vm in vms if vm.state == "stuck" or self._is_stuck(vm)]
        failed = (vm for vm in vms if vm.id in given_up and vm.state in {"running", "stopped"})
        what = f"could not be moved in {MAX_TRIES} tries"
        what += "; it is tried again" if self.maintenance.act == "evacuate" else ""
        return "; ".join([*stuck, *(f"VM {vm.full_name} {what}" for vm in failed)])

    def _may_leave(self, vm: Vm) -> bool:
        """Whether it may be tried now: nothing else works on it, and its user has not chosen a later time."""
        later = self._clock.now() < self.maintenance.chosen.get(vm.id, 0.0)
        return (vm.state == "stopped" or (vm.state == "running" and not later)) and idle(self._tx, vm)

    def _has_to_leave(self, one: HostTurn, vm: Vm) -> bool:
        """It runs, or is about to; or its guest has ended by itself, and its vGPU is still in the driver's way."""
        if vm.state not in AT_REST:
            return True
        may_have = vm.state == "stopped" and vm.deallocated is None and (vm.wanted == "running" or vm.id in one.vms)
        if not may_have:
            return False
        last = None if vm.operation is None else self._tx.operations.get(vm.operation).operation
        return last is None or (last.kind, last.state) != ("stop_vm", "done")

    def _is_too_late(self, one: HostTurn, vms: Sequence[Vm]) -> bool:
        """Moves took longer than others may be stopped, all of which wait then. Once one was stopped, all are."""
        begun = any(_is_missing(vm) for vm in self._tx.vms.list(host=one.host) if vm.id in one.vms)
        now, running = self._clock.now(), (vm for vm in vms if vm.state == "running")
        may = (self._may_leave(vm) and may_be_stopped(self._tx, self.maintenance, vm, now) for vm in running)
        return self.maintenance.policy == "tenant" and not begun and not all(may)

    def _may_be_stopped(self, vm: Vm) -> bool:
        chosen = self.maintenance.chosen.get(vm.id)
        waits = self.maintenance.policy == "wait" and (chosen is None or self._clock.now() < chosen)
        return vm.state == "stopped" or (vm.state == "running" and not waits)

    def _is_stuck(self, vm: Vm) -> bool:
        """Until a person decides; not one that goes on when its host is back. Also of a place that is held for it."""
        moves = None if vm.state != "moving" else vm.operation
        stuck = self._tx.operations.stuck_about(self._tx.operations.get(moves).operation.subject if moves else vm.id)
        return any(not waits_for_its_host(operation) for operation in stuck)

    def _reboot(self, one: HostTurn, host: Host) -> HostTurn:
        if not self._is_free(host):
            return one
        operation = begin_reboot(self._tx, host, clock=self._clock, ids=self._ids, why=self._why)
        self.begun.append(operation.id)
        return replace(one, phase="swapping", swap=operation.id, tries=())

    def _is_free(self, host: Host) -> bool:
        """Else something is done there, or it does not answer: it is waited for."""
        try:
            check_free(self._tx, host)
        except Conflict:
            return False
        return True

    def _swap(self, one: HostTurn, host: Host) -> HostTurn:
        if not self._is_free(host):
            return one
        try:
            swap = swap_of(self._tx, self._tx.driver_bundles.list(), host, self.maintenance.version or "")
        except (Conflict, NotFound) as error:
            return self._refill(one, "kept", error.message)
        if self.maintenance.reboot == "if-needed":
            swap = replace(swap, reboot=True, base=needs_base(self._tx, host))
        operation = begin_swap(self._tx, host, "upgrade_driver", swap, clock=self._clock, ids=self._ids)
        self.begun.append(operation.id)
        return replace(one, phase="swapping", swap=operation.id, tries=())

    def _swapped(self, one: HostTurn) -> HostTurn:
        try:
            operation = self._tx.operations.get(one.swap or "").operation
        except NotFound:  # it ended so long ago that it is forgotten
            return self._judged(one)
        if operation.state not in FINISHED:
            return one
        if operation.state == "done":
            return self._refill(one, "done", "")
        why = str((operation.error or {}).get("message", "it failed"))
        if operation.state == "stuck" or (self.maintenance.act == "reboot" and has_touched(operation)):
            return self._failed(one, why)
        return self._refill(one, "rolled_back" if has_touched(operation) else "kept", why)

    def _judged(self, one: HostTurn) -> HostTurn:
        """By the driver that was seen there last."""
        snapshot = self._tx.hosts.snapshot(one.host)
        if snapshot is not None and snapshot.driver_version == self.maintenance.version:
            return self._refill(one, "done", "")
        return self._failed(one, "what became of its driver is not known any more")

    def _refill(self, one: HostTurn, outcome: HostPhase, why: str) -> HostTurn:
        return replace(one, phase="refilling", outcome=outcome, why=why, tries=())

    def _refilled(self, one: HostTurn) -> HostTurn:
        """Each VM that is wanted running, as its users have said last, runs."""
        host = self._host(one)
        if host is None:
            return self._failed(one, _GIVEN_UP)
        vms = [vm for vm in self._tx.vms.list(host=one.host) if vm.id in one.vms]  # the others are elsewhere, or gone
        missing = [vm for vm in vms if _is_missing(vm)]
        ready = [vm for vm in missing if vm.state == "stopped" and idle(self._tx, vm)]
        lost = [vm for vm in ready if one.tries.count(vm.id) >= MAX_TRIES]
        lost += [vm for vm in missing if self._is_stuck(vm)]
        out_of_reach = self.maintenance.state == "cancelled" and host.state != "ready"
        if not out_of_reach and (due := [vm for vm in ready if vm not in lost]):
            one = self._tried(one, due, "start_vm")
        if len(missing) > len(lost) and not out_of_reach:
            return one
        if missing:
            names = ", ".join(vm.full_name for vm in missing)
            away = f"host {host.name} is {host.state}; " if out_of_reach else ""
            return self._failed(one, f"{away}VM {names} did not start again" + (f"; {one.why}" if one.why else ""))
        outcome = one.outcome or "failed"
        if outcome != "rolled_back" and host.cordoned_for is not None and not self.maintenance.serves_on:
            self._tx.hosts.update(replace(host, cordoned=False, cordoned_for=None))
        return self._ended(replace(one, phase=outcome))

    def _failed(self, one: HostTurn, why: str) -> HostTurn:
        return self._ended(replace(one, phase="failed", why=why))

    def _ended(self, one: HostTurn) -> HostTurn:
        """From now on its VMs are compared with what is wanted again."""
        self._tx.observations.judge_host_anew(one.host)
        return replace(one, outcome=None, tries=(), ended_at=self._clock.now())

    def _host(self, one: HostTurn) -> Host | None:
        """None: it was given up or removed, or is another one of its name by now."""
        try:
            host = self._tx.hosts.get(one.host)
        except NotFound:
            return None
        return None if host.state in GONE else host

    def _tried(self, one: HostTurn, vms: Sequence[Vm], kind: Literal["start_vm", "stop_vm"]) -> HostTurn:
        """One operation more for each. What is wanted of a VM is its users' to say: the stop does not change it."""
        state: VmState = "stopping" if kind == "stop_vm" else "starting"
        for vm in vms:
            operation = new_operation(kind, vm, clock=self._clock, ids=self._ids, why=self._why)
            self._tx.vms.update(replace(vm, operation=operation.id, state=state))
            record(self._tx, operation, host=vm.host, inputs={"vm": vm.spec.name, **undo_inputs(vm)})
            self.begun.append(operation.id)
        return replace(one, tries=(*one.tries, *(vm.id for vm in vms)))


def stay(one: HostTurn, vms: Collection[str]) -> HostTurn:
    """Those do not go to other hosts, and may be stopped as often as any."""
    tries = tuple(name for name in one.tries if name not in vms)
    return replace(one, tries=tries, refused=(*one.refused, *sorted(vms))) if vms else one


def _is_missing(vm: Vm) -> bool:
    """It is wanted running in the place that it has there, and does not run."""
    return vm.wanted == "running" and vm.deallocated is None and vm.state not in {"running", "lost"}
