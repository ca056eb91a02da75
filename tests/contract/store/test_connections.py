# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, bindparam, update

from orchestrator.core.errors import Retryable
from orchestrator.core.tenancy.tenant import Tenant
from orchestrator.store import connections
from orchestrator.store.database import Store
from orchestrator.store.tables import meta
from tests.fakes.control_plane import KEY
from tests.postgres.cluster import Cluster

MANY = update(meta).where(meta.c.key == bindparam("of")).values(value="v")
LIMITS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")


def limits_of(connection: Connection) -> list[str]:
    return [connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in LIMITS]


def held_by_all(store: Store, held: ExitStack) -> None:
    """Until all connections that the pool may open are in use."""
    while True:
        held.enter_context(store.read())


def test_who_gets_no_connection_in_time_is_told_to_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(f"sqlite:///{tmp_path / 'c.sqlite'}", key=KEY, new_site="s")
    monkeypatch.setattr(store._connections, "patience_s", 0.01)
    with ExitStack() as held, pytest.raises(Retryable) as raised:
        held_by_all(store, held)
    assert raised.value.code == "store.busy"
    store.close()


def test_no_statement_holds_what_it_has_locked_for_ever(postgres: Cluster) -> None:
    store = Store(postgres.database(), key=KEY, new_site="s")
    with store._connections.transaction("reading") as connection:
        limits = limits_of(connection)
    assert limits == ["1min", "15s", "10s"]
    with pytest.raises(Retryable) as raised:
        sleep_longer_than_allowed(store)
    assert raised.value.code == "store.busy"
    store.close()


def test_what_brings_the_schema_up_to_date_may_take_its_time(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine reads the migrations' files between two statements."""
    limits: list[str] = []

    def upgraded(config: Config, revision: str) -> None:
        limits.extend(limits_of(config.attributes["connection"]))
        upgrade(config, revision)

    upgrade = command.upgrade
    monkeypatch.setattr(command, "upgrade", upgraded)
    Store(postgres.database(), key=KEY, new_site="s").close()
    assert limits == ["0", "15s", "0"]


def sleep_longer_than_allowed(store: Store) -> None:
    with store._connections.transaction("reading") as connection:
        connection.exec_driver_sql("SET LOCAL statement_timeout = 10")
        connection.exec_driver_sql("SELECT pg_sleep(60)")


def test_a_writer_that_was_paused_after_a_pipeline_stops_nobody_for_ever(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database's own limit for idle transactions is off there: the driver's last word is a Flush."""
    url = postgres.database()
    Store(url, key=KEY, new_site="s").close()  # its schema, which takes longer than the limits below
    monkeypatch.setattr(connections, "_PAUSED_MS", 2000)
    monkeypatch.setattr(connections, "_LOCK_MS", 4000)
    paused, other = (Store(url, key=KEY, new_site="s") for _ in range(2))
    with pytest.raises(Retryable) as raised:
        written_while_paused(paused, other)
    assert raised.value.code == "store.connection_lost"
    with paused.read() as tx:
        assert "blue" in {tenant.name for tenant in tx.tenants.list()}
    paused.close()
    other.close()


def written_while_paused(paused: Store, other: Store) -> None:
    with paused._connections.transaction("alone") as connection:
        connection.execute(MANY, [{"of": "a"}, {"of": "b"}])
        with other.begin() as tx:
            tx.tenants.add(Tenant(name="blue", created_at=0))
