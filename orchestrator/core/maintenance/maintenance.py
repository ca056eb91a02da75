# SPDX-License-Identifier: Apache-2.0
"""A declared maintenance: what is done to which hosts, how far each is, and which may begin now. Pure.

A host is *out* from the moment it is cordoned until its VMs run again, and for as long as it could not be brought back
and nobody has looked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Literal

from orchestrator.core.errors import InvalidInput
from orchestrator.core.maintenance.leaving import CHOSEN, STOP, WAIT, DailyWindow
from orchestrator.core.vms.vm import Vm

Act = Literal["upgrade", "drain", "reboot", "evacuate", "defragment"]
"""What is done to the hosts: ``upgrade``: they get another driver; ``drain``: they are emptied for whatever a person
does to them, until that person has them serve again; ``reboot``: they are emptied, reboot and serve again;
``evacuate``: they are dead, and VMs whose disks others reach start there; ``defragment``: some of their VMs move to
other hosts, so that GPUs get empty, and they serve on."""

Fence = Literal["hand", "agent"]
"""Who says that a dead host does nothing any more: a person, or a fence agent that has switched its power off."""

MaintenanceState = Literal["running", "paused", "halted", "cancelled", "done"]
"""``halted``: more hosts have failed than were allowed. ``cancelled``: nothing more begins; what had begun has ended or
still ends."""

HostPhase = Literal[
    "waiting", "moving", "emptying", "empty", "swapping", "rebooting", "refilling", "done", "rolled_back", "failed",
    "kept",
]  # fmt: skip
"""``moving``: some of its VMs move away, and it serves on. ``empty``: drained, and nothing runs there until somebody
uncordons it. ``rebooting``: it is told so while a swap waits for its host's reboot; ``swapping`` is stored.
``rolled_back``: the old driver is there again, and so are its VMs. ``failed``: a person must look. ``kept``: its VMs
could not leave, so it was not touched."""

Reboot = Literal["never", "if-needed"]
"""Whether a host may be rebooted where its driver cannot be swapped otherwise."""

Policy = Literal["tenant", "stop", "wait", "move"]
"""How VMs leave: as each tenant's policy says; all stopped now and started again; all waited for until nobody runs
them; each moved to another host, those that run when their tenants' policies let them be stopped."""
UpgradePolicy = Literal["tenant", "stop", "wait"]
DrainPolicy = Literal["move", "stop", "wait"]

UNDER_WAY: Final[frozenset[HostPhase]] = frozenset(
    {"moving", "emptying", "empty", "swapping", "rebooting", "refilling"}
)
MOVING: Final[frozenset[HostPhase]] = frozenset({"emptying", "empty"})
"""VMs may go to other hosts; from one that is ``empty`` when it is dead, and they had no place before."""
BAD: Final[frozenset[HostPhase]] = frozenset({"rolled_back", "failed", "kept"})
ENDED: Final[frozenset[HostPhase]] = BAD | {"done"}
MAX_TRIES: Final = 3
"""So often a VM is stopped, or started again, before its host counts as one where that fails."""
REBOOTING: Final = "rebooting"
"""Begins what a swap says of itself while it waits for its host's reboot."""
MAX_LENGTH_S: Final = 366 * 86400
MAX_REASON: Final = 200
_MAX_NAMED: Final = 8
"""VMs that stay, and why each does."""
_TITLES: Final[Mapping[Act, str]] = {
    "drain": "the drain",
    "reboot": "the reboot",
    "evacuate": "the evacuation",
    "defragment": "the defragmentation",
}
OVER: Final[frozenset[MaintenanceState]] = frozenset({"cancelled", "done"})


@dataclass(frozen=True, kw_only=True)
class Planned:
    """When it is meant to be, and why, as whoever declares it says."""

    at: float | None = None
    """When it begins; None: now."""
    length_s: int | None = None
    """How long it takes; None: nothing is said."""
    reason: str = ""
    """Why; tenants are told."""

    def begin(self, now: float) -> float:
        """:raises InvalidInput: ``maintenance.past``"""
        if self.at is not None and self.at < now:
            raise InvalidInput("maintenance.past", "it would have begun already", hint="name a moment in the future")
        return now if self.at is None else self.at

    def end(self, now: float) -> float | None:
        return None if self.length_s is None else self.begin(now) + self.length_s


