# SPDX-License-Identifier: Apache-2.0
"""A rolling upgrade of drivers: how far each host is, and which may begin now. Pure.

A host is *out* from the moment it is cordoned until its VMs run again, and for as long as it could not be brought back
and nobody has looked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from orchestrator.core.drivers.leaving import DailyWindow

UpgradeState = Literal["running", "paused", "halted", "aborted", "done"]
"""``halted``: more hosts have failed than were allowed. ``aborted``: nothing more begins; what had begun has ended or
still ends."""

HostPhase = Literal[
    "waiting", "emptying", "swapping", "rebooting", "refilling", "done", "rolled_back", "failed", "kept"
]
"""``rebooting``: it is told so while a swap waits for its host's reboot; ``swapping`` is stored. ``rolled_back``: the
old driver is there again, and so are its VMs. ``failed``: a person must look. ``kept``: its VMs could not leave, so it
was not touched."""

Reboot = Literal["never", "if-needed"]
"""Whether a host may be rebooted where its driver cannot be swapped otherwise."""

Policy = Literal["tenant", "stop", "wait"]
"""How VMs leave: as each tenant's policy says; all stopped now and started again; all waited for until nobody runs
them."""

UNDER_WAY: Final[frozenset[HostPhase]] = frozenset({"emptying", "swapping", "rebooting", "refilling"})
BAD: Final[frozenset[HostPhase]] = frozenset({"rolled_back", "failed", "kept"})
ENDED: Final[frozenset[HostPhase]] = BAD | {"done"}
MAX_TRIES: Final = 3
"""So often a VM is stopped, or started again, before its host counts as one where that fails."""
REBOOTING: Final = "rebooting"
"""Begins what a swap says of itself while it waits for its host's reboot."""
OVER: Final[frozenset[UpgradeState]] = frozenset({"aborted", "done"})


@dataclass(frozen=True, kw_only=True)
class HostUpgrade:
    """One host of an upgrade."""

    host: str
    """Name of the host."""
    phase: HostPhase = "waiting"
    """What is done with it now."""
    outcome: HostPhase | None = None
    """While it is refilled: what it ends as."""
    vms: tuple[str, ...] = ()
    """Ids of the VMs that ran there. Those that are still wanted running then run again afterwards."""
    tries: tuple[str, ...] = ()
    """Ids of VMs, one for each operation that was begun for them in the phase that it is in."""
    swap: str | None = None
    """The operation that swaps its driver."""
    why: str = ""
    seen: bool = False
    """It failed, and a person has let the others go on: it counts no more."""
    began_at: float | None = None
    """When its turn came; None: it waits."""
    ended_at: float | None = None
    """When it was done, failed or given up; None: it goes on."""


@dataclass(frozen=True, kw_only=True)
class DriverUpgrade:
    """All of it."""

    id: str
    """Stays the same for ever."""
    version: str
    """Its version."""
    policy: Policy
    """VMs stop and start again: tenant: as policies say; stop: now; wait: by users, on cordoned hosts."""
    max_unavailable: int
    """Hosts that are out at once, at most."""
    canary: int
    """Hosts that go first; the others only when these are done."""
    failure_budget: int
    """So many hosts may fail; at the next one it halts."""
    created_at: float
    """When it was made."""
    hosts: tuple[HostUpgrade, ...]
    """Each that was asked for."""
    state: UpgradeState = "running"
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

    def is_open(self, now: float) -> bool:
        """Whether a host may be taken out now, by the time of day."""
        return self.window is None or self.window.is_open(now)

    def host(self, name: str) -> HostUpgrade:
        return next(host for host in self.hosts if host.host == name)

    def put(self, changed: HostUpgrade) -> DriverUpgrade:
        """With that host so."""
        return replace(self, hosts=tuple(changed if host.host == changed.host else host for host in self.hosts))


def held_vms(upgrade: DriverUpgrade | None, host: str) -> frozenset[str]:
    """Ids of the VMs of that host that are stopped for the upgrade now, or are to be, or start again. What is wanted of
    them is still what their users said last."""
    if upgrade is None:
        return frozenset()
    under_way = (turn for turn in upgrade.hosts if turn.host == host and turn.phase in UNDER_WAY)
    return frozenset(vm for host in under_way for vm in host.vms)


def is_out(one: HostUpgrade) -> bool:
    """It serves nobody, or not as it should, because of the upgrade."""
    return one.phase in UNDER_WAY or (one.phase == "failed" and not one.seen)


