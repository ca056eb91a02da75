# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64

import pytest
from cryptography.fernet import Fernet

from orchestrator.core.tenancy.key_ring import with_new_key
from orchestrator.store.secrets import SecretBox
from orchestrator.web.proofs import MAX_COOKIE, MAX_TICKETS, SESSION_S, TICKET_S, BrowserSessions, Proof, Tickets

RING = Fernet.generate_key()
PROOF = Proof(token="vgpuctl_0123456789ab_secret")


class Hands:
    """A clock whose hands somebody moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("proof", [PROOF, Proof(uid=0), Proof(uid=1000)])
def test_a_session_holds_what_was_shown(proof: Proof) -> None:
    value = BrowserSessions(RING, Hands()).seal(proof)
    assert value is not None
    assert BrowserSessions(RING, Hands()).open(value) == proof


def test_a_session_ends_by_itself() -> None:
    clock = Hands()
    sessions = BrowserSessions(RING, clock)
    value = sessions.seal(PROOF) or ""
    clock.now += SESSION_S - 1
    assert sessions.open(value) == PROOF
    clock.now += 1
    assert sessions.open(value) is None


def test_a_cookie_shows_nothing_of_its_token() -> None:
    assert "secret" not in (BrowserSessions(RING, Hands()).seal(PROOF) or "secret")


def test_a_session_outlives_a_change_of_the_key_until_the_old_one_goes() -> None:
    value = BrowserSessions(RING, Hands()).seal(PROOF) or ""
    assert BrowserSessions(with_new_key(RING, Fernet.generate_key()), Hands()).open(value) == PROOF
    assert BrowserSessions(Fernet.generate_key(), Hands()).open(value) is None


@pytest.mark.parametrize("value", ["", "x", "AAAA", "\N{SNOWMAN}", "Ag" * 40])
def test_what_is_no_session_opens_nothing(value: str) -> None:
    assert BrowserSessions(RING, Hands()).open(value) is None


def test_another_stored_secret_is_no_session() -> None:
    stored = SecretBox(RING).close("user_data.1", '{"token": null, "uid": 0, "end": 1e12}')
    assert BrowserSessions(RING, Hands()).open(base64.urlsafe_b64encode(stored).decode()) is None


def test_a_token_that_a_browser_would_drop_is_refused() -> None:
    assert BrowserSessions(RING, Hands()).seal(Proof(token="x" * MAX_COOKIE)) is None


def test_a_ticket_is_good_once() -> None:
    tickets = Tickets(Hands())
    ticket = tickets.give(PROOF)
    assert tickets.take(ticket) == PROOF
    assert tickets.take(ticket) is None


def test_a_ticket_is_good_for_a_minute() -> None:
    clock = Hands()
    tickets = Tickets(clock)
    late, in_time = tickets.give(PROOF), tickets.give(PROOF)
    clock.now += TICKET_S - 1
    assert tickets.take(in_time) == PROOF
    clock.now += 1
    assert tickets.take(late) is None


def test_a_ticket_that_nobody_gave_is_none() -> None:
    tickets = Tickets(Hands())
    tickets.give(PROOF)
    assert tickets.take("guessed") is None


def test_the_oldest_tickets_go_when_there_are_too_many() -> None:
    tickets = Tickets(Hands())
    given = [tickets.give(PROOF) for _ in range(MAX_TICKETS + 1)]
    assert tickets.take(given[0]) is None
    assert tickets.take(given[1]) == PROOF
    assert tickets.take(given[-1]) == PROOF


def test_a_session_of_one_host_is_none_at_another_nor_on_the_network() -> None:
    sessions = BrowserSessions(RING, Hands())
    local = sessions.seal(PROOF, "vgpuctl-1.localhost:4000") or ""
    assert sessions.open(local, "vgpuctl-1.localhost:4000") == PROOF
    assert sessions.open(local, "vgpuctl-2.localhost:4000") is None
    assert sessions.open(local) is None
    assert sessions.open(sessions.seal(PROOF) or "", "vgpuctl-1.localhost:4000") is None
