# SPDX-License-Identifier: Apache-2.0
"""What PostgreSQL is asked through libpq is what its driver would have asked, again and again."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.types.json import Json

from orchestrator.store.asked_directly import DirectConnection, DirectStatement
from tests.postgres.cluster import Cluster

AGAIN = range(4)
"""The first time it is asked as it is, the second time it is prepared, then it is there."""


@pytest.fixture
def driver(postgres: Cluster) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.database().replace("+psycopg", ""), autocommit=True) as connection:
        connection.prepare_threshold = None
        yield connection


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT %(n)s::BIGINT + 1, %(n)s::BIGINT * 2", {"n": 1}),
        ("SELECT %(n)s::BIGINT", {"n": 2**62}),
        ("SELECT %(n)s::INTEGER, %(text)s::VARCHAR", {"n": -1, "text": "100% 'of' \\ €"}),
        ("SELECT 'a' LIKE 'a%%', %(a)s::BOOLEAN, %(b)s::BOOLEAN", {"a": True, "b": False}),
        ("SELECT %(f)s::DOUBLE PRECISION", {"f": 1800000000.0049996}),
        ("SELECT %(none)s::VARCHAR IS NULL, %(none)s::BIGINT", {"none": None}),
        ("SELECT %(blob)s::BYTEA", {"blob": bytes(range(256))}),
        ("SELECT %(document)s::JSON", {"document": Json({"a": [1, None, "x"]})}),
        ("SELECT coalesce(max(n), %(n)s) FROM (VALUES (1), (2)) AS t (n)", {"n": 5}),
    ],
)
def test_values_and_rows_are_those_of_the_driver(
    driver: psycopg.Connection, sql: str, values: dict[str, object]
) -> None:
    asked, question = DirectConnection(driver), DirectStatement(sql)
    expected = driver.execute(sql, values).fetchall()  # type of the query is only known here
    for _ in AGAIN:
        answer = question.asked(asked, values)
        assert list(answer.rows()) == expected
        assert answer.rowcount == len(expected)


def test_a_statement_is_prepared_once_for_numbers_of_any_size_and_outlives_a_rollback(
    driver: psycopg.Connection,
) -> None:
    asked, question = DirectConnection(driver), DirectStatement("SELECT %(n)s::BIGINT")
    for power in range(0, 63, 7):
        asked.simply("BEGIN")
        assert list(question.asked(asked, {"n": 2**power}).rows()) == [(2**power,)]
        driver.rollback()
    assert driver.execute("SELECT count(*) FROM pg_prepared_statements").fetchall() == [(1,)]


def test_rows_that_were_changed_are_counted_and_a_statement_without_rows_has_no_columns(
    driver: psycopg.Connection,
) -> None:
    asked = DirectConnection(driver)
    asked.simply("CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1), (2), (3)")
    change = DirectStatement("UPDATE t SET n = n + %(more)s WHERE n > %(least)s")
    for _ in AGAIN:
        answer = change.asked(asked, {"more": 10, "least": 1})
        assert (answer.rowcount, list(answer.types)) == (2, [])
    told = DirectStatement("DELETE FROM t WHERE n > %(least)s RETURNING n").asked(asked, {"least": 1})
    assert sorted(told.rows()) == [(42,), (43,)]


def test_errors_are_those_of_the_driver(driver: psycopg.Connection) -> None:
    asked = DirectConnection(driver)
    asked.simply("CREATE TABLE t (n INTEGER PRIMARY KEY)")
    add = DirectStatement("INSERT INTO t VALUES (%(n)s)")
    add.asked(asked, {"n": 1})
    for _ in AGAIN:
        with pytest.raises(psycopg.errors.UniqueViolation) as caught:
            add.asked(asked, {"n": 1})
        assert caught.value.sqlstate == "23505"
    with pytest.raises(psycopg.errors.SyntaxError):
        asked.simply("SELEKT")


def test_a_connection_that_was_ended_is_told_as_lost(driver: psycopg.Connection, postgres: Cluster) -> None:
    asked, question = DirectConnection(driver), DirectStatement("SELECT %(n)s::BIGINT")
    question.asked(asked, {"n": 1})
    with psycopg.connect(postgres.url("postgres").replace("+psycopg", ""), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 60000)", (driver.info.backend_pid,))  # returns when it is gone
    with pytest.raises(psycopg.OperationalError):
        question.asked(asked, {"n": 1})
    assert driver.closed