def failures(upgrade: DriverUpgrade) -> int:
    """That count against the budget."""
    return sum(host.phase in BAD and not host.seen for host in upgrade.hosts)


def begin_next(
    upgrade: DriverUpgrade, unavailable: Collection[str] = (), occupied: Collection[str] = ()
) -> tuple[str, ...]:
    """Hosts that may begin now, in order. ``unavailable``: hosts that are away, whatever for; those of them that
    wait are left out until they are back. ``occupied``: hosts whose VMs may not be stopped now; others go first, but
    none before a canary."""
    if upgrade.state != "running" or must_halt(upgrade):
        return ()
    canaries = upgrade.hosts[: upgrade.canary]
    if any(host.phase == "waiting" or host.phase in UNDER_WAY for host in canaries):
        candidates: Sequence[HostUpgrade] = canaries
    else:
        candidates = upgrade.hosts
    ours = {host.host for host in upgrade.hosts if is_out(host)}
    free = upgrade.max_unavailable - len(ours | set(unavailable))
    kept = {*unavailable, *occupied}
    waiting = [host.host for host in candidates if host.phase == "waiting" and host.host not in kept]
    return tuple(waiting[: max(free, 0)])


def must_halt(upgrade: DriverUpgrade) -> bool:
    """More have failed than may, or a canary, or so many are out for good that no other may begin."""
    canary_failed = any(host.phase in BAD and not host.seen for host in upgrade.hosts[: upgrade.canary])
    lost = sum(host.phase == "failed" and not host.seen for host in upgrade.hosts)
    return failures(upgrade) > upgrade.failure_budget or canary_failed or lost >= upgrade.max_unavailable


def settled(upgrade: DriverUpgrade, now: float) -> DriverUpgrade:
    """With the state that its hosts give it."""
    under_way = any(host.phase in UNDER_WAY for host in upgrade.hosts)
    if all(host.phase in ENDED for host in upgrade.hosts):
        return upgrade if upgrade.state in OVER else replace(upgrade, state="done", ended_at=now)
    if upgrade.state == "aborted" and not under_way and upgrade.ended_at is None:
        return replace(upgrade, ended_at=now)
    if upgrade.state == "running" and must_halt(upgrade):
        return replace(upgrade, state="halted")
    return upgrade


def paused(upgrade: DriverUpgrade) -> DriverUpgrade:
    """What has begun ends, nothing more begins."""
    return replace(upgrade, state="paused") if upgrade.state == "running" else upgrade


def after_restore(upgrade: DriverUpgrade) -> DriverUpgrade:
    """Nothing goes on by itself. How far the hosts got that it was working on, the backup does not know, nor what is
    wanted of their VMs now: a person looks at each."""
    why = "the database was restored: what became of its driver and its VMs is as the host shows it"
    left = (replace(host, phase="failed", outcome=None, tries=(), seen=True, why=why) for host in upgrade.hosts)
    hosts = (ended if host.phase in UNDER_WAY else host for host, ended in zip(upgrade.hosts, left, strict=True))
    return paused(replace(upgrade, hosts=tuple(hosts)))


def resumed(upgrade: DriverUpgrade) -> DriverUpgrade:
    """After a halt the failures so far have been seen: the budget counts from here."""
    if upgrade.state == "halted":
        hosts = tuple(replace(host, seen=host.seen or host.phase in BAD) for host in upgrade.hosts)
        return replace(upgrade, state="running", hosts=hosts)
    return replace(upgrade, state="running") if upgrade.state == "paused" else upgrade


def aborted(upgrade: DriverUpgrade) -> DriverUpgrade:
    """Hosts that wait are left as they are."""
    return upgrade if upgrade.state in OVER else replace(upgrade, state="aborted")


def is_over(upgrade: DriverUpgrade) -> bool:
    """Nothing of it is under way and nothing of it will begin."""
    return upgrade.state in OVER and not any(host.phase in UNDER_WAY for host in upgrade.hosts)


def waves(upgrade: DriverUpgrade) -> tuple[tuple[str, ...], ...]:
    """In which steps it would go if all hosts took the same time."""
    names = [host.host for host in upgrade.hosts if host.phase == "waiting"]
    canaries, rest = names[: upgrade.canary], names[upgrade.canary :]
    size = upgrade.max_unavailable
    return tuple(tuple(part[at : at + size]) for part in (canaries, rest) for at in range(0, len(part), size))
