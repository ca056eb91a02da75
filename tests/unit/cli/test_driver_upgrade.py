# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.cli.commands.maintenance import details
from tests.fakes.typed import Cli

UPGRADE = {
    "act": "upgrade", "id": "u1", "title": "the driver upgrade to 580.95.02", "reason": "", "overran": False,
    "ended_at": None, "starts_at": "2026-11-23T12:00:00Z", "ends_by": None,
    "version": "580.95.02", "state": "running", "hosts": [], "max_unavailable": 2, "canary": 1, "failure_budget": 1,
    "policy": "stop", "overridden": [], "window": "22:00-05:00", "opens_at": None,
    "reboot": "if-needed", "gpu": None,
}  # fmt: skip


@pytest.mark.parametrize("window", ["22:00", "25:00-05:00", "22:00-22:00", ""])
def test_a_window_that_is_no_part_of_a_day_is_one_line(cli: Cli, window: str) -> None:
    refused = cli("driver", "upgrade", "--to", "580.95.02", "--window", window)
    assert (refused.code, refused.out) == (2, "")
    assert "[maintenance.window_invalid]" in refused.err
    assert "22:00-05:00" in refused.err


@pytest.mark.parametrize("hosts", ["", ",", "gpu-1,"])
def test_hosts_that_a_variable_left_empty_are_not_all_hosts(cli: Cli, hosts: str) -> None:
    refused = cli("driver", "upgrade", "--to", "580.95.02", "--hosts", hosts)
    assert (refused.code, refused.out) == (2, "")
    assert "[host.name_invalid]" in refused.err


def test_a_window_is_shown_with_when_it_opens() -> None:
    assert any("22:00-05:00 UTC each day, open now" in line for line in details(UPGRADE))
    closed = details({**UPGRADE, "opens_at": "2026-11-23T22:00:00Z"})
    assert any("22:00-05:00 UTC each day, opens 2026-11-23" in line for line in closed)
    assert not any("window" in line for line in details({**UPGRADE, "window": None}))


def test_whether_hosts_may_reboot_is_shown() -> None:
    assert any("reboots" in line and "cannot be swapped otherwise" in line for line in details(UPGRADE))
    assert any(line.split() == ["reboots", "none"] for line in details({**UPGRADE, "reboot": "never"}))


def waiting(host: str, *tenants: tuple[str, str, str | None], opens_at: str | None = None, why: str = "") -> object:
    waits = [{"tenant": name, "vms": 2, "policy": policy, "opens_at": opens} for name, policy, opens in tenants]
    return {
        "host": host, "phase": "waiting", "vms": 0, "operation": None, "progress": None, "why": why, "waits_for": waits,
        "opens_at": opens_at, "began_at": None, "ended_at": None,
    }  # fmt: skip


def test_hosts_that_wait_for_tenants_are_shown_with_whom_and_until_when() -> None:
    opens = "2026-11-23T22:00:00Z"
    hosts = [
        waiting("gpu-1", ("red", "22:00-05:00", opens), opens_at=opens),
        waiting("gpu-2", ("blue", "wait", None), ("red", "22:00-05:00", None)),
        waiting("gpu-3", ("red", "22:00-05:00", opens), ("sea", "21:00-23:00", None), opens_at=opens),
        waiting("gpu-4"),
    ]
    shown = " ".join(" ".join(details({**UPGRADE, "hosts": hosts})).split())
    assert "waits for VMs: 2 of red (22:00-05:00 UTC, opens 2026-11-23" in shown
    assert "2 of blue (until their users stop them), 2 of red (22:00-05:00 UTC, open now)" in shown
    assert "all windows are open from 2026-11-23" in shown
    assert "gpu-4 waiting" in shown, "its turn has not come"


def test_an_upgrade_that_follows_no_policy_says_whose() -> None:
    shown = " ".join(details({**UPGRADE, "overridden": ["blue", "red"]}))
    assert "VMs of blue, red are stopped at any time: their policies say something else" in shown
