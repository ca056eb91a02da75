# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.adapters.store.database import SqlStore
from tests.contract.store.test_store import IMAGE, KEY, host
from tests.postgres.cluster import Cluster


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'vgpuctl.sqlite'}"
    postgres: Cluster = request.getfixturevalue("postgres")
    return postgres.database()


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    made = SqlStore(url, key=KEY, new_site="site-1")
    with made.begin() as tx:
        tx.hosts.add(host())
        tx.images.add(IMAGE)
    yield made
    made.close()
