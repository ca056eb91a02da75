# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.core.vms.lease import DAY_S
from orchestrator.services.site_time import SiteTime
from orchestrator.store.database import Store
from tests.fakes.control_plane import KEY
from tests.fakes.fake_world import FakeClock
from tests.postgres.cluster import Cluster


@pytest.mark.fault("F101")
def test_a_controller_whose_clock_is_ahead_all_the_time_goes_by_that_of_the_database(postgres: Cluster) -> None:
    store = Store(postgres.database(), key=KEY, new_site="s")
    with store.read() as tx:
        shown = tx.time.shown()
    assert shown is not None
    right, ahead = (SiteTime(store, FakeClock(time=shown, ahead=more_s)) for more_s in (0.0, DAY_S))
    right.look()
    ahead.look()
    assert abs(right.now() - ahead.now()) < 120.0
    assert right.health().error is None
    assert str(ahead.health().error).startswith("this controller's clock is 86400 s ahead of the database's: ")
    store.close()


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_what_has_passed_is_written_down(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    sqlite = f"sqlite:///{tmp_path / 'a.sqlite'}"
    url = sqlite if backend == "sqlite" else str(request.getfixturevalue("postgres").database())
    store = Store(url, key=KEY, new_site="s")
    with store.begin() as tx:
        assert tx.time.mark() is None
        tx.audit.append(at=5.0, actor="a", action="b", subject="c", outcome="d")
        assert tx.time.mark() == 5.0, "an older version has written none"
        for passed in (7.25, 1_800_000_000.125):
            tx.time.put_mark(passed)
            assert tx.time.mark() == passed
    store.close()
