# SPDX-License-Identifier: Apache-2.0
"""The audit on both databases: what it tells, and what of tampering it shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from orchestrator.core.errors import InvalidInput
from orchestrator.core.tenancy.audit import Verdict
from orchestrator.services.tenancy.tenancy import Tenancy, tenancy
from orchestrator.store.database import Store
from tests.fakes.fake_world import FakeClock
from tests.fakes.new_database import engine_beside
from tests.postgres.cluster import Cluster

KEY = b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ="
RECORDS = 6


class Log:
    """A sealed audit, and somebody who writes to its database directly."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = Store(url, key=KEY, new_site="site")
        self.people: Tenancy = tenancy(self.store, FakeClock(), owner_uid=0, key=KEY)
        for number in range(RECORDS - 1):  # the first one is the default tenant's
            self.people.tenants.create(f"t{number}")
        self.people.audit.seal()

    def tamper(self, *statements: str) -> None:
        engine = engine_beside(self.url)
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()

    def verdict(self, noted: str | None = None) -> Verdict:
        return self.people.audit.verify(noted)


@pytest.fixture(params=["sqlite", "postgresql"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    url = f"sqlite:///{tmp_path / 'x.sqlite'}"
    if request.param == "postgresql":
        postgres: Cluster = request.getfixturevalue("postgres")
        url = postgres.database()
    made = Log(url)
    yield made
    made.store.close()


def test_an_untouched_audit_has_no_problems_and_its_head_stays_in_the_chain(log: Log) -> None:
    first = log.verdict()
    assert (first.sealed, first.unsealed, first.problems) == (RECORDS, 0, ())
    log.people.tenants.create("later")
    assert (log.verdict().sealed, log.verdict().unsealed) == (RECORDS, 1)
    log.people.audit.seal()
    log.people.audit.seal()
    assert log.verdict(str(first.head)).problems == ()
    assert log.verdict().sealed == RECORDS + 1


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE audit SET actor = 'uid:1' WHERE sequence = 3", "record 3 was changed"),
        ("UPDATE audit SET at = at + 1 WHERE sequence = 1", "record 1 was changed"),
        ("UPDATE audit SET outcome = 'done.' WHERE sequence = 6", "record 6 was changed"),
        ("DELETE FROM audit WHERE sequence = 3", "record 4 was changed, or one before it changed or removed"),
        ("DELETE FROM audit WHERE sequence = 1", "record 2 was changed, or one before it changed or removed"),
        ("DELETE FROM audit WHERE sequence >= 5", "records after record 4 are missing"),
        ("DELETE FROM audit", "records after the beginning are missing"),
        ("UPDATE audit SET seal = NULL WHERE sequence = 2", "record 2 was put in after"),
        ("UPDATE audit SET sequence = 100 WHERE sequence = 2", "record 3 was changed, or one before it"),
        ("DELETE FROM meta WHERE key = 'audit_head'", "the head of the chain is missing"),
    ],
)
def test_a_record_that_was_changed_put_in_or_removed_is_told(log: Log, statement: str, problem: str) -> None:
    log.tamper(statement)
    assert any(said.startswith(problem) for said in log.verdict().problems), log.verdict().problems


def test_one_changed_record_is_told_once_and_no_other_is_blamed(log: Log) -> None:
    log.tamper("UPDATE audit SET subject = 'x' WHERE sequence = 2")
    assert len(log.verdict().problems) == 1


def test_an_end_cut_off_together_with_its_head_shows_against_a_head_noted_elsewhere(log: Log) -> None:
    older = log.verdict().head
    log.people.tenants.create("later")
    log.people.audit.seal()
    noted = str(log.verdict().head)
    log.tamper("DELETE FROM audit WHERE sequence > 6", f"UPDATE meta SET value = '{older}' WHERE key = 'audit_head'")
    assert log.verdict().problems == ()
    assert log.verdict(noted).problems != ()


def test_seals_made_with_another_key_are_not_ours(log: Log) -> None:
    other = replace(log.people.audit, key=b"other")
    assert len(other.verify().problems) == RECORDS


@pytest.mark.parametrize("head", ["", "0:" + "a" * 64, "1:" + "A" * 64, "1", "x:y", "1:" + "a" * 64 + "\n"])
def test_what_is_no_head_is_refused(log: Log, head: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        log.verdict(head)
    assert caught.value.code == "audit.head_invalid"


def test_the_list_begins_with_the_newest_and_goes_on_before_any(log: Log) -> None:
    newest = log.people.audit.list(limit=2)
    assert [one.sequence for one in newest] == [RECORDS, RECORDS - 1]
    assert [one.sequence for one in log.people.audit.list(limit=9, before=3)] == [2, 1]
