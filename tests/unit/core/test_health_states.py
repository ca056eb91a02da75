# SPDX-License-Identifier: Apache-2.0
"""States of GPUs: what brings them in, what lets them out, and rules on kept logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.health import SEVERAL, GpuFault, GpuSignal, faults_of
from orchestrator.core.gpu.health_replay import Replay, read_log, replay_of
from orchestrator.core.gpu.health_states import (
    CLEAN_S,
    JOINING_S,
    RELAPSES,
    GpuHealth,
    counting,
    is_new_fall,
    next_health,
)

LOGS = Path(__file__).parent / "logs"
MEANINGS = shipped().signal_meanings
ORDER = ("healthy", "watch", "unfit", "quarantined")
XIDS = (13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 119, 9999)


def xid(number: int, at: int = 1, pids: tuple[int, ...] = ()) -> GpuSignal:
    return GpuSignal(name=f"xid-{number}", at=at, pids=pids)


def faults(*signals: GpuSignal, vms: int = 4) -> tuple[GpuFault, ...]:
    return faults_of(signals, MEANINGS, vms=vms)


def state(health: GpuHealth | None) -> str:
    return "healthy" if health is None else health.state


@pytest.mark.parametrize(
    ("signal", "wanted"),
    [
        (xid(79), "unfit"),
        (xid(95), "unfit"),
        (GpuSignal(name="memory-remap_failed"), "unfit"),
        (GpuSignal(name="recovery-node_reboot"), "unfit"),
        (GpuSignal(name="gpu-missing"), "unfit"),
        (GpuSignal(name="aer-fatal", at=1), "unfit"),
        (xid(63), "watch"),
        (xid(94), "watch"),
        (xid(74), "watch"),
        (xid(9999), "watch"),
        (GpuSignal(name="pcie-narrow"), "watch"),
        (GpuSignal(name="sxid-fatal", at=1), "watch"),
        (GpuSignal(name="sxid-nonfatal", at=1), "healthy"),
        (GpuSignal(name="aer-corrected", at=1), "healthy"),
        (xid(45, pids=(1, 2, 3)), "healthy"),
        (xid(31, pids=(1, 2)), "healthy"),
        (xid(31, pids=(1, 2, 3)), "watch"),
    ],
)
def test_what_a_signal_brings_a_gpu_into(signal: GpuSignal, wanted: str) -> None:
    assert state(next_health(None, faults(signal), 1000.0)) == wanted


def test_errors_of_programs_say_nothing_where_fewer_vms_are_on_the_gpu() -> None:
    assert faults(xid(31, pids=(1, 2, 3)), vms=SEVERAL - 1) == ()


def test_a_gpu_whose_fault_is_over_is_on_watch_for_a_day_and_healthy_then() -> None:
    unfit = next_health(None, faults(xid(95)), 1000.0)
    assert next_health(unfit, faults(xid(95)), 1000.0 + 5 * CLEAN_S) == unfit, "it lasts until it is over"
    watch = next_health(unfit, (), 5000.0)
    assert watch is not None
    assert (watch.state, watch.since, watch.clean_since) == ("watch", 5000.0, 5000.0)
    assert state(next_health(watch, (), 5000.0 + CLEAN_S - 1)) == "watch"
    assert state(next_health(watch, (), 5000.0 + CLEAN_S)) == "healthy"


def test_a_line_that_nobody_says_is_over_counts_for_a_day_and_anew_when_it_comes_again() -> None:
    watch = next_health(None, faults(xid(94, at=7)), 1000.0)
    assert state(next_health(watch, faults(xid(94, at=7)), 1000.0 + CLEAN_S - 1)) == "watch"
    again = next_health(watch, faults(xid(94, at=5000)), 1000.0 + CLEAN_S - 1)
    assert state(next_health(again, faults(xid(94, at=5000)), 1000.0 + CLEAN_S)) == "watch"
    over = next_health(watch, faults(xid(94, at=7)), 1000.0 + CLEAN_S)
    assert state(over) == "healthy"
    assert state(next_health(over, faults(xid(94, at=7)), 1000.0 + 2 * CLEAN_S)) == "healthy"


JOINING = GpuSignal(name="fabric-not_joined", text="in progress")


def test_a_fabric_that_completes_in_the_time_that_training_takes_was_no_fault() -> None:
    health = next_health(None, faults(JOINING), 1000.0)
    health = next_health(health, faults(JOINING), 1000.0 + JOINING_S - 1)
    assert state(health) == "healthy"
    assert next_health(health, (), 1000.0 + JOINING_S) is None, "nothing of it is remembered"
    assert counting(faults(JOINING), None, 1000.0) == (), "nobody is told of it meanwhile"


def test_a_fabric_that_is_not_joined_for_longer_is_a_fault_and_so_is_one_that_failed_at_once() -> None:
    health = next_health(None, faults(JOINING), 1000.0)
    late = next_health(health, faults(JOINING), 1000.0 + JOINING_S)
    assert late is not None
    assert (late.state, late.cause) == ("watch", "the GPU has not joined its fabric: in progress")
    assert counting(faults(JOINING), late, 1000.0 + JOINING_S) == faults(JOINING)
    assert state(next_health(late, (), 1000.0 + JOINING_S + 1)) == "watch"
    assert state(next_health(None, faults(GpuSignal(name="fabric-failed")), 1000.0)) == "watch"


def test_each_training_has_its_own_time_and_makes_no_watch_longer() -> None:
    health = next_health(None, faults(JOINING), 1000.0)
    assert next_health(health, (), 1100.0) is None
    assert state(next_health(None, faults(JOINING), 5000.0)) == "healthy"
    watch = next_health(None, faults(xid(94)), 1000.0)
    watch = next_health(watch, faults(xid(94), JOINING), 2000.0)
    assert state(next_health(watch, faults(xid(94)), 1000.0 + CLEAN_S)) == "healthy"


def test_clocks_of_hosts_decide_nothing() -> None:
    for at in (1, 4_000_000_000):
        watch = next_health(None, faults(xid(94, at=at)), 1000.0)
        assert watch is not None
        assert (watch.since, watch.clean_since) == (1000.0, 1000.0)


def test_unfit_for_the_third_time_in_a_week_is_for_a_person_and_once_a_month_is_not() -> None:
    for between, wanted in ((3600.0, "quarantined"), (30 * CLEAN_S, "unfit")):
        health: GpuHealth | None = None
        for number in range(RELAPSES):
            health = next_health(health, (), number * between)
            health = next_health(health, faults(xid(95, at=number + 1)), number * between + 1)
        assert state(health) == wanted
        assert state(next_health(health, (), 3 * between)) == ("watch" if wanted == "unfit" else wanted)


def test_a_fall_while_the_breaker_is_open_is_one_of_that_moment_and_not_of_the_reset() -> None:
    watch = next_health(None, faults(xid(95)), 1000.0, may_close=False)
    for hours in range(1, RELAPSES + 1):
        watch = next_health(watch, faults(xid(95, at=hours * 3600)), 1000.0 + hours * 3600, may_close=False)
    assert not is_new_fall(watch, faults(xid(95, at=99_999)))
    closed = next_health(watch, faults(xid(95, at=99_999)), 100_000.0)
    assert closed is not None
    assert (closed.state, closed.falls) == ("unfit", (1000.0,))


def test_a_rule_that_closes_what_was_on_watch_makes_falls_that_the_breaker_counts() -> None:
    before = next_health(None, [GpuFault(xid(171), "gpu", "support")], 1000.0)
    assert is_new_fall(before, [GpuFault(xid(171), "gpu", "drain_and_reset")])


@given(st.lists(st.tuples(st.sampled_from(XIDS), st.integers(1, 5)), max_size=6), st.data())
def test_the_order_of_faults_of_one_moment_makes_no_state_and_more_of_them_none_better(
    drawn: list[tuple[int, int]], data: st.DataObject
) -> None:
    signals = {number: xid(number, at, (1, 2, 3)) for number, at in drawn}
    shuffled = data.draw(st.permutations(list(signals.values())))
    here = next_health(None, faults(*signals.values()), 1000.0)
    there = next_health(None, faults(*shuffled), 1000.0)
    assert (state(here), here and here.noted) == (state(there), there and there.noted)
    fewer = next_health(None, faults(*shuffled[:-1]), 1000.0)
    assert ORDER.index(state(fewer)) <= ORDER.index(state(there))


def line(at: int, number: int, pid: int = 1, gpu: str = "41") -> str:
    return f"[{at}.000000] NVRM: Xid (PCI:0000:{gpu}:00): {number}, pid={pid}, name=vgpu, Ch 00000008"


def test_a_storm_of_a_hundred_thousand_lines_of_xid_45_changes_nothing() -> None:
    report = replay_of(read_log("\n".join(line(at // 10, 45, at % 700) for at in range(100_000))), MEANINGS)
    assert (report.changes, report.faults, report.warnings) == ((), 0, 0)


@given(
    st.lists(st.tuples(st.integers(1, 400_000), st.sampled_from(XIDS), st.sampled_from(("41", "c1"))), max_size=25),
    st.integers(0, 25),
)
def test_what_is_said_of_a_log_that_is_cut_short_is_the_beginning_of_what_is_said_of_all(
    drawn: list[tuple[int, int, str]], cut: int
) -> None:
    lines = [line(at, number, gpu=gpu) for at, number, gpu in sorted(drawn)]
    entries = list(read_log("\n".join([*lines, "[0.000000] NVRM: loading NVIDIA UNIX x86_64"])))
    whole, part = Replay(MEANINGS), Replay(MEANINGS)
    for number, entry in enumerate(entries):
        whole.take(entry)
        if number < cut:
            part.take(entry)
    assert whole.changes[: len(part.changes)] == part.changes
    assert whole.faults[: len(part.faults)] == part.faults


def test_a_kernels_log_is_replayed_with_its_hosts() -> None:
    report = replay_of(read_log((LOGS / "kernel.log").read_text()), MEANINGS)
    assert [(one.gpu, one.state) for one in report.changes] == [
        ("gpu-1/0000:c1:00.0", "watch"),
        ("gpu-1/0000:c1:00.0", "unfit"),
        ("gpu-1/0000:c1:00.0", "watch"),
        ("gpu-2/0000:41:00.0", "unfit"),
        ("gpu-2/0000:41:00.0", "watch"),
        ("gpu-1/0000:c1:00.0", "healthy"),
    ]
    assert (report.faults, report.foreseen, report.lead_s) == (2, 1, 6 * 3600.0)
    assert (report.warnings, report.right, report.precision, report.recall) == (3, 1, 1 / 3, 0.5)


def test_a_trace_of_faults_in_the_public_form_is_replayed() -> None:
    """Our own events, in the form of stepfun-ai/InfiniteHBD-Trace."""
    report = replay_of(read_log((LOGS / "fault_trace.json").read_text()), MEANINGS)
    assert (report.faults, report.foreseen) == (14, 2)
    assert report.recall == pytest.approx(2 / 14)
    assert report.lead_s == pytest.approx(0.75 * 86_400, abs=2)


@pytest.mark.parametrize(
    "head",
    [
        "3,7,5000000,-;",
        "[    5.000000] ",
        "2026-07-01T08:00:00+0000 gpu-1 kernel: ",
        "2026-07-01T08:00:00.123456+00:00 gpu-1 kernel: [    5.000000] ",
        "1782900000.123456 gpu-1 kernel: ",
        "Jul  1 08:00:00 gpu-1 kernel: ",
    ],
)
def test_every_form_of_a_kernels_log_is_read(head: str) -> None:
    (entry,) = read_log(f"{head}NVRM: Xid (PCI:0000:41:00): 79, lost\nof no form\n")
    assert entry.line.place == "0000:41:00.0"


@pytest.mark.parametrize("text", ["", "-- No entries --\n", "[5.000000] usb 1-2: new device"])
def test_a_log_that_says_nothing_of_gpus_is_one(text: str) -> None:
    assert list(read_log(text)) == []


@pytest.mark.parametrize("text", ["no log", '[{"node_id": 1}]', "[{", '[{"a": "\\ud800"}]'])
def test_what_is_no_log_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        list(read_log(text))
    assert refused.value.code == "health.log_unreadable"
