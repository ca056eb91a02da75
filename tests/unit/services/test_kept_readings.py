# SPDX-License-Identifier: Apache-2.0
"""What is kept of hosts' frames: the last one while it is fresh, five minutes of what is charted, nothing of others."""

from __future__ import annotations

import json
import weakref
from array import array
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import Unknown
from orchestrator.core.readings.flows import KEPT_S as FLOWS_KEPT_S
from orchestrator.core.readings.flows import MAX_KEPT, NO_CARD, Flow
from orchestrator.core.readings.frame import HostFrame, Reading, arranged
from orchestrator.core.readings.quantities import SubjectKind
from orchestrator.core.readings.received import (
    KEPT_FRAMES,
    KEPT_S,
    History,
    ReceivedFrame,
    received_from_dict,
    received_to_dict,
)
from orchestrator.services.readings.kept import STALE_S, KeptReadings
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


def history_of(kept: KeptReadings, subject: str = GPU, host: str = "gpu-1") -> History:
    """Empty while the host is silent."""
    last = kept.last(host)
    return History() if last is None else last.histories()("vm" if subject == VM else "gpu", subject)


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
    last, history = kept.last("gpu-1"), history_of(kept)
    assert (last is not None) == (now - received[-1][0] <= STALE_S)
    expected = [ratio for at, ratio in received[-KEPT_FRAMES:] if last is not None and now - at <= KEPT_S]
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
    (series,) = history_of(kept, VM).series
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
    (series,) = history_of(kept).series
    assert series.numbers == (0.25, None, 0.25)
    assert history_of(kept, "GPU-2").series == ()
    assert history_of(kept, host="gpu-2").ages_s == ()


def test_what_is_no_number_is_not_charted() -> None:
    kept = KeptReadings(FakeClock())
    keys, numbers = arranged({UTILIZATION: 0.5})
    numbers[0] = float("nan")
    kept.receive("gpu-1", frame(Reading("gpu", GPU, keys, numbers), taken_at=0))
    assert history_of(kept).series == ()