NOW: Final = Planned()
"""At once, with nothing said."""


@dataclass(frozen=True, kw_only=True)
class HostTurn:
    """One host of it."""

    host: str
    """Name of the host."""
    phase: HostPhase = "waiting"
    """What is done with it now."""
    outcome: HostPhase | None = None
    """While it is refilled: what it ends as."""
    vms: tuple[str, ...] = ()
    """Ids of the VMs that ran there. Those that are still wanted running then run again afterwards. Of an evacuation:
    those that were started elsewhere, and that the host has not given up."""
    tries: tuple[str, ...] = ()
    """Ids of VMs, one for each operation that was begun for them in the phase that it is in."""
    refused: tuple[str, ...] = ()
    """Ids of VMs that were to move, and had no place elsewhere when that was asked last."""
    stays: Mapping[str, str] = field(default_factory=dict)
    """Of VMs that were refused last: by id, who and why, for people."""
    swap: str | None = None
    """The operation that swaps its driver, reboots it, switches its power off, or has it give up what was evacuated."""
    why: str = ""
    seen: bool = False
    """It failed, and a person has let the others go on: it counts no more."""
    began_at: float | None = None
    """When its turn came; None: it waits."""
    ended_at: float | None = None
    """When it was done, failed or given up; None: it goes on."""


MoveState = Literal["waiting", "moving", "done", "failed", "left", "gone"]
"""``left``: it was not begun: it would free no GPU any more, another maintenance had its host, or this one was
cancelled; ``gone``: the VM was deleted, or is elsewhere by another way."""


@dataclass(frozen=True, kw_only=True)
class DefragmentMove:
    """One VM that moves so that the GPU that it leaves gets empty."""

    vm: str
    """Id of the VM."""
    name: str
    """``tenant/name`` of the VM."""
    source: str
    """Name of the host that it leaves."""
    leaves: str
    """PCI address of the GPU that it leaves, as all others do that are on it."""
    target: str
    """Name of the host that it goes to."""
    gpu: str
    """PCI address of the GPU that it gets."""
    state: MoveState = "waiting"
    """How far it is."""
    operation: str | None = None
    """That moves it; None: it has not begun."""
    why: str = ""
    """Of one that failed or was not begun."""


@dataclass(frozen=True, kw_only=True)
class FitGain:
    """How many more VMs of one profile fit, as ``capacity`` counts them."""

    profile: str
    """Offering, vGPU type, MIG profile or gpu:N."""
    now: int
    """When it was planned."""
    planned: int
    """After all moves, if nothing else changes."""
    measured: int | None = None
    """When the last move had ended; None: not yet."""


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    """All of it."""

    id: str
    """Stays the same for ever."""
    act: Act
    """What is done to the hosts."""
    version: str | None = None
    """Of the driver that they get; None: they keep theirs."""
    policy: Policy
    """VMs stop and start again: tenant: as policies say; stop: now; wait: by users, on cordoned hosts."""
    max_unavailable: int
    """Hosts that are out at once, at most."""
    canary: int
    """Hosts that go first; the others only when these are done."""
    failure_budget: int
    """So many hosts may fail; at the next one it halts."""
    created_at: float
    """When it was declared."""
    hosts: tuple[HostTurn, ...]
    """Each that was asked for."""
    state: MaintenanceState = "running"
    """Where it stands."""
    ended_at: float | None = None
    """When it was done, failed or given up; None: it goes on."""
    window: DailyWindow | None = None
    """When hosts may be taken out; None: at any time."""
    reboot: Reboot = "never"
    """``if-needed``: a host reboots when its driver's module stays in use, or a newer kernel waits; ``never``: it
    is not, as of an upgrade that was stored before there was a choice."""
    overridden: tuple[str, ...] = ()
    """Tenants whose VMs are stopped at other times than their own policies say, by name."""
    starts_at: float = 0.0
    """No host is taken out before."""
    ends_by: float | None = None
    """When it is planned to be over; None: nothing was said."""
    reason: str = ""
    """Why, as whoever declared it tells the tenants."""
    parallel: int = 4
    """So many VMs of a host move at once."""
    max_bytes_per_s: int | None = None
    """Of each VM that moves; None: as fast as it goes."""
    chosen: Mapping[str, float] = field(default_factory=dict)
    """By id of VM, from when on it may be stopped, as its user has said, whatever the policy of its tenant says."""
    fence: Fence | None = None
    """Of an evacuation."""
    overran: bool = False
    """It was not over when it should have been."""
    moves: tuple[DefragmentMove, ...] = ()
    """Of a defragmentation."""
    gains: tuple[FitGain, ...] = ()
    """Of the same, for profiles of which more or fewer fit then."""
    cold: bool = False
    """Of the same: VMs that may not move while they run are shut down for it, where their tenants let them be."""
    gpu: str | None = None
    """PCI address of the one GPU that is emptied, on a host that serves on; None: hosts are meant whole."""

    @property
    def serves_on(self) -> bool:
        """Its hosts do, and are neither cordoned nor emptied."""
        return self.act == "defragment" or self.gpu is not None

    def concerns(self, vm: Vm) -> bool:
        """Whether the VM, which has a place on one of its hosts, has to leave it."""
        return self.gpu is None or vm.has_place_on(self.gpu)

    @property
    def title(self) -> str:
        """What it is called in messages."""
        if self.gpu is not None:
            return "the drain of a GPU"
        return f"the driver upgrade to {self.version}" if self.act == "upgrade" else _TITLES[self.act]

    def is_open(self, now: float) -> bool:
        """Whether a host may be taken out now, by its beginning and the time of day."""
        return now >= self.starts_at and (self.window is None or self.window.is_open(now))

    def opens_at(self, now: float) -> float | None:
        """When a host may be taken out next; None: now."""
        begin = max(now, self.starts_at)
        opens = begin if self.window is None else self.window.opens_at(begin) or begin
        return opens if opens > now else None

    def host(self, name: str) -> HostTurn:
        return next(host for host in self.hosts if host.host == name)

    def put(self, changed: HostTurn) -> Maintenance:
        """With that host so."""
        return replace(self, hosts=tuple(changed if host.host == changed.host else host for host in self.hosts))


