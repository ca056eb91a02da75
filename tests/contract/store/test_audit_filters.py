# SPDX-License-Identifier: Apache-2.0
"""Audit records of one actor or about one thing."""

from __future__ import annotations

import pytest

from orchestrator.store.database import Store
from orchestrator.store.records import AuditFilter

SAID = (
    ("uid:1", "one"), ("token:3f2a (ci)", "one"), ("token:3f2a", "two"), ("token:3f2ab (other)", "one"),
    ("token:3F2A (c_)", "two"), ("uid:1", "o_e"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("actor", "subject", "numbers"),
    [
        (None, None, [6, 5, 4, 3, 2, 1]),
        ("uid:1", None, [6, 1]),
        ("uid:1", "one", [1]),
        ("token:3f2a", None, [3, 2]),
        ("token:3f2a (ci)", None, [2]),
        ("token:3f2", None, []),
        ("ci", None, [2]),
        ("c_", None, [5]),
        ("i", None, []),
        (None, "one", [4, 2, 1]),
        (None, "o_e", [6]),
        (None, "on", []),
    ],
)
def test_records_are_picked_before_they_are_counted(
    store: Store, actor: str | None, subject: str | None, numbers: list[int]
) -> None:
    with store.begin() as tx:
        for who, what in SAID:
            tx.audit.append(at=1.0, actor=who, action="do", subject=what, outcome="done")
    with store.read() as tx:
        found = [one.sequence for one in tx.audit.newest(limit=9, actor=actor, subject=subject)]
        last = [one.sequence for one in tx.audit.newest(limit=1, actor=actor, subject=subject)]
    assert (found, last) == (numbers, numbers[:1])


@pytest.mark.parametrize(
    ("only", "numbers"),
    [
        ({"since": 20.0}, [4, 3, 2]),
        ({"until": 20.0}, [1]),
        ({"since": 20.0, "until": 30.0}, [3, 2]),
        ({"refused": True}, [4, 2]),
        ({"refused": True, "until": 30.0}, [2]),
        ({"refused": False}, [4, 3, 2, 1]),
    ],
)
def test_records_of_a_time_and_refusals_alone_are_picked(store: Store, only: AuditFilter, numbers: list[int]) -> None:
    with store.begin() as tx:
        for at, outcome in (
            (10.0, "done"),
            (20.0, "refused: vm.unknown"),
            (20.0, "not refused: x"),
            (30.0, "refused: 500"),
        ):
            tx.audit.append(at=at, actor="uid:1", action="do", subject="it", outcome=outcome)
    with store.read() as tx:
        assert [one.sequence for one in tx.audit.newest(limit=9, **only)] == numbers
        assert tx.audit.how_many(**only) == len(numbers)