def test_a_card_that_fills_a_hosts_flows_takes_none_of_anothers_away() -> None:
    clock = FakeClock()
    kept = KeptReadings(clock)
    card, floods = "52:54:00:00:00:01", ("52:54:00:00:00:02", "52:54:00:00:00:03")
    flow = Flow(
        at=0.0, rule="0" * 36, direction="in", refused=True, card=card, source="10.0.0.5", target="10.0.0.6",
        protocol="tcp", port=22, packets=1,
    )  # fmt: skip

    def told() -> Counter[str]:
        last = kept.last("gpu-1")
        return Counter() if last is None else Counter(each.card for each in last.flows)

    def left_out() -> dict[str, int]:
        last = kept.last("gpu-1")
        return {} if last is None else {of_card: each.flows for of_card, each in last.flows_left_out.items()}

    kept.receive("gpu-1", HostFrame(0.0, (), (), (flow, replace(flow, port=23))))
    for number in range(10):
        clock.sleep(10)
        many = (replace(flow, card=mac, port=number * 250 + port) for mac in floods for port in range(250))
        kept.receive("gpu-1", HostFrame(0.0, (), (), tuple(many)))
    assert told() == {card: 2, **dict.fromkeys(floods, (MAX_KEPT - 2) // 2)}
    each = 2500 - (MAX_KEPT - 2) // 2
    assert left_out() == {NO_CARD: 0, **dict.fromkeys(floods, each)}
    kept.receive("gpu-1", HostFrame(7.0, (), (), (), (), {card: 5, NO_CARD: 40}))
    assert left_out() == {NO_CARD: 40, card: 5, **dict.fromkeys(floods, each)}
    clock.sleep(FLOWS_KEPT_S)
    kept.receive("gpu-1", HostFrame(0.0, (), (), (flow,)))
    assert (told(), left_out()) == ({card: 1}, {})


def test_what_was_left_out_is_counted_of_the_last_hour_however_long_it_goes_on() -> None:
    clock = FakeClock()
    kept = KeptReadings(clock)
    for _ in range(3 * 360):
        clock.sleep(10)
        kept.receive("gpu-1", HostFrame(0.0, (), (), (), (), {"52:54:00:00:00:01": 1}))
    last = kept.last("gpu-1")
    assert last is not None
    assert 360 <= last.flows_left_out["52:54:00:00:00:01"].flows <= 360 + 60


def test_who_asks_for_new_flows_is_told_each_once_and_how_many_are_missing() -> None:
    kept = KeptReadings(FakeClock())
    flow = Flow(
        at=0.0, rule="0" * 36, direction="in", refused=True, card="52:54:00:00:00:01", source="10.0.0.5",
        target="10.0.0.6", protocol="tcp", port=1, packets=1,
    )  # fmt: skip

    def came(*ports: int, left_out: int = 0) -> None:
        counts = {NO_CARD: left_out} if left_out else {}
        kept.receive("gpu-1", HostFrame(0.0, (), (), tuple(replace(flow, port=port) for port in ports), (), counts))

    def told(until: int) -> tuple[list[int | None], int, int]:
        new = kept.new_flows({"gpu-1": until})["gpu-1"]
        return [each.port for each in new.flows], new.left_out, new.until

    came(1, 2)
    assert told(0) == ([1, 2], 0, 2)
    came(3, left_out=4)
    assert told(2) == ([3], 4, 7)
    assert told(7) == ([], 0, 7)
    came(*range(MAX_KEPT + 10))
    assert told(7) == (list(range(10, MAX_KEPT + 10)), 10, MAX_KEPT + 17)
    assert told(10**9)[2] == MAX_KEPT + 17  # it was forgotten meanwhile


def test_hosts_that_were_not_heard_for_long_are_forgotten_and_no_others() -> None:
    clock = FakeClock()
    kept = KeptReadings(clock)

    def heard(host: str) -> weakref.ref[array[float]]:
        sent = utilization(0.1)
        kept.receive(host, sent)
        return weakref.ref(sent.readings[0].numbers)

    gone = heard("gone")
    clock.sleep(KEPT_S - 1)
    stays = heard("gpu-1")
    kept.drop_old()
    assert gone() is not None
    clock.sleep(2)
    kept.drop_old()
    assert gone() is None
    assert stays() is not None


@given(
    gaps=st.lists(st.floats(0.1, 30.0), min_size=1, max_size=40),
    most=st.integers(0, KEPT_FRAMES),
    late_s=st.floats(0, 29),
)
def test_another_controller_is_told_all_that_is_kept(gaps: list[float], most: int, late_s: float) -> None:
    clock = FakeClock()
    kept = KeptReadings(clock)
    for number, gap in enumerate(gaps):
        clock.sleep(gap)
        sent = (gpu_reading(f"GPU-{number % 3}", {UTILIZATION: number / 100}), vm_reading(VM, {CPU: 1e9 + number}))
        kept.receive("gpu-1", frame(*sent, taken_at=10.0 * number))
    clock.sleep(late_s)
    here = kept.last("gpu-1")
    assert here is not None
    there = received_from_dict(json.loads(json.dumps(received_to_dict(here, moments=most))))
    assert (there.frame, there.clock_ahead_s) == (here.frame, here.clock_ahead_s)
    assert there.age_s == pytest.approx(here.age_s)
    assert there.last_moment("vm", VM) == (here.last_moment("vm", VM) if most else {})
    subjects: tuple[tuple[SubjectKind, str], ...] = (("gpu", "GPU-0"), ("vm", VM))
    for kind, subject in subjects:
        shown = history_of_last(here, most, kind, subject)
        told = there.histories()(kind, subject)
        assert told.series == shown.series
        assert told.ages_s == pytest.approx(shown.ages_s)


def history_of_last(received: ReceivedFrame, most: int, kind: SubjectKind, subject: str) -> History:
    return replace(
        received, moments=received.moments[len(received.moments) - min(most, len(received.moments)) :]
    ).histories()(kind, subject)


@pytest.mark.parametrize(
    "spoil",
    [
        {"moments": [{"age_s": 1, "columns": 7, "numbers": ""}]},
        {"moments": [{"age_s": 1, "columns": 0, "numbers": "AAA"}]},
        {"columns": [["gpu"]], "moments": 3},
        {"frame": {}},
        {"age_s": None},
        {"age_s": float("nan")},
        {"clock_ahead_s": 10**400},
        {"moments": [{"age_s": 1, "columns": 0, "numbers": ""}]},
        {"moments": [{"age_s": 1, "columns": 0, "numbers": "AAAAAAAAAAA="}]},
        {"moments": [{"age_s": 1e999, "columns": 0, "numbers": "AAAAAA=="}]},
        {"columns": [[[["gpu"], GPU, [UTILIZATION]]]], "moments": [{"age_s": 1, "columns": 0, "numbers": "AAAAAA=="}]},
    ],
)
def test_what_another_controller_sends_is_checked(spoil: dict[str, object]) -> None:
    kept = KeptReadings(FakeClock())
    kept.receive("gpu-1", utilization(0.5))
    last = kept.last("gpu-1")
    assert last is not None
    every: tuple[object, ...] = ({**received_to_dict(last, moments=1), **spoil}, [], None, {})
    for broken in every:
        with pytest.raises(Unknown):
            received_from_dict(broken)
