# SPDX-License-Identifier: Apache-2.0
"""Declared maintenances: list, show, pause, go on, cancel. What happens between is reconcile/maintenances."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.hosts.host import LOST, Host
from orchestrator.core.maintenance.leaving import AwaitedTenants
from orchestrator.core.maintenance.maintenance import (
    ENDED,
    NOW,
    OVER,
    REBOOTING,
    UNDER_WAY,
    DrainPolicy,
    Fence,
    HostTurn,
    Maintenance,
    Planned,
    by_beginning,
    cancelled,
    is_over,
    paused,
    resumed,
    settled,
    turn_on,
)
from orchestrator.core.operation import StepRecord
from orchestrator.core.units import show_count
from orchestrator.core.vms.lease import show_moment
from orchestrator.core.vms.vm import Vm, VmState
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.fencing import Fencing
from orchestrator.services.acting import actor
from orchestrator.services.begin import running_operation
from orchestrator.services.hosts.gpu_health import close_for_mending
from orchestrator.services.maintenance.naming import NEWEST, Change, known_maintenance, maintenance_to
from orchestrator.services.maintenance.waits import AT_REST, TO_STOP, PlannedMaintenances, overridden_by, waits_of
from orchestrator.services.vm_checks import known_vm
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

HAND_BACK_S: Final = 14 * 86400.0
MAX_SHOWN: Final = 100
_SHOWN: Final = 8
_BEGUN_BY_DRAIN: Final = ("drain", "reboot")


@dataclass(frozen=True, kw_only=True)
class WantedDrain:
    """How a host is emptied, and when."""

    policy: DrainPolicy = "move"
    parallel: int = 4
    max_bytes_per_s: int | None = None
    when: Planned = NOW


@dataclass(frozen=True, kw_only=True)
class WantedEvacuation:
    """How a dead host is evacuated."""

    confirm: str
    """Its name once more."""
    fence: Fence
    parallel: int = 4
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class MaintenanceService:
    """``advance`` is told that there is something to do. ``name``: see :mod:`services.maintenance.naming`."""

    store: Store
    clock: Clock
    ids: Ids
    advance: Callable[[], object]
    fencing: Fencing
    hand_back_s: float = HAND_BACK_S
    """So long after the planned beginning a VM may stay at most when its user chooses."""

    def list(self) -> tuple[Maintenance, ...]:
        """The newest :data:`MAX_SHOWN`, the newest first."""
        with self.store.read() as tx:
            return tx.maintenances.list(most=MAX_SHOWN)

    def active(self) -> tuple[Maintenance, ...]:
        """Those that are not over, the newest first."""
        with self.store.read() as tx:
            return tx.maintenances.active()

    def get(self, name: str = NEWEST) -> Maintenance:
        """:raises NotFound: ``maintenance.unknown``; :raises InvalidInput: ``maintenance.ambiguous``"""
        with self.store.read() as tx:
            return known_maintenance(tx, name)

    def now(self, maintenance: Maintenance) -> MaintenanceNow:
        """For whom its hosts wait, and how far they are."""
        with self.store.read() as tx:
            return seen_now(tx, maintenance, self.clock.now())

    def planned(self) -> PlannedMaintenances:
        """Which VMs will be stopped, when, and what for."""
        with self.store.read() as tx:
            return PlannedMaintenances(tx, self.clock.now())

    def drain(
        self, host: str, wanted: WantedDrain, gpu: str | None = None, act: Literal["drain", "reboot"] = "drain"
    ) -> Maintenance:
        """From now on, or from when that was said, the host is emptied; it serves again when somebody uncordons it.
        ``gpu``: PCI address of the one GPU that is emptied; it is closed at once, and stays closed.
        ``act``: ``reboot``: it is rebooted once it is empty, and serves again by itself.

        :raises NotFound: ``host.unknown``, ``gpu.not_ours``; :raises InvalidInput: ``maintenance.past``
        :raises Conflict: ``host.busy``: another maintenance is under way there, or another drain declared"""
        now = self.clock.now()
        with self.store.begin() as tx:
            standing = tx.hosts.get(host)
            _check_no_other(tx, host)
            if gpu is not None:
                reason = wanted.when.reason or "closed to be emptied"
                close_for_mending(tx, standing, gpu, tx.time.no_earlier(now), reason)
            drain = Maintenance(
                id=self.ids.new_uuid(), act=act, policy=wanted.policy, max_unavailable=1, canary=0,
                failure_budget=0, created_at=now, hosts=(HostTurn(host=host),), reason=wanted.when.reason,
                parallel=wanted.parallel, max_bytes_per_s=wanted.max_bytes_per_s,
                starts_at=wanted.when.begin(now), ends_by=wanted.when.end(now),
                overridden=overridden_by(tx, (host,), wanted.policy), gpu=gpu,
            )  # fmt: skip
            tx.maintenances.add(drain)
            action = f"{act}_host {wanted.policy}" if gpu is None else "empty_gpu"
            subject = host if gpu is None else f"{host}/{gpu}"
            tx.audit.append(at=now, actor=actor(), action=action, subject=subject, outcome="accepted")
        self.advance()
        return self.get(drain.id)

    def evacuate(self, host: str, wanted: WantedEvacuation) -> Maintenance:
        """From now on VMs of a dead host start elsewhere where their disks are reached; when it is back, it gives them
        up, and serves again when somebody uncordons it.

        :raises InvalidInput: ``host.not_confirmed``; :raises NotFound: ``host.unknown``
        :raises Conflict: ``host.answers``; ``host.busy``: another maintenance is under way there;
            ``fence.not_configured``"""
        if wanted.confirm != host:
            hint = f"--confirm {host}: two that run would write to one disk if the host were not off"
            raise InvalidInput("host.not_confirmed", "evacuating a host has to be confirmed with its name", hint=hint)
        if wanted.fence == "agent" and not self.fencing.knows(host):
            with self.store.read() as tx:
                tx.hosts.get(host)
            hint = "docs/howto/a-host-died.md tells how; --fenced-by-hand says that a person has switched it off"
            raise Conflict("fence.not_configured", f"nothing says how host {host} is switched off", hint=hint)
        now = self.clock.now()
        with self.store.begin() as tx:
            state = tx.hosts.get(host).state
            if state not in LOST - {"forgotten"}:
                hint = f"'vgpuctl host drain {host}' empties one that answers"
                raise Conflict("host.answers", f"host {host} is {state}, not lost", hint=hint)
            _check_no_other(tx, host)
            its = Maintenance(
                id=self.ids.new_uuid(), act="evacuate", policy="move", max_unavailable=1, canary=0, failure_budget=0,
                created_at=now, starts_at=now, hosts=(HostTurn(host=host),), reason=wanted.reason,
                parallel=wanted.parallel, fence=wanted.fence,
            )  # fmt: skip
            tx.maintenances.add(its)
            action = f"evacuate_host, fenced by {wanted.fence}"
            tx.audit.append(at=now, actor=actor(), action=action, subject=host, outcome="accepted")
        self.advance()
        return self.get(its.id)

    def choose(self, tenant: str, name: str, at: float | None) -> Vm:
        """From when on a VM may be stopped for each maintenance that its host has, or gets; None: now.

        :raises NotFound: ``vm.unknown``; :raises InvalidInput: ``maintenance.past``, ``maintenance.too_late``
        :raises Conflict: ``maintenance.none``, ``maintenance.decided``"""
        now = self.clock.now()
        with self.store.begin() as tx:
            vm = known_vm(tx, tenant, name)
            due = _planned_for(tx, vm)
            if at is not None and at < now:
                raise InvalidInput("maintenance.past", "that is over", hint="name a moment in the future, or --now")
            latest = min(its.starts_at for its in due) + self.hand_back_s
            if at is not None and at > latest:
                hint = f"{show_moment(latest)} is the latest; the operators of the site can cancel it"
                raise InvalidInput("maintenance.too_late", "the host is needed before", hint=hint)
            for its in due:
                tx.maintenances.put(replace(its, chosen={**its.chosen, vm.id: now if at is None else at}))
            action = f"choose_maintenance {'now' if at is None else show_moment(at)}"
            tx.audit.append(at=now, actor=actor(), action=action, subject=vm.full_name, outcome="accepted")
        self.advance()
        with self.store.read() as tx:
            return tx.vms.find_id(vm.id) or vm

    def pause(self, name: str = NEWEST) -> Maintenance:
        """Nothing more begins until :meth:`resume`. :raises Conflict: ``maintenance.over``, ``maintenance.none_such``
        :raises InvalidInput: ``maintenance.ambiguous``"""
        return self._change(name, "pause", paused)

    def resume(self, name: str = NEWEST) -> Maintenance:
        """Also after a halt: the failures so far are forgiven. :raises Conflict: ``maintenance.over``,
        ``maintenance.none_such``; :raises InvalidInput: ``maintenance.ambiguous``"""
        return self._change(name, "resume", resumed)

    def cancel(self, name: str = NEWEST) -> Maintenance:
        """What has begun ends, hosts that wait stay as they are.

        :raises Conflict: ``maintenance.over``; ``maintenance.empty``: a host that answers is uncordoned to serve again;
            ``maintenance.evacuates``, ``maintenance.none_such``; :raises InvalidInput: ``maintenance.ambiguous``"""
        with self.store.read() as tx:
            lost = frozenset(host.name for host in tx.hosts.list() if host.state in LOST)
        return self._change(name, "cancel", lambda its: _cancelled(its, lost))

    def _change(self, name: str, to: Change, change: Callable[[Maintenance], Maintenance]) -> Maintenance:
        now = self.clock.now()
        with self.store.begin() as tx:
            maintenance = maintenance_to(tx, to, name)
            if is_over(maintenance):
                raise Conflict(
                    "maintenance.over",
                    f"{maintenance.title} has ended: {maintenance.state}",
                    hint="'vgpuctl maintenance list' shows those that go on",
                )
            tx.maintenances.put(settled(change(maintenance), now))
            tx.audit.append(
                at=now, actor=actor(), action=f"{to}_maintenance", subject=maintenance.title, outcome="accepted"
            )
        self.advance()
        return self.get(maintenance.id)


def _cancelled(maintenance: Maintenance, lost: Collection[str]) -> Maintenance:
    """``lost``: hosts that cannot serve again, so that they may be evacuated."""
    for turn in maintenance.hosts:
        if maintenance.act == "evacuate" and turn.phase in UNDER_WAY:
            hint = (
                f"once it is back 'vgpuctl host uncordon {turn.host}' ends it; 'vgpuctl host forget {turn.host}' before"
            )
            raise Conflict(
                "maintenance.evacuates", f"an evacuation goes on until host {turn.host} is back or given up", hint=hint
            )  # fmt: skip
        if turn.phase == "empty" and turn.host not in lost:
            hint = f"'vgpuctl host uncordon {turn.host}' ends it"
            raise Conflict("maintenance.empty", f"host {turn.host} is empty, and somebody may be at it", hint=hint)
    return cancelled(maintenance)


def _check_no_other(tx: Transaction, host: str) -> None:
    """A defragmentation leaves off by itself what a host is emptied of."""
    for other in tx.maintenances.active():
        if other.act == "defragment":
            continue
        turn = next((turn for turn in other.hosts if turn.host == host and turn.phase not in ENDED), None)
        begins = other.act in _BEGUN_BY_DRAIN and other.state not in OVER
        if turn is not None and (turn.phase in UNDER_WAY or begins):
            ends = f"; 'vgpuctl maintenance cancel {other.id}' ends it" if other.act in _BEGUN_BY_DRAIN else ""
            raise Conflict(
                "host.busy",
                f"{other.title} is under way on host {host}, or declared",
                hint=f"'vgpuctl maintenance show {other.id}' tells how far it is{ends}",
            )


def end_drain(tx: Transaction, host: Host) -> None:
    """Somebody has the host serve again.

    :raises Conflict: ``host.busy``: another maintenance is under way there; ``host.not_healthy``"""
    under_way = turn_on(tx.maintenances.active(), host.name)
    if under_way is not None and under_way[1].phase == "empty":
        _serve_again(tx, host, *under_way)
    elif under_way is not None:
        its = under_way[0]
        ends = {
            **dict.fromkeys(_BEGUN_BY_DRAIN, f"'vgpuctl maintenance cancel {its.id}' ends it"),
            "evacuate": f"it goes on until the host is back; 'vgpuctl host forget {host.name}' gives it up",
        }.get(its.act, "it is uncordoned then")
        raise Conflict(
            "host.busy",
            f"{its.title} is under way on host {host.name}",
            hint=f"{ends}; 'vgpuctl maintenance show {its.id}' tells how far it is",
        )


def _serve_again(tx: Transaction, host: Host, drain: Maintenance, turn: HostTurn) -> None:
    """:raises Conflict: ``host.not_healthy``: what was seen of it last is not what it should be"""
    wrong = [item.finding for item in tx.findings.list(host=host.name) if item.finding.severity == "error"]
    if host.state != "ready" or wrong:
        what = f"{wrong[0].subject}: {wrong[0].observed}" if wrong else host.state_reason or host.state
        hint = f"mend it and try again; 'vgpuctl doctor --host {host.name}' observes it and lists what is wrong"
        raise Conflict("host.not_healthy", f"host {host.name} cannot serve yet: {what}", hint=hint)
    if drain.act == "evacuate" and turn.vms:
        hint = f"'vgpuctl maintenance show {drain.id}' tells how far it is"
        raise Conflict("host.not_healthy", f"host {host.name} has not given up VMs that run elsewhere", hint=hint)
    tx.maintenances.put(drain.put(replace(turn, phase="refilling", outcome="done", tries=())))


def _planned_for(tx: Transaction, vm: Vm) -> list[Maintenance]:
    """Those that its user may put off. :raises Conflict: ``maintenance.none``, ``maintenance.decided``"""
    active = [its for its in by_beginning(tx.maintenances.active()) if its.state not in OVER]
    due = [
        its
        for its in active
        if any(move.vm == vm.id and move.state == "waiting" for move in its.moves)
        or (
            its.act != "defragment"
            and its.concerns(vm)
            and any(turn.host == vm.host and turn.phase in TO_STOP for turn in its.hosts)
        )
    ]
    if not due or vm.state in AT_REST:
        hint = f"'vgpuctl show-vm {vm.spec.name} --tenant {vm.spec.tenant}' tells of one when it is declared"
        raise Conflict("maintenance.none", f"no maintenance will stop VM {vm.spec.name}", hint=hint)
    if next((its for its in due if turn_on((its,), vm.host) is not None), due[0]).policy == "stop":
        hint = "ask the operators of the site"
        raise Conflict("maintenance.decided", "an operator has said when, over all policies", hint=hint)
    return [its for its in due if its.policy != "stop"]


@dataclass(frozen=True, kw_only=True)
class MaintenanceNow:
    """A maintenance at one moment. Both by name of host."""

    waits: Mapping[str, AwaitedTenants]
    progress: Mapping[str, str]
    """Within its phase, of those that are under way."""
    rebooting: frozenset[str]
    """Those that are swapped and wait for their reboot."""
    at: float


def seen_now(tx: Transaction, maintenance: Maintenance, now: float) -> MaintenanceNow:
    """Of the maintenance as it is stored, or as it is planned."""
    steps = {host.host: _step(tx, host) for host in maintenance.hosts}
    progress = ((host.host, _progress(tx, maintenance, host, steps[host.host])) for host in maintenance.hosts)
    return MaintenanceNow(
        waits=waits_of(tx, maintenance, now),
        progress={host: text for host, text in progress if text is not None},
        rebooting=frozenset(host for host, step in steps.items() if step and step.message.startswith(REBOOTING)),
        at=now,
    )


def _step(tx: Transaction, one: HostTurn) -> StepRecord | None:
    """Of the swap, the one that is under way."""
    if one.phase != "swapping" or one.swap is None:
        return None
    try:
        steps = tx.operations.get(one.swap).operation.steps
    except NotFound:  # it ended long ago, and the maintenance will judge by what the host shows
        return None
    return next((step for step in steps if step.state in {"running", "undoing"}), None)


def _progress(tx: Transaction, maintenance: Maintenance, one: HostTurn, now: StepRecord | None) -> str | None:
    if now is not None:
        back = "taken back: " if now.state == "undoing" else ""
        return back + ": ".join(dict.fromkeys(filter(None, [now.title, now.message])))
    if one.phase == "moving":
        moves = [move for move in maintenance.moves if move.source == one.host]
        return f"{sum(move.state == 'done' for move in moves)} of {len(moves)} VMs have moved"
    if maintenance.policy == "move" and one.phase == "emptying":
        return _still_there(tx, maintenance, one)
    if one.phase not in {"emptying", "refilling"} or not one.vms:
        return None
    vms = [vm for vm in tx.vms.list(host=one.host) if vm.id in one.vms and vm.wanted == "running"]
    wanted: VmState = "stopped" if one.phase == "emptying" else "running"
    ended = sum(vm.state == wanted for vm in vms)
    return f"{ended} of {len(vms)} VMs " + ("are stopped" if one.phase == "emptying" else "run again")


def _still_there(tx: Transaction, maintenance: Maintenance, one: HostTurn) -> str:
    """Of a host or a GPU that VMs move away from: how each of them stands."""
    its = (vm for vm in tx.vms.list(host=one.host) if maintenance.concerns(vm))
    vms = sorted(its, key=lambda vm: (vm.state == "stopped", vm.full_name))
    more = f" and {len(vms) - _SHOWN} more" if len(vms) > _SHOWN else ""
    named = ", ".join(f"{vm.full_name} is {vm.state}{_worked_on(tx, vm)}" for vm in vms[:_SHOWN])
    return f"{show_count(len(vms), 'VM')} on it: {named}{more}" if vms else "no VM on it"


def _worked_on(tx: Transaction, vm: Vm) -> str:
    """What keeps it there: it may wait for a host that does not come back, and is abandoned then."""
    operation = None if vm.state == "moving" else running_operation(tx, vm)
    return "" if operation is None else f" (operation {operation} works on it)"
