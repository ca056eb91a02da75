# SPDX-License-Identifier: Apache-2.0
"""When backups are due by a policy, and which of them it keeps: as restic itself would."""

from __future__ import annotations

import json
import os
import random
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.maintenance.leaving import parse_window
from orchestrator.core.vms.backup import Backup
from orchestrator.core.vms.backup_policy import BackupPolicy, due_at, expired, is_due
from orchestrator.core.vms.lease import DAY_S

HOUR = 3600
MONDAY = 1_796_601_600.0
"""2026-12-07 00:00 UTC."""
DAILY = BackupPolicy(tenant="default", name="nightly", target="nas", created_at=MONDAY)


def backup(at: float) -> Backup:
    return Backup(
        id=f"{at:.0f}", target="nas", tenant="default", vm="vm", vm_name="train", host="t4", size_bytes=1, created_at=at
    )


def removed(policy: BackupPolicy, moments: list[float]) -> list[float]:
    return [each.created_at for each in expired(policy, map(backup, moments))]


def test_the_last_of_each_day_week_and_month_stays_and_the_newest_always() -> None:
    days = [MONDAY + day * DAY_S + hour * HOUR for day in range(10) for hour in (1, 13)]
    kept = replace(DAILY, keep_daily=3, keep_weekly=2, keep_monthly=1)
    assert sorted(set(days) - set(removed(kept, days))) == [days[13], days[15], days[17], days[19]]
    assert removed(replace(DAILY, keep_daily=0, keep_weekly=0, keep_monthly=1), days) == days[:-1]
    assert removed(DAILY, [MONDAY]) == []


def test_what_stays_is_what_restic_would_leave(tmp_path: Path) -> None:
    """Of backups at times that are drawn, near and far from each other, under drawn policies."""
    drawn = random.Random(20261130)
    spans = (HOUR, 12 * HOUR, DAY_S, 9 * DAY_S, 40 * DAY_S)
    moments = [MONDAY]
    for _ in range(23):
        moments.append(moments[-1] + drawn.randrange(1, drawn.choice(spans)))
    environment = {**os.environ, "RESTIC_PASSWORD": "x", "TZ": "UTC", "RESTIC_REPOSITORY": str(tmp_path / "repository")}

    def restic(*words: str, given: str = "") -> str:
        argv = ["restic", "--no-cache", *words]
        return subprocess.run(argv, env=environment, input=given, text=True, check=True, capture_output=True).stdout

    def left_by(policy: BackupPolicy) -> set[float]:
        counts = {"daily": policy.keep_daily, "weekly": policy.keep_weekly, "monthly": policy.keep_monthly}
        words = [f"--keep-{name}={count}" for name, count in counts.items()]
        (group,) = json.loads(restic("forget", "--dry-run", "--no-lock", "--json", *words))
        return {datetime.fromisoformat(each["time"]).timestamp() for each in group["keep"]}

    restic("init")
    for moment in moments:
        at = f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S}"
        restic("backup", "--quiet", "--host", "vgpuctl", "--stdin", "--stdin-filename", "disk", "--time", at, given=at)
    for _ in range(12):
        daily, weekly, monthly = (drawn.choice((0, 1, 2, 3, 5, 9)) for _ in range(3))
        policy = replace(DAILY, keep_daily=daily or 1, keep_weekly=weekly, keep_monthly=monthly)
        assert set(moments) - set(removed(policy, moments)) == left_by(policy), policy


def test_each_period_has_one_and_a_missed_one_is_made_up_for_once() -> None:
    first = due_at(DAILY, DAY_S, "vm", None, MONDAY)
    assert MONDAY <= first < MONDAY + HOUR
    after = due_at(DAILY, DAY_S, "vm", first, MONDAY)
    assert after == first + DAY_S, "its own moment of each day"
    late = due_at(DAILY, DAY_S, "vm", after + 5 * HOUR, MONDAY)
    assert late == after + DAY_S
    assert due_at(DAILY, DAY_S, "vm", MONDAY - 9 * DAY_S, MONDAY - 9 * DAY_S) < MONDAY
    assert due_at(DAILY, DAY_S, "vm", MONDAY + 30, MONDAY) > MONDAY + DAY_S - 1, "what was begun late counts as well"


def test_backups_of_many_vms_are_spread() -> None:
    moments = [due_at(DAILY, DAY_S, f"vm{number}", None, MONDAY) for number in range(200)]
    tenths = {int((moment - MONDAY) // (HOUR / 10)) for moment in moments}
    assert tenths == set(range(10))


@pytest.mark.parametrize("window", ["01:00-05:00", "22:30-02:00", "23:00-23:10"])
@pytest.mark.parametrize("every_s", [6 * HOUR, DAY_S, 7 * DAY_S])
def test_they_begin_in_their_hours_and_none_is_left_out(window: str, every_s: int) -> None:
    policy, hours = replace(DAILY, window=window, every_s=every_s), parse_window(window)
    made: list[float] = []
    for minute in range(0, 40 * 24 * 60, 5):
        now = MONDAY + minute * 60
        at = due_at(policy, every_s, "vm", made[-1] if made else None, MONDAY)
        if is_due(policy, at, None, now):
            made.append(now)
    assert all(hours.is_open(moment) for moment in made)
    periods = 40 * DAY_S // max(every_s, DAY_S)
    assert periods - 1 <= len(made) <= periods * max(1, DAY_S // every_s) + 2


def test_a_clock_that_is_set_back_begins_nothing_twice() -> None:
    at: Any = due_at(DAILY, DAY_S, "vm", MONDAY + DAY_S, MONDAY)
    assert not is_due(DAILY, at, None, MONDAY + HOUR)
