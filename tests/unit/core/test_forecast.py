# SPDX-License-Identifier: Apache-2.0
"""How long a disk will take: against copies that are drawn, and what must hold of any forecast."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from orchestrator.core.moves.forecast import Forecast, MeasuredCopy, copy_time

GIB = 1024**3
CASES = 400


def of_pair(rng: random.Random) -> Callable[[], MeasuredCopy]:
    """Copies between two hosts: some time at rest, a bandwidth, and what else goes over the wire meanwhile."""
    at_rest, per_s, noise = rng.uniform(0.1, 3.0), rng.uniform(50e6, 2e9), rng.uniform(0.0, 0.12)

    def drawn() -> MeasuredCopy:
        size = int(2 ** rng.uniform(28, 39))
        return MeasuredCopy(size, (at_rest + size / per_s) * rng.lognormvariate(0, noise))

    return drawn


def known(forecast: Forecast | None) -> Forecast:
    assert forecast is not None
    return forecast


@pytest.mark.parametrize("measured", [4, 10, 50])
def test_the_middle_of_a_forecast_is_within_a_fifth_and_the_copy_within_the_forecast(measured: int) -> None:
    rng, errors, inside = random.Random(measured), [], 0
    for _ in range(CASES):
        drawn = of_pair(rng)
        past, happens = [drawn() for _ in range(measured)], drawn()
        forecast = known(copy_time(happens.size_bytes, past))
        middle = (forecast.low_s + forecast.high_s) / 2
        errors.append(abs(middle - happens.seconds) / happens.seconds)
        inside += forecast.low_s <= happens.seconds <= forecast.high_s
    assert sorted(errors)[int(0.9 * CASES)] <= 0.2
    assert inside / CASES >= 0.8


def test_more_bytes_and_a_lower_limit_never_take_less() -> None:
    rng = random.Random(7)
    for _ in range(CASES):
        drawn = of_pair(rng)
        past = [drawn() for _ in range(rng.randrange(1, 20))]
        sizes = sorted(int(2 ** rng.uniform(0, 45)) for _ in range(10))
        for limit in (None, 10**9, 10**6):
            forecasts = [known(copy_time(size, past, max_bytes_per_s=limit)) for size in sizes]
            for less, more in pairwise(forecasts):
                assert less.low_s <= more.low_s
                assert less.high_s <= more.high_s
            assert all(0 <= forecast.low_s <= forecast.high_s for forecast in forecasts)
        free, slow = (known(copy_time(sizes[-1], past, max_bytes_per_s=limit)) for limit in (None, 10**6))
        assert slow.low_s >= max(free.low_s, sizes[-1] / 10**6)


def test_without_a_measured_copy_nothing_is_forecast() -> None:
    assert copy_time(GIB, []) is None
    assert copy_time(GIB, [MeasuredCopy(0, 1.0), MeasuredCopy(GIB, 0.0)]) is None


def test_one_copy_is_believed_to_three_tenths() -> None:
    forecast = known(copy_time(2 * GIB, [MeasuredCopy(GIB, 10.0)]))
    assert (round(forecast.low_s, 1), round(forecast.high_s, 1)) == (15.4, 26.0)


@pytest.mark.parametrize(
    "past",
    [
        [MeasuredCopy(GIB, 10.0), MeasuredCopy(2 * GIB, 5.0)],
        [MeasuredCopy(GIB, 1.0), MeasuredCopy(2 * GIB, 9.0)],
        [MeasuredCopy(GIB, 4.0)] * 3,
    ],
)
def test_copies_that_fit_no_line_still_bound_the_next_one(past: list[MeasuredCopy]) -> None:
    for copy in past:
        forecast = known(copy_time(copy.size_bytes, past))
        assert forecast.low_s <= copy.seconds <= forecast.high_s
