# SPDX-License-Identifier: Apache-2.0
"""Bodies about rolling upgrades of drivers."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, Name, RequestBody, moment, moment_or_none
from orchestrator.core.daily_window import parse_window
from orchestrator.core.driver_upgrade import DriverUpgrade, HostPhase, HostUpgrade, Policy, UpgradeState, waves
from orchestrator.services.driver_upgrades import WantedUpgrade

_OUT_AT_ONCE = "Hosts that are out at once, at most"
_FIRST = "Hosts that go first; the others only when these are done"
_WINDOW = "Part of each day in which hosts are taken out, in UTC: 22:00-05:00"
_MAY_FAIL = "Hosts that may fail; at the next one it halts"


class StartUpgradeBody(RequestBody):
    """Which hosts get which driver, and how many at a time."""

    model_config = ConfigDict(
        title="StartDriverUpgrade", json_schema_extra={"examples": [{"version": "580.95.02", "max_unavailable": 2}]}
    )

    version: str = Field(max_length=40, description="Of the host driver; its bundle must be there")
    hosts: tuple[Name, ...] = Field(default=(), max_length=100_000, description="Empty: all", strict=False)
    policy: Policy = Field(default="stop", description="stop: VMs are stopped and started again; wait: until none runs")
    max_unavailable: int = Field(default=2, description=_OUT_AT_ONCE)
    canary: int = Field(default=1, description=_FIRST)
    failure_budget: int = Field(default=1, description=_MAY_FAIL)
    window: str | None = Field(default=None, max_length=40, description=f"{_WINDOW}; without it at any time")
    dry_run: bool = Field(default=False, description="Begin nothing")

    def to_request(self) -> WantedUpgrade:
        return WantedUpgrade(
            version=self.version,
            hosts=self.hosts,
            policy=self.policy,
            max_unavailable=self.max_unavailable,
            canary=self.canary,
            failure_budget=self.failure_budget,
            window=None if self.window is None else parse_window(self.window),
        )


class HostUpgradeAnswer(AnswerBody):
    """How far one host is."""

    host: str
    phase: HostPhase = Field(description="What is done with it now")
    vms: int = Field(description="VMs that ran there and run again afterwards")
    operation: str | None = Field(description="Swaps its driver")
    why: str = Field(description="What went wrong, or what it waits for")
    began_at: datetime | None = Field(description="When its turn came; null: it waits")
    ended_at: datetime | None = Field(description="When it was done, failed or given up; null: it goes on")

    @classmethod
    def of(cls, one: HostUpgrade) -> HostUpgradeAnswer:
        return cls(
            host=one.host,
            phase=one.phase,
            vms=len(one.vms),
            operation=one.swap,
            why=one.why,
            began_at=moment_or_none(one.began_at),
            ended_at=moment_or_none(one.ended_at),
        )


class DriverUpgradeAnswer(AnswerBody):
    """An upgrade and all of its hosts."""

    id: str
    version: str
    state: UpgradeState
    policy: Policy
    max_unavailable: int = Field(description=_OUT_AT_ONCE)
    canary: int = Field(description=_FIRST)
    failure_budget: int = Field(description=_MAY_FAIL)
    window: str | None = Field(description=f"{_WINDOW}; null: at any time")
    opens_at: datetime | None = Field(description="When its window opens next; null: it is open, or there is none")
    created_at: datetime
    ended_at: datetime | None = Field(description="When it was done, failed or given up; null: it goes on")
    hosts: tuple[HostUpgradeAnswer, ...] = Field(description="Each that was asked for")
    waves: tuple[tuple[str, ...], ...] = Field(description="Those that wait, if all took the same time")

    @classmethod
    def of(cls, upgrade: DriverUpgrade, now: float) -> DriverUpgradeAnswer:
        window = upgrade.window
        return cls(
            id=upgrade.id,
            version=upgrade.version,
            state=upgrade.state,
            policy=upgrade.policy,
            max_unavailable=upgrade.max_unavailable,
            canary=upgrade.canary,
            failure_budget=upgrade.failure_budget,
            window=None if window is None else str(window),
            opens_at=None if window is None else moment_or_none(window.opens_at(now)),
            created_at=moment(upgrade.created_at),
            ended_at=moment_or_none(upgrade.ended_at),
            hosts=tuple(map(HostUpgradeAnswer.of, upgrade.hosts)),
            waves=waves(upgrade),
        )
