# SPDX-License-Identifier: Apache-2.0
"""Tickets for consoles over several controllers of one database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from orchestrator.core.vms.console_session import ConsoleSession, writer_of
from orchestrator.store.database import Store
from tests.contract.store.test_store import KEY

NOW, UNTIL = 1000.0, 1030.0
TICKET = ConsoleSession(id="1", vm="v", kind="serial", actor="uid:1", bound="b", until=UNTIL)
CONTROLLERS = 4
ROUNDS = 20


def test_a_ticket_that_all_controllers_are_shown_at_once_is_used_once(store: Store, url: str) -> None:
    others = [Store(url, key=KEY, new_site="site") for _ in range(CONTROLLERS)]
    with ThreadPoolExecutor(CONTROLLERS) as pool:
        for number in range(ROUNDS):
            with store.begin() as tx:
                tx.consoles.add(replace(TICKET, id=str(number)))

            def use(controller: Store, ticket: str = str(number)) -> ConsoleSession | None:
                with controller.begin() as tx:
                    return tx.consoles.use(ticket, NOW, UNTIL)

            used = [session for session in pool.map(use, others) if session is not None]
            assert [session.id for session in used] == [str(number)]
            assert used[0].opened_at == NOW
    for controller in others:
        controller.close()


def test_a_ticket_that_is_over_opens_nothing_and_one_that_was_used_is_a_session_until_it_is_over(store: Store) -> None:
    with store.begin() as tx:
        for number in ("1", "2", "3"):
            tx.consoles.add(replace(TICKET, id=number))
        tx.consoles.add(replace(TICKET, id="4", kind="graphical"))
        assert tx.consoles.use("3", UNTIL, UNTIL + 30) is None
        assert tx.consoles.at("v", "serial", NOW) == ()
        for number in ("2", "1", "4"):
            tx.consoles.use(number, NOW + int(number), UNTIL + 5)
        tx.consoles.claim("2", NOW + 3)
        at = tx.consoles.at("v", "serial", NOW + 5)
        assert [session.id for session in at] == ["1", "2"]
        assert writer_of(at) == at[1]
        tx.consoles.renew("1", UNTIL + 60)
        assert [session.id for session in tx.consoles.at("v", "serial", UNTIL + 10)] == ["1"]
        assert (tx.consoles.count_of("uid:1", NOW), tx.consoles.count_of("uid:2", NOW)) == (4, 0)
        tx.consoles.forget_over(UNTIL + 10)
        assert tx.consoles.count_of("uid:1", NOW) == 1
        tx.consoles.remove("1")
        assert tx.consoles.at("v", "serial", NOW) == ()


def test_the_one_who_took_the_keyboard_last_writes() -> None:
    first, second, watching = (replace(TICKET, id=number, opened_at=NOW) for number in "123")
    assert writer_of([first, second]) is None
    first, second = replace(first, claimed_at=NOW), replace(second, claimed_at=NOW + 1)
    assert writer_of([first, watching, second]) == second
    assert writer_of([first, watching]) == first
