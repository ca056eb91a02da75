# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.core.errors import WorldError
from orchestrator.core.vms.network import Network
from orchestrator.store.database import Store
from orchestrator.store.sqlite.backup import copy_database
from tests.fakes.control_plane import KEY
from tests.postgres.cluster import Cluster

LAN = Network(name="lan", subnet="10.1.0.0/24")


def opened(url: str) -> Store:
    return Store(url, key=KEY, new_site="site")


def write(store: Store) -> None:
    with store.begin() as tx:
        tx.secrets.put("s", "text")
        if not tx.networks.list():
            tx.networks.add(LAN)


def networks(store: Store) -> tuple[Network, ...]:
    with store.read() as tx:
        return tx.networks.list()


def refused(act: Callable[[Store], object], store: Store) -> str:
    """With which code."""
    with pytest.raises(WorldError) as error:
        act(store)
    assert error.value.hint
    return error.value.code


def grown_full(store: Store) -> None:
    """SQLite may not take another page: what a full disk answers (SQLITE_FULL)."""
    with store._connections.transaction("reading") as connection:
        pages = int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    for name in ("lan", "wan", *(f"n{number}" for number in range(2000))):
        with store.begin() as tx:
            tx.secrets.put(name, "x" * 4000)


@pytest.mark.fault("F98")
def test_a_full_disk_refuses_writes_in_one_line_and_reads_go_on(tmp_path: Path) -> None:
    store = opened(f"sqlite:///{tmp_path / 'd.sqlite'}")
    write(store)
    assert refused(grown_full, store) == "store.unavailable"
    assert networks(store) == (LAN,)
    store.close()


@pytest.mark.fault("F98")
def test_a_file_that_may_only_be_read_is_read_and_not_written(tmp_path: Path) -> None:
    file = tmp_path / "d.sqlite"
    store = opened(f"sqlite:///{file}")
    write(store)
    store.close()
    only_read = opened(f"sqlite:///{file}")
    with only_read._connections.transaction("reading") as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
    assert refused(write, only_read) == "store.unavailable"
    only_read.close()


@pytest.mark.fault("F98")
def test_a_damaged_file_is_told_and_a_backup_of_it_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "d.sqlite"
    store = opened(f"sqlite:///{file}")
    with store.begin() as tx:
        for number in range(200):
            tx.secrets.put(f"s{number}", "x" * 4000)
    store.close()
    copy_database(file, tmp_path / "good")
    whole = file.read_bytes()
    file.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))

    def everything(_store: Store) -> None:
        with closing(opened(f"sqlite:///{file}")) as again, again.begin() as tx:
            for number in range(200):
                tx.secrets.get(f"s{number}")

    assert refused(everything, store) == "store.damaged"
    with pytest.raises(WorldError) as error:
        copy_database(file, tmp_path / "bad")
    assert error.value.code in {"store.damaged", "store.unavailable"}
    with closing(opened(f"sqlite:///{tmp_path / 'good'}")) as restored, restored.read() as tx:
        assert len(tx.secrets.ids()) == 200


@pytest.mark.fault("F98")
def test_a_postgresql_that_may_only_be_read_is_read_and_not_written(postgres: Cluster) -> None:
    store = opened(postgres.database())
    write(store)
    with store._connections.transaction("alone") as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    store._connections.close()
    assert refused(write, store) == "store.unavailable"
    assert networks(store) == (LAN,)
    store.close()


@pytest.mark.fault("F98")
@pytest.mark.parametrize(
    ("state", "code"),
    [("53100", "store.unavailable"), ("58030", "store.unavailable"), ("XX001", "store.damaged"),
     ("57P03", "store.connection_lost")],
)  # fmt: skip
def test_what_a_postgresql_says_of_its_disk_is_said_in_one_line(postgres: Cluster, state: str, code: str) -> None:
    """The server itself answers so (RAISE), as when its disk is full, fails or lies."""
    store = opened(postgres.database())

    def struck(store: Store) -> None:
        with store._connections.transaction("alone") as connection:
            connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'disk' USING ERRCODE = '{state}'; END $$")

    assert refused(struck, store) == code
    assert networks(store) == ()
    store.close()
