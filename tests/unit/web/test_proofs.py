# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64

import pytest
from cryptography.fernet import Fernet

from orchestrator.core.tenancy.key_ring import with_new_key
from orchestrator.store.secrets import SecretBox
from orchestrator.web.proofs import (
    ATTEMPT_S,
    COOKIE,
    COOKIES,
    MAX_COOKIE,
    MAX_TICKETS,
    SESSION_S,
    TICKET_S,
    BrowserSessions,
    LoginAttempt,
    Proof,
    Session,
    Tickets,
)  # fmt: skip

RING = Fernet.generate_key()
HOST = "vgpuctl-1.localhost:4000"
PROOF = Proof(token="vgpuctl_0123456789ab_secret")


def proof_of(session: Session | None) -> Proof | None:
    return None if session is None else session.proof


class Hands:
    """A clock whose hands somebody moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("proof", [PROOF, Proof(uid=0), Proof(uid=1000)])
def test_a_session_holds_what_was_shown(proof: Proof) -> None:
    cookies = BrowserSessions(RING, Hands()).seal(proof, HOST)
    assert cookies is not None
    assert proof_of(BrowserSessions(RING, Hands()).open(cookies, HOST)) == proof


def test_a_uid_is_nobody_on_the_network() -> None:
    cookies = BrowserSessions(RING, Hands()).seal(Proof(uid=0)) or {}
    assert BrowserSessions(RING, Hands()).open(cookies) is None


@pytest.mark.parametrize("length", [10, 2_000, 3_000, 8_000])
def test_a_long_token_is_in_several_cookies_that_browsers_keep(length: int) -> None:
    sessions, proof = BrowserSessions(RING, Hands()), Proof(token="x" * length)
    cookies = sessions.seal(proof) or {}
    assert max(map(len, cookies.values())) <= MAX_COOKIE + 2
    assert proof_of(sessions.open(cookies)) == proof
    left = {name: "left by another session" for name in COOKIES if name not in cookies}
    assert proof_of(sessions.open({**cookies, **left})) == proof
    for name in cookies:
        assert sessions.open({**cookies, name: cookies[name][:-4]}) is None
        assert sessions.open({other: cookies[other] for other in cookies if other != name}) is None


def test_a_session_ends_by_itself() -> None:
    clock = Hands()
    sessions = BrowserSessions(RING, clock)
    value = sessions.seal(PROOF) or {}
    clock.now += SESSION_S - 1
    assert proof_of(sessions.open(value)) == PROOF
    clock.now += 1
    assert sessions.open(value) is None


def test_a_cookie_shows_nothing_of_its_token() -> None:
    assert "secret" not in (BrowserSessions(RING, Hands()).seal(PROOF) or {COOKIE: "secret"})[COOKIE]


def test_a_session_outlives_a_change_of_the_key_until_the_old_one_goes() -> None:
    value = BrowserSessions(RING, Hands()).seal(PROOF) or {}
    assert proof_of(BrowserSessions(with_new_key(RING, Fernet.generate_key()), Hands()).open(value)) == PROOF
    assert BrowserSessions(Fernet.generate_key(), Hands()).open(value) is None


@pytest.mark.parametrize(
    "value", ["", "x", "AAAA", "\N{SNOWMAN}", "1.", "1.AAAA", "9.AAAA", "\u0661.A", "1." + "Ag" * 40]
)
def test_what_is_no_session_opens_nothing(value: str) -> None:
    assert BrowserSessions(RING, Hands()).open({COOKIE: value}) is None


@pytest.mark.parametrize("row", ["user_data.1", "web.session", "web.login"])
def test_another_sealed_text_is_no_session(row: str) -> None:
    """Neither a stored secret, nor what an earlier version sealed, nor a login that has not ended."""
    sealed = SecretBox(RING).close(row, '{"token": null, "uid": 0, "end": 1e12}')
    value = base64.urlsafe_b64encode(sealed).decode()
    assert BrowserSessions(RING, Hands()).open({COOKIE: value}) is None
    assert BrowserSessions(RING, Hands()).open({COOKIE: f"1.{value}"}) is None


def test_a_token_that_a_browser_would_drop_is_refused() -> None:
    assert BrowserSessions(RING, Hands()).seal(Proof(token="x" * len(COOKIES) * MAX_COOKIE)) is None


def test_a_login_that_was_begun_is_kept_for_ten_minutes_and_is_no_session() -> None:
    clock = Hands()
    sessions, attempt = BrowserSessions(RING, clock), LoginAttempt(kept={"state": "a"}, target="/web/map")
    value = sessions.seal_attempt(attempt)
    assert sessions.open({COOKIE: f"1.{value}"}) is None
    assert sessions.open_attempt((sessions.seal(PROOF) or {})[COOKIE][2:]) is None
    clock.now += ATTEMPT_S - 1
    assert sessions.open_attempt(value) == attempt
    clock.now += 1
    assert sessions.open_attempt(value) is None


def test_a_ticket_is_good_once() -> None:
    tickets = Tickets(Hands())
    ticket = tickets.give(PROOF, "ann")
    assert tickets.take(ticket) == PROOF
    assert tickets.take(ticket) is None


def test_a_ticket_is_good_for_a_minute() -> None:
    clock = Hands()
    tickets = Tickets(clock)
    late, in_time = tickets.give(PROOF, "ann"), tickets.give(PROOF, "ann")
    clock.now += TICKET_S - 1
    assert tickets.take(in_time) == PROOF
    clock.now += 1
    assert tickets.take(late) is None


def test_a_ticket_that_nobody_gave_is_none() -> None:
    tickets = Tickets(Hands())
    tickets.give(PROOF, "ann")
    assert tickets.take("guessed") is None


def test_the_oldest_ticket_of_a_person_goes_when_there_are_too_many() -> None:
    tickets = Tickets(Hands())
    bens = tickets.give(PROOF, "ben")
    given = [tickets.give(PROOF, "ann") for _ in range(MAX_TICKETS + 1)]
    assert tickets.take(given[0]) is None
    assert tickets.take(given[1]) == PROOF
    assert tickets.take(given[-1]) == PROOF
    assert tickets.take(bens) == PROOF


def test_a_session_of_one_host_is_none_at_another_nor_on_the_network() -> None:
    sessions = BrowserSessions(RING, Hands())
    local = sessions.seal(PROOF, "vgpuctl-1.localhost:4000") or {}
    assert proof_of(sessions.open(local, "vgpuctl-1.localhost:4000")) == PROOF
    assert sessions.open(local, "vgpuctl-2.localhost:4000") is None
    assert sessions.open(local) is None
    assert sessions.open(sessions.seal(PROOF) or {}, "vgpuctl-1.localhost:4000") is None
