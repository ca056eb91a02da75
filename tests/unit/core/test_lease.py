# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import InvalidInput, QuotaExceeded, VgpuctlError
from orchestrator.core.units import parse_duration
from orchestrator.core.vms.lease import (
    DAY_S,
    PolicyValue,
    TenantPolicy,
    WantedEnd,
    changed_policy,
    extended_lease_end,
    new_lease_end,
    parse_moment,
    show_moment,
    show_span,
    warning_s,
)

NOW = 1_800_000_000.0
HOUR = 3600
ANY = TenantPolicy()
STRICT = TenantPolicy(default_lease_s=8 * HOUR, max_lease_s=DAY_S)


@pytest.mark.parametrize(
    ("policy", "wanted", "end"),
    [
        (ANY, WantedEnd(), None),
        (ANY, WantedEnd(after_s=HOUR), NOW + HOUR),
        (ANY, WantedEnd(at=NOW + 5), NOW + 5),
        (STRICT, WantedEnd(), NOW + 8 * HOUR),
        (STRICT, WantedEnd(after_s=DAY_S), NOW + DAY_S),
        (TenantPolicy(max_lease_s=HOUR), WantedEnd(), NOW + HOUR),
        (TenantPolicy(default_lease_s=DAY_S, max_lease_s=HOUR), WantedEnd(), NOW + HOUR),
    ],
)
def test_a_new_lease_ends_as_asked_or_as_the_policy_says(
    policy: TenantPolicy, wanted: WantedEnd, end: float | None
) -> None:
    assert new_lease_end(policy, wanted, NOW) == end


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (WantedEnd(after_s=1, at=NOW + 1), "lease.invalid"),
        (WantedEnd(at=NOW), "lease.past"),
        (WantedEnd(at=NOW + 20 * 366 * DAY_S), "lease.invalid"),
        (WantedEnd(after_s=DAY_S + 1), "lease.too_long"),
    ],
)
def test_an_end_that_cannot_be_is_refused(wanted: WantedEnd, code: str) -> None:
    with pytest.raises(VgpuctlError) as new:
        new_lease_end(STRICT, wanted, NOW)
    with pytest.raises(VgpuctlError) as extended:
        extended_lease_end(STRICT, wanted, NOW, NOW - 1)
    assert new.value.code == extended.value.code == code
    assert isinstance(new.value, QuotaExceeded) == (code == "lease.too_long")


def test_an_extension_only_makes_a_lease_longer_and_the_same_again_changes_nothing() -> None:
    longer = extended_lease_end(ANY, WantedEnd(at=NOW + 10), NOW, NOW + 5)
    assert longer == extended_lease_end(ANY, WantedEnd(at=NOW + 10), NOW, longer)
    for old in (None, NOW + 11):
        with pytest.raises(InvalidInput) as raised:
            extended_lease_end(ANY, WantedEnd(at=NOW + 10), NOW, old)
        assert raised.value.code == "lease.shorter"
    with pytest.raises(InvalidInput):
        extended_lease_end(ANY, WantedEnd(), NOW, NOW + 5)
    with pytest.raises(InvalidInput, match=r"^the lease has no end$"):
        extended_lease_end(ANY, WantedEnd(at=NOW + 10), NOW, None)


@given(st.integers(min_value=1, max_value=10**9))
def test_the_warning_comes_between_a_quarter_of_an_hour_and_a_day_before_the_end(length: int) -> None:
    assert 900 <= warning_s(NOW, NOW + length) <= DAY_S


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-12-01T10:00Z", 1796119200),
        ("2026-12-01T11:00:00+01:00", 1796119200),
        ("2026-12-01T10:00:30z", 1796119230),
    ],
)
def test_a_moment_is_read_with_its_offset(text: str, seconds: int) -> None:
    assert parse_moment(text, field="until") == seconds


@given(st.integers(min_value=0, max_value=4_000_000_000))
def test_a_moment_that_is_shown_can_be_typed_back(seconds: int) -> None:
    assert parse_moment(show_moment(seconds), field="until") == seconds


@given(st.integers(min_value=1, max_value=9_999_999))
def test_a_span_that_is_shown_can_be_typed_back(seconds: int) -> None:
    assert parse_duration(show_span(seconds), field="lease", at_most_s=10**9) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45m", 2700), ("8H", 28800), ("90 min", 5400), ("1hour", 3600), ("2hrs", 7200), ("1day", 86400),
        ("3 days", 259200), ("2w", 1209600), ("1 Week", 604800), ("1y", 31536000), ("30secs", 30),
    ],
)  # fmt: skip
def test_a_duration_is_read_as_people_type_it(text: str, seconds: int) -> None:
    assert parse_duration(text, field="lease", at_most_s=10**9) == seconds


@pytest.mark.parametrize("text", ["", "1", "0d", "1.5h", "1M", "1month", "-1h", "h", "1  h", "1\u017f", "1h\n"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_duration(text, field="lease", at_most_s=10**9)
    assert raised.value.code == "lease.invalid"


def test_a_duration_without_its_unit_gets_it_from_the_hint() -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_duration("8", field="lease", at_most_s=10**9)
    assert raised.value.hint == "say the unit: 8m, 8h or 8d"


@pytest.mark.parametrize("text", ["", "Z", "tomorrow", "2026-12-01", "2026-12-01T10:00"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_moment(text, field="until")
    assert raised.value.code == "until.invalid"


@given(st.text(max_size=40))
def test_no_text_makes_reading_a_moment_fail_otherwise(text: str) -> None:
    with suppress(InvalidInput):
        parse_moment(text, field="until")


def test_a_policy_changes_in_what_is_named() -> None:
    changed = changed_policy(STRICT, {"max_lease_s": None, "disk_grace_s": 0, "max_priority": "high"})
    assert changed == TenantPolicy(
        default_lease_s=8 * HOUR, max_lease_s=None, disk_grace_s=0, max_priority="high", preempt=False
    )


@pytest.mark.parametrize(
    "values",
    [
        {"disk_grace_s": None},
        {"max_lease_s": 5},
        {"default_lease_s": 10**12},
        {"max_priority": "highest"},
        {"max_priority": None},
        {"preempt": None},
        {"preempt": "perhaps"},
    ],
)
def test_a_policy_outside_its_bounds_is_refused(values: dict[str, PolicyValue]) -> None:
    with pytest.raises(InvalidInput) as raised:
        changed_policy(ANY, values)
    assert raised.value.code == "policy.invalid"
