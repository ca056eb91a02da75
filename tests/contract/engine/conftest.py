# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.adapters.engine.durable import DurableEngine
from orchestrator.store.database import Store
from tests.contract.engine.live_site import Site
from tests.contract.engine.test_durable import MADE, Open, Recording, durable
from tests.fakes.control_plane import KEY

STOPPED_S = 5.0


@pytest.fixture
def site_on(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Site]]:
    with ExitStack() as stack:

        def made(backend: str) -> Site:
            if backend == "sqlite":
                (tmp_path / "one").mkdir()
                site = Site(tmp_path, f"sqlite:///{tmp_path / 'one' / 'vgpuctl.sqlite'}")
            else:
                site = Site(tmp_path, str(request.getfixturevalue("postgres").database()))
            stack.callback(site.close)
            return site

        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres").database())
    return f"sqlite:///{tmp_path / 'e.sqlite'}"


@pytest.fixture(autouse=True)
def no_engine_outlives_its_test() -> Iterator[None]:
    try:
        yield
    finally:
        while MADE:
            MADE.pop().stop(STOPPED_S)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    made = Store(url, key=KEY, new_site="s")
    yield made
    made.close()


@pytest.fixture
def engine_of(store: Store, url: str) -> Open:
    def made(runs: Recording, per_host: int = 8) -> tuple[DurableEngine, threading.Semaphore]:
        ended = threading.Semaphore(0)
        return durable(store, url, runs, per_host, lambda _host, _subject: ended.release()), ended

    return made
