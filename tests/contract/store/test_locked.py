# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pysqlite3 import dbapi2 as sqlite3
from sqlalchemy import create_engine, make_url

from orchestrator.core.errors import Retryable
from orchestrator.core.vms.network import Network
from orchestrator.store import connections
from orchestrator.store.database import Store
from orchestrator.store.tables import metadata
from tests.fakes.control_plane import KEY

BRIEFLY_MS = 50


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Somebody else writes, and does not come to an end."""
    if url.startswith("sqlite"):
        # locks of one process only stand between connections of one library: the store's
        with closing(sqlite3.connect(make_url(url).database)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
        return
    engine = create_engine(url)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"LOCK TABLE {', '.join(metadata.tables)} IN EXCLUSIVE MODE")
        yield
    engine.dispose()


@pytest.mark.fault("F97")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_while_the_database_is_locked_writers_end_clean_and_readers_go_on(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = f"sqlite:///{tmp_path / 'l.sqlite'}"
    url = file if backend == "sqlite" else request.getfixturevalue("postgres").database()
    Store(url, key=KEY, new_site="site").close()
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_MS", BRIEFLY_MS)
    monkeypatch.setattr(connections, "_LOCK_MS", BRIEFLY_MS)
    store = Store(url, key=KEY, new_site="site")
    network = Network(name="lan", subnet="10.1.0.0/24")
    with locked(url):
        with pytest.raises(Retryable) as busy, store.begin() as tx:
            tx.networks.add(network)
        assert busy.value.code == "store.busy"
        with store.read() as tx:
            assert tx.networks.list() == ()
    with store.begin() as tx:
        tx.networks.add(network)
    store.close()