def leave_of(maintenance: Maintenance, vm: str, tenant: str, policies: Mapping[str, str]) -> str:
    """Who says when the VM with that id may be stopped for it: ``stop``: an operator has; ``chosen``: its user, by
    :attr:`Maintenance.chosen`; else ``wait`` or a window, as tenants' policies have them."""
    if maintenance.policy == "stop":
        return STOP
    if vm in maintenance.chosen:
        return CHOSEN
    return WAIT if maintenance.policy == "wait" else policies.get(tenant, STOP)


def turn_on(maintenances: Iterable[Maintenance], host: str) -> tuple[Maintenance, HostTurn] | None:
    """The one that is under way on that host. Where the host serves on none is, and others may begin."""
    others = (maintenance for maintenance in maintenances if not maintenance.serves_on)
    turns = ((maintenance, turn) for maintenance in others for turn in maintenance.hosts)
    return next(((its, turn) for its, turn in turns if turn.host == host and turn.phase in UNDER_WAY), None)


def by_beginning(maintenances: Iterable[Maintenance]) -> list[Maintenance]:
    """The one that is planned to begin first comes first."""
    return sorted(maintenances, key=lambda its: (its.starts_at, its.created_at))


def held_vms(maintenances: Iterable[Maintenance], host: str) -> frozenset[str]:
    """Ids of the VMs of that host that are stopped for maintenance now, or are to be, or start again. What is wanted of
    them is still what their users said last."""
    under_way = turn_on(maintenances, host)
    return frozenset() if under_way is None else frozenset(under_way[1].vms)


def is_out(one: HostTurn) -> bool:
    """It serves nobody, or not as it should, because of it."""
    return one.phase in UNDER_WAY or (one.phase == "failed" and not one.seen)


def failures(maintenance: Maintenance) -> int:
    """That count against the budget."""
    return sum(host.phase in BAD and not host.seen for host in maintenance.hosts)


def begin_next(
    maintenance: Maintenance, unavailable: Collection[str] = (), occupied: Collection[str] = ()
) -> tuple[str, ...]:
    """Hosts that may begin now, in order. ``unavailable``: hosts that are away, whatever for; those of them that
    wait are left out until they are back. ``occupied``: hosts whose VMs may not be stopped now; others go first, but
    none before a canary."""
    if maintenance.state != "running" or must_halt(maintenance):
        return ()
    canaries = maintenance.hosts[: maintenance.canary]
    if any(host.phase == "waiting" or host.phase in UNDER_WAY for host in canaries):
        candidates: Sequence[HostTurn] = canaries
    else:
        candidates = maintenance.hosts
    ours = {host.host for host in maintenance.hosts if is_out(host)}
    free = maintenance.max_unavailable - len(ours | set(unavailable))
    kept = {*unavailable, *occupied}
    waiting = [host.host for host in candidates if host.phase == "waiting" and host.host not in kept]
    return tuple(waiting[: max(free, 0)])


