# SPDX-License-Identifier: Apache-2.0
"""What is compiled once gives the rows and errors of SQLAlchemy's connections, however often it is executed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    String,
    Table,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from orchestrator.store.connections import Connections
from orchestrator.store.statements import Precompiled, Statements, execute_text
from tests.postgres.cluster import Cluster

AGAIN = range(4)
"""On PostgreSQL it is executed as it is, then prepared, then executed by its name."""
things = Table(
    "things",
    MetaData(),
    Column("number", BigInteger, primary_key=True),
    Column("small", Integer),
    Column("name", String(80), key="called"),
    Column("flag", Boolean),
    Column("share", Float),
    Column("content", LargeBinary),
    Column("document", JSON(none_as_null=True)),
)
ROW: dict[str, Any] = {
    "number": 2**62,
    "small": -1,
    "called": "100% 'of' \\ € %(a)s :b ?",
    "flag": True,
    "share": 1800000000.0049996,
    "content": bytes(range(256)),
    "document": {"a": [1, None, "x"]},
}
NOTHING: dict[str, Any] = {**dict.fromkeys(ROW), "number": 1}
NUMBER = things.c.number == bindparam("its_number")
QUERIES: list[Select[Any]] = [
    select(things).where(NUMBER),
    select(things.c.called, cast(things.c.document, Text), things.c.flag.label("so")).where(NUMBER),
    select(func.coalesce(func.max(things.c.number), 0), things.c.number - 2 + 1).where(NUMBER).group_by("number"),
    select(things.c.document["a"].as_string(), literal("100%").label("all")).where(NUMBER),
    select(things.c.number).where(things.c.called.contains("%", autoescape=True), NUMBER),
    select(things.c.number).where(NUMBER, things.c.small.in_((-1, 2, 3)), things.c.flag.in_((True,))),
]


@pytest.fixture
def connections(url: str) -> Iterator[Connections]:
    opened = Connections(url)
    with opened.transaction("alone") as connection:
        things.create(connection)
        connection.execute(insert(things), [ROW, NOTHING])
    yield opened
    opened.close()


@contextmanager
def statements(connections: Connections) -> Iterator[Statements]:
    with connections.transaction("alone") as connection:
        yield Statements(connection)


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
@pytest.mark.parametrize("number", [1, 2**62])
def test_values_and_rows_are_those_of_sqlalchemy(connections: Connections, query: Select[Any], number: int) -> None:
    precompiled, values = Precompiled(query), {"its_number": number}
    with statements(connections) as db:
        expected = db.connection.execute(query, values).all()
        for _ in AGAIN:
            rows = db.execute(precompiled, values)
            assert rows.all() == [tuple(row) for row in expected]
            assert [tuple(row) for row in rows] == [tuple(row) for row in expected]


def test_columns_are_read_by_their_keys(connections: Connections) -> None:
    with statements(connections) as db:
        row = db.execute(Precompiled(select(things).where(NUMBER)), {"its_number": 2**62}).one()
    assert row._asdict() == ROW
    assert (row.called, row.document) == (ROW["called"], ROW["document"])


@pytest.mark.parametrize("row", [ROW, NOTHING])
def test_what_is_written_is_what_is_read(connections: Connections, row: dict[str, Any]) -> None:
    add, remove = Precompiled(insert(things).returning(things)), Precompiled(delete(things).where(NUMBER))
    with statements(connections) as db:
        for _ in AGAIN:
            assert db.execute(remove, {"its_number": row["number"]}).rowcount == 1
            assert db.execute(add, row).one()._asdict() == row


def test_rows_that_were_changed_are_counted_and_a_statement_without_rows_gives_none(connections: Connections) -> None:
    change = update(things).where(things.c.number > bindparam("least")).values(small=bindparam("new", type_=Integer))
    precompiled = Precompiled(change)
    with statements(connections) as db:
        for _ in AGAIN:
            changed = db.execute(precompiled, {"new": 10, "least": 0})
            assert (changed.rowcount, changed.all()) == (2, ())
        db.execute(precompiled, [{"new": 7, "least": 0}, {"new": 8, "least": 5}])
        removed = db.execute(Precompiled(delete(things).returning(things.c.small)))
    assert sorted(removed.scalars()) == [7, 8]


def test_text_is_precompiled_with_its_columns(connections: Connections) -> None:
    named = text("SELECT number AS n, document FROM things WHERE number = :its_number")
    precompiled = Precompiled(named.columns(n=BigInteger(), document=JSON()))
    with statements(connections) as db:
        for _ in AGAIN:
            assert db.execute(precompiled, {"its_number": 2**62}).one()._asdict() == {
                "n": 2**62,
                "document": ROW["document"],
            }


def test_errors_are_those_of_sqlalchemy(connections: Connections) -> None:
    add = Precompiled(insert(things))
    for _ in AGAIN:
        with pytest.raises(IntegrityError), statements(connections) as db:
            db.execute(add, ROW)
    with statements(connections) as db, pytest.raises((ProgrammingError, OperationalError)):
        execute_text(db.connection, "SELEKT")


def postgresql(cluster: Cluster) -> Connections:
    return Connections(cluster.database())


def prepared(connection: Connection) -> int:
    query = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%plus_one%'"
    return int(connection.exec_driver_sql(query.replace("%", "%%")).scalar_one())


def test_a_statement_is_prepared_once_for_numbers_of_any_size(postgres: Cluster) -> None:
    plus_one = Precompiled(select((bindparam("n", type_=BigInteger) + 1).label("plus_one")))
    connections = postgresql(postgres)
    for power in range(0, 62, 7):
        with statements(connections) as db:
            assert db.execute(plus_one, {"n": 2**power}).scalar_one() == 2**power + 1
    with statements(connections) as db:
        assert prepared(db.connection) == 1
    connections.close()


def test_what_was_prepared_and_forgotten_by_a_rollback_is_prepared_again(postgres: Cluster) -> None:
    plus_one = Precompiled(select((bindparam("n", type_=BigInteger) + 1).label("plus_one")))
    connections = postgresql(postgres)
    for _ in AGAIN:
        with pytest.raises(ZeroDivisionError):
            rolled_back(connections, plus_one)
    connections.close()


def rolled_back(connections: Connections, plus_one: Precompiled) -> None:
    with statements(connections) as db:
        for _ in AGAIN:
            assert db.execute(plus_one, {"n": 1}).scalar_one() == 2
        raise ZeroDivisionError


def test_a_connection_that_was_ended_is_lost(postgres: Cluster) -> None:
    connections = postgresql(postgres)
    plus_one = Precompiled(select((bindparam("n", type_=BigInteger) + 1).label("plus_one")))
    connection = connections.engine.connect()
    db, backend = Statements(connection), connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    db.execute(plus_one, {"n": 1})
    with psycopg.connect(postgres.url("postgres").replace("+psycopg", ""), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 60000)", (backend,))  # returns when it is gone
    with pytest.raises(OperationalError) as caught:
        db.execute(plus_one, {"n": 1})
    assert caught.value.connection_invalidated and connection.invalidated  # noqa: PT018 - one fact
    connection.close()
    connections.close()
