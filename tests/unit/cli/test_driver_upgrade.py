# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.cli.commands.driver_upgrade import details
from tests.fakes.typed import Cli

UPGRADE = {
    "version": "580.95.02", "state": "running", "hosts": [], "max_unavailable": 2, "canary": 1, "failure_budget": 1,
    "policy": "stop", "window": "22:00-05:00", "opens_at": None,
}  # fmt: skip


@pytest.mark.parametrize("window", ["22:00", "25:00-05:00", "22:00-22:00", ""])
def test_a_window_that_is_no_part_of_a_day_is_one_line(cli: Cli, window: str) -> None:
    refused = cli("driver", "upgrade", "--to", "580.95.02", "--window", window)
    assert (refused.code, refused.out) == (2, "")
    assert "[upgrade.window_invalid]" in refused.err
    assert "22:00-05:00" in refused.err


def test_a_window_is_shown_with_when_it_opens() -> None:
    assert any("22:00-05:00 UTC each day, open now" in line for line in details(UPGRADE))
    closed = details({**UPGRADE, "opens_at": "2026-11-23T22:00:00Z"})
    assert any("22:00-05:00 UTC each day, opens 2026-11-23" in line for line in closed)
    assert not any("window" in line for line in details({**UPGRADE, "window": None}))
