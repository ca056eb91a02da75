# SPDX-License-Identifier: Apache-2.0
"""Databases that go back, clocks that jump by days, a driver upgrade, and all else that goes wrong, at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import make_url

from tests.postgres.cluster import Cluster
from tests.simulated.databases import fresh_sqlite, furnish, open_database
from tests.simulated.restores import soak, strikes_of
from tests.simulated.run import Report
from tests.simulated.test_seeds import check, sampled

ALONE = range(7000, 7030)
ALONE_AT_ONCE = 3
IN_PAIRS = range(7100, 7120)
IN_PAIRS_AT_ONCE = 1

Count = Callable[[str, object], None]


@pytest.mark.fault("F99", "F101", "F103")
@sampled("seed", ALONE, ALONE_AT_ONCE)
def test_whatever_a_restored_database_forgot_an_operator_settles(seed: int, record_property: Count) -> None:
    with fresh_sqlite() as url:
        report = soak(seed, url, two=False)
    check(report, f"--seed {seed} --restores")
    _count(report, record_property)


@pytest.fixture(scope="module")
def furnished(postgres: Cluster) -> str:
    """Name of a database that others are copies of."""
    url = postgres.database()
    store = open_database(url)
    furnish(store)
    store.close()
    return str(make_url(url).database)


@pytest.mark.fault("F99", "F101", "F103")
@sampled("seed", IN_PAIRS, IN_PAIRS_AT_ONCE)
def test_two_controllers_whose_database_fails_over_and_is_restored_settle_too(
    seed: int, postgres: Cluster, furnished: str, record_property: Count
) -> None:
    report = soak(seed, postgres.database(furnished), two=True)
    assert report.broken == (), "\n".join(report.log)
    _count(report, record_property)


def _count(report: Report, record_property: Count) -> None:
    times = sum(line.endswith("the database goes back") for line in report.log)
    record_property("times that a database went back to a copy", times)
    for name, times in strikes_of(report).items():
        record_property(f"strikes while databases go back: {name.replace('_', ' ')}", times)
