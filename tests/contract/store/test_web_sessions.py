# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from orchestrator.store.database import Store
from orchestrator.store.web_sessions import MAX_ENDED_OF_CREDENTIAL


def test_a_session_that_was_ended_is_remembered_until_it_is_over(store: Store) -> None:
    with store.begin() as tx:
        for name, until in (("a", 100.0), ("b", 200.0), ("a", 100.0)):
            tx.ended_web_sessions.add(name, "token", until)
        tx.ended_web_sessions.forget_over(99.0)
    with store.read() as tx:
        assert tx.ended_web_sessions.ids() == {"a", "b"}
    with store.begin() as tx:
        tx.ended_web_sessions.forget_over(100.0)
        assert tx.ended_web_sessions.ids() == {"b"}


def test_who_logs_in_and_out_for_ever_forgets_its_own_sessions_alone(store: Store) -> None:
    with store.begin() as tx:
        tx.ended_web_sessions.add("other", "another", 1.0)
        for number in range(MAX_ENDED_OF_CREDENTIAL + 2):
            tx.ended_web_sessions.add(f"{number}", "token", 100.0 + number)
        ids = tx.ended_web_sessions.ids()
    assert len(ids) == MAX_ENDED_OF_CREDENTIAL + 1
    assert "other" in ids
    assert ids.isdisjoint({"0", "1"})
