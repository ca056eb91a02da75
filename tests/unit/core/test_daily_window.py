# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import InvalidInput
from orchestrator.core.maintenance.leaving import DailyWindow, parse_window

DAY = 86400.0
minutes = st.integers(0, 1439)


def at(hour: int, minute: int = 0, day: int = 20000) -> float:
    return day * DAY + hour * 3600 + minute * 60


@pytest.mark.parametrize(("text", "inside", "outside"), [
    ("22:00-05:00", (at(22), at(23, 59), at(0), at(4, 59)), (at(5), at(12), at(21, 59))),
    ("01:30-02:00", (at(1, 30), at(1, 59)), (at(1, 29), at(2), at(0), at(23))),
])  # fmt: skip
def test_it_is_open_from_the_first_minute_to_before_the_last(
    text: str, inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    window = parse_window(text)
    assert str(window) == text
    assert all(window.is_open(now) for now in inside)
    assert not any(window.is_open(now) for now in outside)


@given(minutes, minutes, st.floats(0, 4e9))
def test_it_opens_within_a_day_and_not_before(begin: int, end: int, now: float) -> None:
    window = DailyWindow(begin, end)
    opens = window.opens_at(now)
    if begin == end:
        return
    assert (opens is None) == window.is_open(now)
    if opens is not None:
        assert now <= opens <= now + DAY
        assert window.is_open(opens)
        assert not window.is_open(opens - 1)


@pytest.mark.parametrize("text", ["", "22:00", "22:00-22:00", "24:00-01:00", "22:00-5:00", "22:60-23:00", "a-b",
                                  "22:00-05:00 ", "22:00-05:00\n", "٢٢:00-05:00"])  # fmt: skip
def test_what_is_no_part_of_a_day_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_window(text)
    assert caught.value.code == "maintenance.window_invalid"
