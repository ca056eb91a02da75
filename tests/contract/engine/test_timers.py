# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from orchestrator.adapters.engine.timer import Timer
from orchestrator.core.errors import Bug, Conflict, Retryable
from orchestrator.ports.timers import TimerHealth

LIMIT_S = 120.0


def wait_for(called: threading.Semaphore, count: int) -> None:
    for _ in range(count):
        assert called.acquire(timeout=LIMIT_S)


def test_a_timer_repeats_until_it_is_stopped() -> None:
    calls = threading.Semaphore(0)
    timer = Timer({"call": calls.release}, 0.001)
    timer.start()
    wait_for(calls, 3)
    timer.stop()


@pytest.mark.parametrize(
    "error",
    [
        Retryable("store.connection_lost", "away"),
        Conflict("host.exists", "there"),
        Bug("bug", "ours"),
        RecursionError("maximum recursion depth exceeded"),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
        KeyError("a"),
        MemoryError(),
    ],
    ids=repr,
)
def test_no_exception_ends_a_timer_or_keeps_its_other_rounds_waiting(error: Exception) -> None:
    failing, other = threading.Semaphore(0), threading.Semaphore(0)

    def action() -> None:
        failing.release()
        raise error

    timer = Timer({"failing": action, "other": other.release}, 0.001)
    timer.start()
    wait_for(failing, 3)
    wait_for(other, 3)
    timer.stop()
    broken, well = timer.health()
    assert (broken.name, broken.failed >= 2, bool(broken.error)) == ("failing", True, True)
    assert (well.name, well.failed, well.error) == ("other", 0, None)
    assert broken.good_ago_s > well.good_ago_s


def test_a_timer_is_stalled_when_nothing_has_gone_well_for_long() -> None:
    health = TimerHealth(name="observe", every_s=10, good_ago_s=329, failed=9, error="away")
    assert (health.stalled, replace(health, good_ago_s=331).stalled) == (False, True)
