# SPDX-License-Identifier: Apache-2.0
"""Bodies about rolling upgrades of drivers."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import (
    AnswerBody,
    CopiedAnswer,
    Moment,
    Name,
    RequestBody,
    moment,
    moment_or_none,
)
from orchestrator.core.drivers.daily_window import parse_window
from orchestrator.core.drivers.upgrade import DriverUpgrade, HostPhase, HostUpgrade, Policy, Reboot, UpgradeState, waves
from orchestrator.services.drivers.upgrade_progress import UpgradeNow
from orchestrator.services.drivers.upgrades import WantedUpgrade

_OUT_AT_ONCE = "Hosts that are out at once, at most"
_FIRST = "Hosts that go first; the others only when these are done"
_WINDOW = "Part of each day in which hosts are taken out, in UTC: 22:00-05:00"
_APART = "these windows have no minute in common"
_MAY_FAIL = "Hosts that may fail; at the next one it halts"

_POLICY = "VMs stop and start again: tenant: as policies say; stop: now; wait: by users, on cordoned hosts"


_REBOOT = "if-needed: a host reboots when its driver's module stays in use, or a newer kernel waits; never: it is not"


class StartUpgradeBody(RequestBody):
    """Which hosts get which driver, and how many at a time."""

    model_config = ConfigDict(
        title="StartDriverUpgrade", json_schema_extra={"examples": [{"version": "580.95.02", "max_unavailable": 2}]}
    )

    version: str = Field(max_length=40, description="Of the host driver; its bundle must be there")
    hosts: tuple[Name, ...] = Field(default=(), max_length=100_000, description="Empty: all", strict=False)
    policy: Policy = Field(default="tenant", description=_POLICY)
    max_unavailable: int = Field(default=2, description=_OUT_AT_ONCE)
    canary: int = Field(default=1, description=_FIRST)
    failure_budget: int = Field(default=1, description=_MAY_FAIL)
    window: str | None = Field(default=None, max_length=40, description=f"{_WINDOW}; without it at any time")
    reboot: Reboot = Field(default="if-needed", description=_REBOOT)
    dry_run: bool = Field(default=False, description="Begin nothing")

    def to_request(self) -> WantedUpgrade:
        return WantedUpgrade(
            version=self.version,
            hosts=self.hosts,
            policy=self.policy,
            max_unavailable=self.max_unavailable,
            canary=self.canary,
            failure_budget=self.failure_budget,
            reboot=self.reboot,
            window=None if self.window is None else parse_window(self.window),
        )


class AwaitedTenantAnswer(CopiedAnswer):
    """A tenant for whose VMs a host waits."""

    tenant: str
    vms: int = Field(description="That are not stopped")
    policy: str = Field(description="wait: its users stop them; 22:00-05:00: they are stopped in that part of each day")
    opens_at: Moment | None = Field(description="When its window opens next; null: it is open, or there is none")


class HostUpgradeAnswer(AnswerBody):
    """How far one host is."""

    host: str
    phase: HostPhase = Field(description="What is done with it now")
    vms: int = Field(description="VMs that ran there and run again afterwards")
    operation: str | None = Field(description="Swaps its driver")
    progress: str | None = Field(description="How far it is in its phase, while it is under way")
    why: str = Field(description="What went wrong, or what it waits for")
    waits_for: tuple[AwaitedTenantAnswer, ...] = Field(description="Tenants that keep it from being taken out")
    opens_at: datetime | None = Field(description="When their windows are open together next; null: not waited for")
    began_at: datetime | None = Field(description="When its turn came; null: it waits")
    ended_at: datetime | None = Field(description="When it was done, failed or given up; null: it goes on")

    @classmethod
    def of(cls, one: HostUpgrade, now: UpgradeNow) -> HostUpgradeAnswer:
        wait = now.waits.get(one.host)
        return cls(
            host=one.host,
            phase="rebooting" if one.host in now.rebooting else one.phase,
            vms=len(one.vms),
            operation=one.swap,
            progress=now.progress.get(one.host),
            why=_APART if wait is not None and wait.apart else one.why,
            waits_for=() if wait is None else tuple(map(AwaitedTenantAnswer.of, wait.tenants)),
            opens_at=None if wait is None else moment_or_none(wait.opens_at),
            began_at=moment_or_none(one.began_at),
            ended_at=moment_or_none(one.ended_at),
        )


class DriverUpgradeAnswer(AnswerBody):
    """An upgrade and all of its hosts."""

    id: str
    version: str
    state: UpgradeState
    policy: Policy = Field(description=_POLICY)
    overridden: tuple[str, ...] = Field(description="Tenants whose own policies it does not follow")
    max_unavailable: int = Field(description=_OUT_AT_ONCE)
    canary: int = Field(description=_FIRST)
    failure_budget: int = Field(description=_MAY_FAIL)
    reboot: Reboot = Field(description=_REBOOT)
    window: str | None = Field(description=f"{_WINDOW}; null: at any time")
    opens_at: datetime | None = Field(description="When its window opens next; null: it is open, or there is none")
    created_at: datetime
    ended_at: datetime | None = Field(description="When it was done, failed or given up; null: it goes on")
    hosts: tuple[HostUpgradeAnswer, ...] = Field(description="Each that was asked for")
    waves: tuple[tuple[str, ...], ...] = Field(description="Those that wait, if all took the same time")

    @classmethod
    def of(cls, upgrade: DriverUpgrade, now: UpgradeNow) -> DriverUpgradeAnswer:
        window = upgrade.window
        return cls(
            id=upgrade.id,
            version=upgrade.version,
            state=upgrade.state,
            policy=upgrade.policy,
            overridden=upgrade.overridden,
            max_unavailable=upgrade.max_unavailable,
            canary=upgrade.canary,
            failure_budget=upgrade.failure_budget,
            reboot=upgrade.reboot,
            window=None if window is None else str(window),
            opens_at=None if window is None else moment_or_none(window.opens_at(now.at)),
            created_at=moment(upgrade.created_at),
            ended_at=moment_or_none(upgrade.ended_at),
            hosts=tuple(HostUpgradeAnswer.of(one, now) for one in upgrade.hosts),
            waves=waves(upgrade),
        )
