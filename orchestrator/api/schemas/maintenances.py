# SPDX-License-Identifier: Apache-2.0
"""Bodies about declared maintenances."""

from __future__ import annotations

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer, Moment
from orchestrator.api.schemas.moves import MAX_BANDWIDTH_MIB
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.errors import one_line
from orchestrator.core.maintenance.leaving import AwaitedTenant
from orchestrator.core.maintenance.maintenance import (
    MAX_LENGTH_S,
    MAX_REASON,
    DefragmentMove,
    DrainPolicy,
    Fence,
    FitGain,
    HostPhase,
    HostTurn,
    Maintenance,
    Planned,
    waves,
)
from orchestrator.core.plain_words import LINE_PATTERN
from orchestrator.core.units import MIB
from orchestrator.core.vms.lease import parse_moment
from orchestrator.services.maintenance.defragmenting import MAX_MOVES, DefragmentationPlan, WantedDefragmentation
from orchestrator.services.maintenance.maintenances import MaintenanceNow, WantedDrain, WantedEvacuation

_APART = "these windows have no minute in common"


def planned(at: str | None, length_s: int | None, reason: str) -> Planned:
    """Of a body that declares one. :raises InvalidInput: ``at.invalid``"""
    begin = None if at is None else parse_moment(at, field="at")
    return Planned(at=begin, length_s=length_s, reason=one_line(reason, MAX_REASON))


class DrainHostBody(StrictForm, example={"policy": "move", "reason": "a fan is replaced"}):
    """How a host is emptied, and when."""

    policy: DrainPolicy = "move"
    """move: VMs go to other hosts, running ones when their tenants' policies let them stop; stop: they are stopped and
    start again afterwards; wait: until nobody runs them."""
    parallel: int = Field(default=4, ge=1, le=64)
    """So many VMs move at once."""
    bandwidth_mib: int | None = Field(default=None, ge=1, le=MAX_BANDWIDTH_MIB)
    """MiB a second that each of them takes at most; null: as fast as it goes."""
    at: str | None = Field(default=None, max_length=40)
    """It is not begun before, like 2026-12-01T10:00Z; null: now."""
    length_s: int | None = Field(default=None, ge=60, le=MAX_LENGTH_S)
    """So many seconds after its beginning it is planned to be over."""
    reason: str = Field(default="", max_length=MAX_REASON, pattern=LINE_PATTERN)
    """Why; tenants with VMs there are told."""

    def to_request(self) -> WantedDrain:
        when = planned(self.at, self.length_s, self.reason)
        limit = None if self.bandwidth_mib is None else self.bandwidth_mib * MIB
        return WantedDrain(policy=self.policy, parallel=self.parallel, max_bytes_per_s=limit, when=when)


class EmptyGpuBody(StrictForm, example={"reason": "it is reset"}):
    """How a GPU is emptied: its VMs move to other hosts, running ones shut down for it when their tenants' policies let
    them be."""

    parallel: int = Field(default=4, ge=1, le=64)
    """So many VMs move at once."""
    bandwidth_mib: int | None = Field(default=None, ge=1, le=MAX_BANDWIDTH_MIB)
    """MiB a second that each of them takes at most; null: as fast as it goes."""
    reason: str = Field(default="", max_length=MAX_REASON, pattern=LINE_PATTERN)
    """Why; tenants with VMs there are told."""

    def to_request(self) -> WantedDrain:
        limit = None if self.bandwidth_mib is None else self.bandwidth_mib * MIB
        when = planned(None, None, self.reason)
        return WantedDrain(parallel=self.parallel, max_bytes_per_s=limit, when=when)


class EvacuateHostBody(StrictForm, example={"confirm": "gpu-7", "fence": "agent"}):
    """That a host is dead, and who says so."""

    confirm: str = Field(max_length=63)
    """The host's name once more."""
    fence: Fence
    """hand: whoever asks has switched it off; agent: its fence agent does."""
    parallel: int = Field(default=4, ge=1, le=64)
    """So many VMs start at once."""
    reason: str = Field(default="", max_length=MAX_REASON, pattern=LINE_PATTERN)
    """Why; tenants with VMs there are told."""

    def to_request(self) -> WantedEvacuation:
        reason = one_line(self.reason, MAX_REASON)
        return WantedEvacuation(confirm=self.confirm, fence=self.fence, parallel=self.parallel, reason=reason)


