# SPDX-License-Identifier: Apache-2.0
"""When all VMs of a host may be stopped together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import InvalidInput
from orchestrator.core.maintenance.leaving import (
    DailyWindow,
    open_together_at,
    parse_leave,
    parse_window,
    show_tenants,
    wait_of,
)

DAY_S, HOUR_S = 86400.0, 3600.0
WINDOWS = st.builds(DailyWindow, st.integers(0, 1439), st.integers(0, 1439)).filter(
    lambda one: one.begin_min != one.end_min
)


@pytest.mark.parametrize("text", ["", "now", "22:00", "22:00-22:00", "24:00-01:00", "stop ", "wait,stop", "9" * 400])
def test_what_is_no_way_to_leave_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_leave(text)
    assert caught.value.code == "policy.invalid"
    assert "stop, wait" in str(caught.value.hint)


@given(st.lists(WINDOWS, max_size=4), st.floats(0, 3 * DAY_S, allow_nan=False))
def test_windows_open_together_at_the_first_minute_that_all_of_them_have(
    windows: list[DailyWindow], now: float
) -> None:
    minutes = (now, *(float((now // 60 + after) * 60) for after in range(1, 1441)))
    first = next((at for at in minutes if all(one.is_open(at) for one in windows)), None)
    assert open_together_at(windows, now) == first


def test_a_window_over_midnight_and_one_after_it_meet_after_midnight() -> None:
    night, morning = parse_window("22:00-05:00"), parse_window("04:00-09:00")
    assert open_together_at([night, morning], 23 * HOUR_S) == DAY_S + 4 * HOUR_S
    assert open_together_at([night, morning], 4.5 * HOUR_S) == 4.5 * HOUR_S
    assert open_together_at([parse_window("22:00-04:00"), morning], 0.0) is None


def test_a_host_whose_tenants_say_nothing_waits_for_nobody() -> None:
    assert wait_of({"red": 3}, {}, None, 0.0) is None
    assert wait_of({"red": 0}, {"red": "wait"}, None, 0.0) is None, "its VMs are at rest"
    assert wait_of({"red": 3}, {}, parse_window("22:00-05:00"), 12 * HOUR_S) is None, "that is the upgrade's own"


def test_it_waits_for_those_whose_users_stop_their_vms_and_not_for_the_others() -> None:
    wait = wait_of({"red": 3, "blue": 1}, {"blue": "wait"}, None, 0.0)
    assert wait is not None
    assert [(one.tenant, one.vms, one.policy, one.opens_at) for one in wait.tenants] == [("blue", 1, "wait", None)]
    assert (wait.opens_at, wait.no_common_window) == (None, False)


def test_no_vm_is_stopped_in_one_window_while_another_is_closed() -> None:
    policies = {"red": "22:00-02:00", "blue": "01:00-06:00"}
    wait = wait_of({"red": 1, "blue": 1}, policies, None, 22 * HOUR_S)
    assert wait is not None
    assert [(one.tenant, one.opens_at) for one in wait.tenants] == [("blue", DAY_S + HOUR_S), ("red", None)]
    assert wait.opens_at == DAY_S + HOUR_S
    assert wait_of({"red": 1, "blue": 1}, policies, None, DAY_S + HOUR_S) is None


@pytest.mark.parametrize("upgrade", [None, "09:00-10:00"])
def test_windows_that_have_no_minute_in_common_are_apart(upgrade: str | None) -> None:
    others = {} if upgrade else {"blue": "04:00-06:00"}
    window = None if upgrade is None else parse_window(upgrade)
    wait = wait_of({"red": 1, "blue": 1}, {"red": "22:00-02:00", **others}, window, 23 * HOUR_S)
    assert wait is not None
    assert (wait.no_common_window, wait.opens_at) == (True, None)
    assert "red (22:00-02:00)" in show_tenants(wait.tenants)
