# SPDX-License-Identifier: Apache-2.0
"""What is kept of hosts' frames: the last one while it is fresh, five minutes of what is charted, nothing of others."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.readings.frame import HostFrame, Reading, arranged
from orchestrator.services.readings.kept import KEPT_FRAMES, KEPT_S, STALE_S, KeptReadings
from tests.fakes.fake_world import FakeClock
from tests.fakes.frames import gpu_reading, vm_reading

GPU, VM = "GPU-1", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
YEAR_S = 365 * 86400.0
UTILIZATION, CPU = ("gpu_utilization_ratio", ""), ("vm_cpu_seconds_total", "")


def frame(*readings: Reading, taken_at: float) -> HostFrame:
    return HostFrame(taken_at, readings)


def utilization(ratio: float, taken_at: float = 0.0) -> HostFrame:
    return frame(gpu_reading(GPU, {UTILIZATION: ratio}), taken_at=taken_at)


def cpu_seconds(seconds: float, taken_at: float) -> HostFrame:
    return frame(vm_reading(VM, {CPU: seconds}), taken_at=taken_at)


@given(gaps=st.lists(st.floats(0.1, 90.0), min_size=1, max_size=80), later=st.floats(0.0, 400.0))
def test_only_what_was_received_in_time_is_told(gaps: list[float], later: float) -> None:
    clock = FakeClock()
    kept = KeptReadings(clock)
    received = []
    for number, gap in enumerate(gaps):
        clock.sleep(gap)
        received.append((clock.monotonic(), number / 100))
        kept.receive("gpu-1", utilization(number / 100))
    clock.sleep(later)
    now = clock.monotonic()
    last, history = kept.last("gpu-1"), kept.histories("gpu-1").of("gpu", GPU)
    assert (last is not None) == (now - received[-1][0] <= STALE_S)
    expected = [ratio for at, ratio in received[-KEPT_FRAMES:] if now - at <= KEPT_S]
    numbers = [series.numbers for series in history.series]
    assert numbers == ([] if not expected else [tuple(pytest.approx(ratio, abs=1e-6) for ratio in expected)])
    assert len(history.ages_s) == len(expected)
    assert all(older >= newer >= 0 for older, newer in pairwise(history.ages_s))


@pytest.mark.parametrize("ahead_s", [-YEAR_S, 0.0, YEAR_S])
def test_a_wrong_clock_of_a_host_changes_nothing_but_what_is_said_of_it(ahead_s: float) -> None:
    clock = FakeClock()
    kept = KeptReadings(clock)
    kept.receive("gpu-1", utilization(0.5, taken_at=clock.now() + ahead_s))
    last = kept.last("gpu-1")
    assert last is not None
    assert last.age_s == pytest.approx(0, abs=0.1)
    assert last.clock_ahead_s == pytest.approx(ahead_s, abs=0.1)
    clock.sleep(STALE_S + 1)
    assert kept.last("gpu-1") is None


def test_a_counter_is_kept_as_what_it_grew_by_the_second() -> None:
    clock = FakeClock()
    kept = KeptReadings(clock)
    for seconds, taken_at in ((1e9, 1000.0), (1e9 + 20, 1010.0), (1e9 + 25, 1020.0), (3.0, 1030.0), (4.0, 1030.0)):
        clock.sleep(10)
        kept.receive("gpu-1", cpu_seconds(seconds, taken_at))
    (series,) = kept.histories("gpu-1").of("vm", VM).series
    first, *rest = series.numbers
    assert (series.quantity.name, first) == ("vm_cpu_seconds_total", None)
    assert rest == [2.0, 0.5, None, None]  # it began again; the host's clock stood still


def test_a_subject_that_comes_and_goes_has_gaps() -> None:
    clock = FakeClock()
    kept = KeptReadings(clock)
    for present in (True, False, True):
        clock.sleep(10)
        other = [gpu_reading(GPU, {UTILIZATION: 0.25})] if present else []
        kept.receive("gpu-1", frame(gpu_reading("GPU-0", {UTILIZATION: 1.0}), *other, taken_at=0))
    (series,) = kept.histories("gpu-1").of("gpu", GPU).series
    assert series.numbers == (0.25, None, 0.25)
    assert kept.histories("gpu-1").of("gpu", "GPU-2").series == ()
    assert kept.histories("gpu-2").of("gpu", GPU).ages_s == ()


def test_what_is_no_number_is_not_charted() -> None:
    kept = KeptReadings(FakeClock())
    keys, numbers = arranged({UTILIZATION: 0.5})
    numbers[0] = float("nan")
    kept.receive("gpu-1", frame(Reading("gpu", GPU, keys, numbers), taken_at=0))
    assert kept.histories("gpu-1").of("gpu", GPU).series == ()


def test_hosts_that_were_not_heard_for_long_are_forgotten_and_no_others() -> None:
    clock = FakeClock()
    kept = KeptReadings(clock)
    kept.receive("gone", utilization(0.1))
    clock.sleep(KEPT_S - 1)
    kept.receive("gpu-1", utilization(0.2))
    kept.drop_old()
    assert kept.histories("gone").of("gpu", GPU).series
    clock.sleep(2)
    kept.drop_old()
    assert not kept.histories("gone").of("gpu", GPU).series
    assert kept.last("gpu-1") is not None
