# SPDX-License-Identifier: Apache-2.0
"""For whom a maintenance waits, and which VMs it will stop: core/maintenance/leaving, of what the database says."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.core.hosts.host import Host
from orchestrator.core.maintenance.leaving import (
    CHOSEN,
    STOP,
    WAIT,
    AwaitedTenant,
    AwaitedTenants,
    open_together_at,
    parse_leave,
    wait_of,
)
from orchestrator.core.maintenance.maintenance import (
    OVER,
    UNDER_WAY,
    Act,
    HostPhase,
    HostTurn,
    Maintenance,
    Policy,
    by_beginning,
    held_vms,
    leave_of,
    turn_on,
)
from orchestrator.core.vms.vm import Vm
from orchestrator.store.transaction import Transaction

AT_REST: Final = frozenset({"stopped", "lost", "failed"})
"""States of VMs that need not be stopped."""
TO_STOP: Final[frozenset[HostPhase]] = frozenset({"waiting", "emptying"})
"""VMs of such hosts are stopped yet."""
_NOT_ENDED: Final[frozenset[HostPhase]] = UNDER_WAY | {"waiting"}


def waits_of(tx: Transaction, maintenance: Maintenance, now: float) -> dict[str, AwaitedTenants]:
    """By name, the hosts that are not taken out, or do not get empty, because of their tenants."""
    if maintenance.policy == "stop" or maintenance.state in OVER:
        return {}
    gate = maintenance.policy == "tenant"  # before a host is taken out; else while it is emptied
    hosts = {turn.host for turn in maintenance.hosts if turn.phase == ("waiting" if gate else "emptying")}
    policies, chosen = tx.policies.maintenance(), list[Vm]()
    counts, words = defaultdict[str, Counter[str]](Counter), dict[str, str]()
    for vm in _who_may_wait(tx, maintenance, policies, hosts):
        word = leave_of(maintenance, vm.id, vm.spec.tenant, policies)
        if vm.host not in hosts or vm.state in AT_REST:
            continue
        if word == CHOSEN:
            chosen.append(vm)
        else:
            counts[vm.host][vm.spec.tenant] += 1
            words[vm.spec.tenant] = word
    window = maintenance.window if gate else None
    by_policy = {host: wait_of(vms, words, window, now) for host, vms in counts.items()}
    waits = {host: wait for host, wait in by_policy.items() if wait is not None}
    for vm in chosen:
        if (at := maintenance.chosen[vm.id]) > now:
            before = waits.get(vm.host, AwaitedTenants(tenants=()))
            awaited = AwaitedTenant(tenant=vm.spec.tenant, vms=1, policy=CHOSEN, opens_at=at)
            opens_at = max(at, before.opens_at or at)
            waits[vm.host] = replace(before, tenants=(*before.tenants, awaited), opens_at=opens_at)
    return waits


def _who_may_wait(
    tx: Transaction, maintenance: Maintenance, policies: Mapping[str, str], hosts: Iterable[str]
) -> Iterable[Vm]:
    """Each once. Of many waiting hosts not all VMs are read: most tenants let theirs be stopped."""
    if maintenance.policy != "tenant":
        return (vm for host in hosts for vm in tx.vms.list(host=host) if maintenance.concerns(vm))
    vms = {vm.id: vm for tenant in policies for vm in tx.vms.list(tenant=tenant)}
    return (vms | {vm.id: vm for name in maintenance.chosen if (vm := tx.vms.find_id(name))}).values()


def may_be_stopped(tx: Transaction, maintenance: Maintenance, vm: Vm, now: float) -> bool:
    """Now, as its user has chosen, else by its tenant's policy."""
    word = leave_of(maintenance, vm.id, vm.spec.tenant, tx.policies.maintenance())
    window = None if word == CHOSEN else parse_leave(word)
    return word in {STOP, CHOSEN} or (window is not None and window.is_open(now))


def is_emptied(tx: Transaction, host: str) -> bool:
    """Whether VMs are being stopped there for maintenance, or none is to run; not where it waits until their users stop
    them."""
    under_way = turn_on(tx.maintenances.active(), host)
    if under_way is None:
        return False
    maintenance, turn = under_way
    return turn.phase == "empty" or (turn.phase == "emptying" and maintenance.policy != "wait")


def gets_driver(tx: Transaction, host: Host) -> bool:
    """Whether no VM is started there: it gets a driver, or is being emptied."""
    return host.state == "provisioning" or (host.cordoned and is_emptied(tx, host.name))


def is_held(tx: Transaction, vm: Vm) -> bool:
    """Whether a maintenance stops it, or has, and starts it again if that is wanted then."""
    return vm.id in held_vms(tx.maintenances.active(), vm.host)


