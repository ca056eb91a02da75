# SPDX-License-Identifier: Apache-2.0
"""How long a VM that runs will take, and stand still: against moves that are drawn and carried out round by round."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from orchestrator.core.actions.live_move import MoveLoad
from orchestrator.core.moves.forecast import Forecast
from orchestrator.core.moves.live_forecast import MeasuredMove, live_forecast

GIB, MIB = 1024**3, 1024**2
CASES = 300


def of_pair(rng: random.Random) -> Callable[[], MeasuredMove]:
    """Moves between two hosts: a bandwidth, time at rest and at the end, and VMs whose guests write as they like."""
    per_s, at_rest, at_end = rng.uniform(100e6, 5e9), rng.uniform(0.2, 4.0), rng.uniform(0.05, 0.5)
    noise, told = rng.uniform(0.0, 0.08), rng.uniform(0.0, 0.08)
    device = rng.choice((0, 0, 64 * MIB, 2 * GIB, 24 * GIB))

    def drawn() -> MeasuredMove:
        memory, disk = int(2 ** rng.uniform(30, 38)), int(2 ** rng.uniform(26, 36))
        state = int(device * rng.uniform(0.5, 1.0))
        writes = per_s * rng.choice((0.0, rng.uniform(0.0, 0.3), rng.uniform(0.0, 0.7), 1.5))
        sent, left, last = float(disk), float(memory), min(memory, 0.3 * per_s)
        while left - last > MIB:  # one that writes faster than the link takes is slowed
            sent, left = sent + left - last, last + (left - last) * min(writes / per_s, 0.8)
        stop = left + state + MIB
        load = MoveLoad(
            memory_bytes=memory, dirty_per_s=int(writes * rng.lognormvariate(0, told)), device_bytes=state or None
        )
        return MeasuredMove(
            load, disk, int(sent + stop), at_rest + (sent + stop) / per_s * rng.lognormvariate(0, noise),
            at_end + stop / per_s * rng.lognormvariate(0, noise),
        )  # fmt: skip

    return drawn


def known(forecast: Forecast | None) -> Forecast:
    assert forecast is not None
    return forecast


def error(forecast: Forecast, happened: float) -> float:
    return abs((forecast.low_s + forecast.high_s) / 2 - happened) / happened


@pytest.mark.parametrize("moves", [4, 10, 50])
def test_nine_forecasts_of_ten_are_within_a_fifth(moves: int) -> None:
    rng, takes, pauses, inside = random.Random(moves), list[float](), list[float](), 0
    for _ in range(CASES):
        drawn = of_pair(rng)
        past, happens = [drawn() for _ in range(moves)], drawn()
        forecast = live_forecast(happens.load, happens.disk_bytes, past)
        takes.append(error(known(forecast.takes), happens.seconds))
        pauses.append(error(known(forecast.pause), happens.pause_s))
        inside += known(forecast.takes).low_s <= happens.seconds <= known(forecast.takes).high_s
    at = int(0.9 * CASES)
    assert sorted(takes)[at] <= 0.2
    assert sorted(pauses)[at] <= 0.2
    assert inside / CASES >= 0.8


def test_held_back_to_half_the_bandwidth_it_takes_about_twice_as_long_and_stands_still_as_long_as_it_would() -> None:
    past = [MeasuredMove(MoveLoad(memory_bytes=size * GIB), 0, size * GIB, float(size), 0.4) for size in (2, 4, 8, 16)]
    load = MoveLoad(memory_bytes=10 * GIB, device_bytes=2 * GIB)
    free, held = live_forecast(load, 0, past), live_forecast(load, 0, past, max_bytes_per_s=GIB // 2)
    assert known(held.takes).low_s == pytest.approx(2 * known(free.takes).low_s, rel=0.1)
    assert free.max_pause_ms == pytest.approx(300 + 1.2 * 2000, rel=0.01)
    assert held.pause == free.pause
    assert held.max_pause_ms == pytest.approx(2 * free.max_pause_ms, rel=0.01)
    hardly = live_forecast(load, 0, past, max_bytes_per_s=MIB)
    assert (hardly.pause, hardly.max_pause_ms) == (free.pause, 2_000_000)


def test_before_the_first_move_nothing_is_forecast_and_its_guest_gets_the_pause_that_it_needs() -> None:
    forecast = live_forecast(MoveLoad(memory_bytes=GIB, dirty_per_s=GIB, device_bytes=GIB), GIB, [])
    assert (forecast.takes, forecast.pause, forecast.max_pause_ms) == (None, None, 300)
    held = live_forecast(MoveLoad(memory_bytes=GIB, device_bytes=24 * GIB), 0, [], max_bytes_per_s=100 * MIB)
    assert held.max_pause_ms > 1000 * 24 * 1024 / 100, "the vGPU's state is never little enough to be sent"


def test_moves_of_little_say_nothing_of_the_bandwidth_and_let_no_guest_stand_still_for_it() -> None:
    idle = MeasuredMove(MoveLoad(memory_bytes=4 * GIB, device_bytes=MIB), 0, 3 * MIB, 4.0, 0.4)
    load = MoveLoad(memory_bytes=64 * GIB, device_bytes=24 * GIB)
    assert live_forecast(load, 0, [idle] * 3).max_pause_ms == 300, "all of its memory would be sent in that pause"
    told = MeasuredMove(MoveLoad(memory_bytes=4 * GIB), 0, 4 * GIB, 8.0, 0.4)
    assert live_forecast(load, 0, [idle, told]).max_pause_ms == pytest.approx(300 + 1.2 * 24_000 * 2, rel=0.01)