def must_halt(maintenance: Maintenance) -> bool:
    """More have failed than may, or a canary, or so many are out for good that no other may begin."""
    canary_failed = any(host.phase in BAD and not host.seen for host in maintenance.hosts[: maintenance.canary])
    lost = sum(host.phase == "failed" and not host.seen for host in maintenance.hosts)
    return failures(maintenance) > maintenance.failure_budget or canary_failed or lost >= maintenance.max_unavailable


def settled(maintenance: Maintenance, now: float) -> Maintenance:
    """With the state that its hosts give it."""
    under_way = any(host.phase in UNDER_WAY for host in maintenance.hosts)
    late = maintenance.ends_by is not None and now > maintenance.ends_by and not is_over(maintenance)
    maintenance = replace(maintenance, overran=maintenance.overran or late)
    if all(host.phase in ENDED for host in maintenance.hosts):
        state = maintenance.state if maintenance.state in OVER else "done"
        return replace(maintenance, state=state, ended_at=maintenance.ended_at or now)
    if maintenance.state == "cancelled" and not under_way and maintenance.ended_at is None:
        return replace(maintenance, ended_at=now)
    if maintenance.state == "running" and must_halt(maintenance):
        return replace(maintenance, state="halted")
    return maintenance


def paused(maintenance: Maintenance) -> Maintenance:
    """What has begun ends, nothing more begins."""
    return replace(maintenance, state="paused") if maintenance.state == "running" else maintenance


def after_restore(maintenance: Maintenance) -> Maintenance:
    """Nothing goes on by itself. How far the hosts got that it was working on, the backup does not know, nor what is
    wanted of their VMs now: a person looks at each."""
    why = "the database was restored: what became of its driver and its VMs is as the host shows it"
    left = (replace(host, phase="failed", outcome=None, tries=(), seen=True, why=why) for host in maintenance.hosts)
    hosts = (ended if host.phase in UNDER_WAY else host for host, ended in zip(maintenance.hosts, left, strict=True))
    return paused(replace(maintenance, hosts=tuple(hosts)))


def resumed(maintenance: Maintenance) -> Maintenance:
    """After a halt the failures so far have been seen: the budget counts from here."""
    if maintenance.state == "halted":
        hosts = tuple(replace(host, seen=host.seen or host.phase in BAD) for host in maintenance.hosts)
        return replace(maintenance, state="running", hosts=hosts)
    return replace(maintenance, state="running") if maintenance.state == "paused" else maintenance


def cancelled(maintenance: Maintenance) -> Maintenance:
    """Hosts that wait are left as they are, and so are VMs of a defragmentation that have not begun to move."""
    if maintenance.state in OVER:
        return maintenance
    moves = (
        replace(move, state="left", why="it was cancelled before") if move.state == "waiting" else move
        for move in maintenance.moves
    )
    return replace(maintenance, state="cancelled", moves=tuple(moves))


def is_over(maintenance: Maintenance) -> bool:
    """Nothing of it is under way and nothing of it will begin."""
    return maintenance.state in OVER and not any(host.phase in UNDER_WAY for host in maintenance.hosts)


def why_of(blocked: str, stays: Collection[str]) -> str:
    """What a host that is being emptied waits for: ``blocked`` says who is not tried, ``stays`` who was refused."""
    more = len(stays) - _MAX_NAMED
    return "; ".join(filter(None, [blocked, *islice(stays, _MAX_NAMED), f"and {more} more stay" if more > 0 else ""]))


def waves(maintenance: Maintenance) -> tuple[tuple[str, ...], ...]:
    """In which steps it would go if all hosts took the same time."""
    names = [host.host for host in maintenance.hosts if host.phase == "waiting"]
    canaries, rest = names[: maintenance.canary], names[maintenance.canary :]
    size = maintenance.max_unavailable
    return tuple(tuple(part[at : at + size]) for part in (canaries, rest) for at in range(0, len(part), size))
