# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.chaos.site import site
from tests.chaos.strikes import Strikes
from tests.chaos.work import Work

ROUND = 20
"""Strikes until everything has to settle."""
FEW, MANY = (2, 8), (3, 240)


@pytest.mark.parametrize(("servers", "strikes"), [FEW, pytest.param(*MANY, marks=pytest.mark.soak)])
def test_whatever_strikes_real_servers_everything_settles_and_nothing_is_lost_or_made_twice(
    servers: int, strikes: int, record_property: Callable[[str, object], None]
) -> None:
    dice = random.Random(f"{servers} servers, {strikes} strikes")
    with site(servers) as struck:
        work, act = Work(struck, dice), Strikes(struck, dice)
        for number in range(1, strikes + 1):
            for _ in range(3):
                work.ask()
            act.strike()
            time.sleep(dice.uniform(0.1, 1.0))
            if number % ROUND == 0 or number == strikes:
                work.settle()
    for name, count in act.counts.items():
        record_property(f"strikes at real servers: {name}", count)
    record_property("requests while real servers were struck", sum(work.told.values()))
    print(dict(act.counts), dict(work.told))