class DefragmentBody(StrictForm, example={"max_moves": 8, "reason": "room for whole GPUs"}):
    """How many VMs may move so that GPUs get empty, how, and when."""

    max_moves: int = Field(default=MAX_MOVES, ge=1, le=256)
    """No more VMs move."""
    parallel: int = Field(default=2, ge=1, le=64)
    """So many move at once."""
    bandwidth_mib: int | None = Field(default=None, ge=1, le=MAX_BANDWIDTH_MIB)
    """MiB a second that each of them takes at most; null: as fast as it goes."""
    cold: bool = False
    """VMs that may not move while they run are shut down for it, where their tenants' policies let them be stopped."""
    at: str | None = Field(default=None, max_length=40)
    """It is not begun before, like 2026-12-01T10:00Z; null: now."""
    length_s: int | None = Field(default=None, ge=60, le=MAX_LENGTH_S)
    """So many seconds after its beginning it is planned to be over."""
    reason: str = Field(default="", max_length=MAX_REASON, pattern=LINE_PATTERN)
    """Why; tenants whose VMs move are told."""

    def to_request(self) -> WantedDefragmentation:
        return WantedDefragmentation(
            max_moves=self.max_moves,
            parallel=self.parallel,
            max_bytes_per_s=None if self.bandwidth_mib is None else self.bandwidth_mib * MIB,
            cold=self.cold,
            when=planned(self.at, self.length_s, self.reason),
        )


class DefragmentMoveAnswer(CopiedAnswer, copies=DefragmentMove):
    """One VM that moves so that a GPU gets empty."""


class FitGainAnswer(CopiedAnswer, copies=FitGain):
    """How many more VMs of one profile fit."""


class DefragmentationAnswer(CopiedAnswer, copies=DefragmentationPlan):
    """What a defragmentation would do now."""

    moves: tuple[DefragmentMoveAnswer, ...]
    gains: tuple[FitGainAnswer, ...]
    """Of profiles of which more or fewer fit then."""


_NOT_LISTED = {
    "moves", "gains", "cold",
    "policy", "max_unavailable", "canary", "failure_budget", "window", "reboot", "overridden", "parallel",
    "max_bytes_per_s", "fence",
}  # fmt: skip


class MaintenanceCountsAnswer(AnswerBody, copies=Maintenance, without=_NOT_LISTED):
    """A maintenance, without its hosts."""

    title: str
    """What it is called."""
    created_at: Moment
    starts_at: Moment
    ends_by: Moment | None
    ended_at: Moment | None
    hosts: int
    """How many it is for."""
    done: int
    """Hosts where it is done."""

    @classmethod
    def of(cls, maintenance: Maintenance) -> MaintenanceCountsAnswer:
        done = sum(turn.phase == "done" for turn in maintenance.hosts)
        return cls.copied(maintenance, title=maintenance.title, hosts=len(maintenance.hosts), done=done)


class AwaitedTenantAnswer(CopiedAnswer, copies=AwaitedTenant):
    """A tenant for whose VMs a host waits."""

    opens_at: Moment | None


class HostTurnAnswer(AnswerBody):
    """How far one host is."""

    copied_from = (HostTurn,)

    host: str
    phase: HostPhase
    vms: int
    """VMs that ran there and run again afterwards."""
    operation: str | None
    """Swaps its driver, reboots it, switches its power off, or has it give up VMs that run elsewhere."""
    progress: str | None
    """How far it is in its phase, while it is under way."""
    why: str
    """What went wrong, or what it waits for."""
    waits_for: tuple[AwaitedTenantAnswer, ...]
    """Tenants that keep it from being taken out."""
    opens_at: Moment | None
    """When their windows are open together next; null: not waited for."""
    began_at: Moment | None
    ended_at: Moment | None

    @classmethod
    def of(cls, one: HostTurn, now: MaintenanceNow) -> HostTurnAnswer:
        wait = now.waits.get(one.host)
        return cls.copied(
            one,
            phase="rebooting" if one.host in now.rebooting else one.phase,
            vms=len(one.vms),
            operation=one.swap,
            progress=now.progress.get(one.host),
            why=_APART if wait is not None and wait.no_common_window else one.why,
            waits_for=() if wait is None else wait.tenants,
            opens_at=None if wait is None else wait.opens_at,
        )


class MaintenanceAnswer(AnswerBody, copies=Maintenance):
    """A maintenance and all of its hosts."""

    title: str
    """What it is called."""
    window: str | None
    """Part of each day in which hosts are taken out, in UTC: 22:00-05:00; null: at any time."""
    opens_at: Moment | None
    """When hosts may be taken out next; null: now."""
    created_at: Moment
    starts_at: Moment
    ends_by: Moment | None
    ended_at: Moment | None
    hosts: tuple[HostTurnAnswer, ...]
    moves: tuple[DefragmentMoveAnswer, ...]
    gains: tuple[FitGainAnswer, ...]
    waves: tuple[tuple[str, ...], ...]
    """Those that wait, if all took the same time."""

    @classmethod
    def of(cls, maintenance: Maintenance, now: MaintenanceNow) -> MaintenanceAnswer:
        window = maintenance.window
        return cls.copied(
            maintenance,
            title=maintenance.title,
            window=None if window is None else str(window),
            opens_at=maintenance.opens_at(now.at),
            hosts=tuple(HostTurnAnswer.of(host, now) for host in maintenance.hosts),
            waves=waves(maintenance),
        )
