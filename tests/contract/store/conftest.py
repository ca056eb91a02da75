# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.store.database import Store
from tests.contract.store.test_store import IMAGE, KEY, host
from tests.fakes.new_database import migrated, new_url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database that is up to date and empty."""
    if request.param == "sqlite":
        file = tmp_path / "vgpuctl.sqlite"
        file.write_bytes(migrated(KEY))
        return f"sqlite:///{file}"
    return new_url(request.getfixturevalue("postgres"), KEY)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    made = Store(url, key=KEY, new_site="site")
    with made.begin() as tx:
        tx.hosts.add(host())
        tx.images.add(IMAGE)
    yield made
    made.close()