def overridden_by(tx: Transaction, hosts: Iterable[str], policy: Policy) -> tuple[str, ...]:
    """Tenants with VMs there that are stopped although their own policies say something else, by name."""
    names, policies = frozenset(hosts), tx.policies.maintenance() if policy == "stop" else {}
    return tuple(
        sorted(
            tenant
            for tenant in policies
            if any(vm.host in names and vm.state not in AT_REST for vm in tx.vms.list(tenant=tenant))
        )
    )


@dataclass(frozen=True, kw_only=True)
class PlannedMaintenance:
    """Of a VM whose host has, or gets, maintenance: the VM will be stopped, and started again."""

    id: str
    """Of the maintenance."""
    act: Act
    """What is done to its host."""
    reason: str
    """Why, as whoever declared it says."""
    policy: str
    """``stop``: in its host's turn; ``22:00-05:00``: then, UTC; ``wait``: when its users stop it;
    ``chosen``: from when on its user has said; ``live``: it is not stopped, and moves while it runs."""
    moves: bool
    """It goes to another host, if one has a place for it."""
    opens_at: float | None
    """When it may be stopped at the earliest; None: when the turn of its host comes, or when its user stops it."""
    began_at: float | None
    """When its host's turn came; None: it has not come."""
    ends_by: float | None
    """When it is planned to be over; None: nothing was said."""


class PlannedMaintenances:
    """Of all VMs at one moment. Nothing is read of hosts or VMs."""

    def __init__(self, tx: Transaction, now: float) -> None:
        self._now, self._on = now, dict[str, tuple[Maintenance, HostTurn]]()
        self._moves = dict[str, tuple[Maintenance, HostTurn]]()
        """By id, VMs of a defragmentation."""
        self._of_gpus = dict[tuple[str, str], tuple[Maintenance, HostTurn]]()
        for maintenance in by_beginning(tx.maintenances.active()):
            if maintenance.act == "defragment":
                to_move = (move for move in maintenance.moves if move.state in {"waiting", "moving"})
                self._moves |= {move.vm: (maintenance, maintenance.host(move.source)) for move in to_move}
                continue
            phases = UNDER_WAY if maintenance.state in OVER else _NOT_ENDED
            for turn in maintenance.hosts:
                if maintenance.gpu is not None and turn.phase in phases:
                    self._of_gpus[turn.host, maintenance.gpu] = (maintenance, turn)
                elif turn.phase in phases and (turn.phase in UNDER_WAY or turn.host not in self._on):
                    self._on[turn.host] = (maintenance, turn)
        self._policies = tx.policies.maintenance() if self._on or self._moves or self._of_gpus else {}

    def of(self, vm: Vm) -> PlannedMaintenance | None:
        """None: it is not stopped for maintenance. One that is stopped already has it until it starts again."""
        of_gpu = (its for key, its in self._of_gpus.items() if key[0] == vm.host and its[0].concerns(vm))
        maintenance, turn = self._on.get(vm.host, self._moves.get(vm.id, next(of_gpu, (None, None))))
        if maintenance is None or turn is None:
            return None
        if maintenance.act == "defragment" and vm.state not in AT_REST:
            return self._of_move(maintenance, turn, vm)
        if vm.state == "stopped" and vm.wanted == "running" and vm.id in turn.vms:
            return self._planned(maintenance, turn, STOP, None)
        if turn.phase not in TO_STOP or vm.state in AT_REST:
            return None
        policy = leave_of(maintenance, vm.id, vm.spec.tenant, self._policies)
        if policy == CHOSEN:
            opens: float | None = max(maintenance.chosen[vm.id], maintenance.starts_at)
        else:
            windows = [window for window in (parse_leave(policy), maintenance.window) if window is not None]
            opens = open_together_at(windows, max(self._now, maintenance.starts_at))
        later = policy != WAIT and opens is not None and opens > self._now
        return self._planned(maintenance, turn, policy, opens if later else None)

    def _of_move(self, its: Maintenance, turn: HostTurn, vm: Vm) -> PlannedMaintenance:
        """It goes when its user has chosen; while it runs, but where somebody said otherwise and its tenant lets it be
        stopped."""
        policy = leave_of(its, vm.id, vm.spec.tenant, self._policies)
        begins = max(its.chosen.get(vm.id, its.starts_at), its.starts_at)
        return self._planned(
            its, turn, policy if its.cold and policy != WAIT else "live", begins if begins > self._now else None
        )

    def _planned(self, its: Maintenance, turn: HostTurn, policy: str, opens_at: float | None) -> PlannedMaintenance:
        return PlannedMaintenance(
            id=its.id, act=its.act, reason=its.reason, policy=policy, moves=its.policy == "move",
            opens_at=opens_at, began_at=turn.began_at, ends_by=its.ends_by,
        )  # fmt: skip
