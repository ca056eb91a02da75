# SPDX-License-Identifier: Apache-2.0
"""Consoles of pages: what a ticket is bound to, who writes, and what ends it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse, WebSocketTestSession
from starlette.websockets import WebSocketDisconnect

from orchestrator.api.routes import console_sessions
from orchestrator.core.errors import Conflict
from orchestrator.core.tenancy.tenant import token_id_of
from orchestrator.core.vms.console_session import MAX_OF_ACTOR
from orchestrator.web import guard
from tests.contract.web.conftest import FROM_A_PAGE, ORIGIN, Site
from tests.fakes.rfb import PRESSED_A, Viewer

PAGE = "/web/vms/default/train"
API = "/v1/vms/train"


def ticket_of(browser: TestClient, kind: str = "serial") -> str:
    answer = browser.post(f"{PAGE}/console-tickets", data={"kind": kind}, headers=FROM_A_PAGE)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["ticket"])


def opened(
    browser: TestClient, ticket: str, path: str = f"{PAGE}/console-sessions/serial", origin: str | None = ORIGIN
) -> WebSocketTestSession:
    headers = {} if origin is None else {"Origin": origin}
    return browser.websocket_connect(f"wss://pool.test{path}", ["binary", f"ticket.{ticket}"], headers=headers)


def at_console(stream: WebSocketTestSession) -> Any:
    """What its client is told next of who is there."""
    return json.loads(stream.receive_text())["at"]


def audited(site: Site) -> list[tuple[str, str, str]]:
    with site.plane.store.read() as tx:
        return [(record.action, record.subject, record.outcome) for record in tx.audit.newest(limit=50)]


def test_a_page_s_ticket_opens_a_console_and_how_long_it_was_open_is_on_record(site: Site) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    with opened(browser, ticket_of(browser)) as stream:
        assert stream.accepted_subprotocol == "binary"
        at = at_console(stream)
        assert (at["you_write"], at["watching"]) == (True, [])
        assert stream.receive_bytes().startswith(b"console of ")
        stream.send_bytes(b"hello")
        assert stream.receive_bytes() == b"hello"
    actions = audited(site)
    assert ("open_console", "default/train", "accepted") in actions
    assert any(row[:2] == ("close_console", "default/train") and row[2].startswith("closed after ") for row in actions)


Change = Callable[[Site, TestClient, str], WebSocketTestSession]


def _used(site: Site, browser: TestClient, ticket: str) -> WebSocketTestSession:
    with opened(browser, ticket) as stream:
        at_console(stream)
        stream.receive_bytes()
        return opened(browser, ticket)


def _of_another_login(site: Site, browser: TestClient, ticket: str) -> WebSocketTestSession:
    return opened(site.logged_in(site.token("default", "tenant-user")), ticket)


def _of_another_origin(site: Site, browser: TestClient, ticket: str) -> WebSocketTestSession:
    return opened(browser, ticket, origin="https://evil.test")


def _of_no_origin(site: Site, browser: TestClient, ticket: str) -> WebSocketTestSession:
    return opened(browser, ticket, origin=None)


def _of_another_kind(site: Site, browser: TestClient, ticket: str) -> WebSocketTestSession:
    return opened(browser, ticket, f"{PAGE}/console-sessions/graphical")


def _of_another_vm(site: Site, browser: TestClient, ticket: str) -> WebSocketTestSession:
    return opened(browser, ticket, "/web/vms/default/other/console-sessions/serial")


def _late(site: Site, browser: TestClient, ticket: str) -> WebSocketTestSession:
    site.plane.world.clock.sleep(31)
    return opened(browser, ticket)


def _without_a_session(site: Site, browser: TestClient, ticket: str) -> WebSocketTestSession:
    return opened(site.browser(), ticket)


def _guessed(site: Site, browser: TestClient, ticket: str) -> WebSocketTestSession:
    return opened(browser, "x" * 43)


@pytest.mark.parametrize(
    "stolen",
    [
        _used, _of_another_login, _of_another_origin, _of_no_origin, _of_another_kind, _of_another_vm, _late,
        _without_a_session, _guessed,
    ],
)  # fmt: skip
def test_a_ticket_that_is_shown_by_another_or_again_opens_nothing(site: Site, stolen: Change) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    before = [row for row in audited(site) if row[0] == "open_console"]
    with pytest.raises(WebSocketDisconnect), stolen(site, browser, ticket_of(browser)):
        raise AssertionError("it opened")
    opened_now = [row for row in audited(site) if row[0] == "open_console"]
    assert len(opened_now) - len(before) == (1 if stolen is _used else 0)


@pytest.mark.parametrize(
    ("headers", "protocols", "code"),
    [
        ({}, ["binary"], "console.ticket_missing"),
        ({}, ["ticket.x"], "console.ticket_missing"),
        ({}, ["binary", "ticket.x", "ticket.y"], "console.ticket_missing"),
        ({}, ["binary", "ticket.x"], "console.ticket_refused"),
        ({"Origin": ORIGIN}, ["binary", "ticket.{ticket}"], "console.ticket_refused"),
    ],
)
def test_the_api_refuses_a_stream_without_its_ticket_in_words_and_on_record(
    site: Site, headers: Mapping[str, str], protocols: list[str], code: str
) -> None:
    client = site.api(site.token("default", "tenant-user"))
    ticket = client.post(f"{API}/console-tickets", json={"kind": "serial"}).json()["ticket"]
    offered = [protocol.format(ticket=ticket) for protocol in protocols]
    with (
        pytest.raises(WebSocketDenialResponse) as refused,
        client.websocket_connect(f"wss://pool.test{API}/console-sessions/serial", offered, headers=headers),
    ):
        raise AssertionError("it opened")
    assert (refused.value.status_code, refused.value.json()["code"]) == (403, code)
    assert any(row[2] == f"refused: {code}" for row in audited(site))


def test_a_program_opens_one_with_its_token_and_no_origin(site: Site) -> None:
    client = site.api(site.token("default", "tenant-user"))
    answer = client.post(f"{API}/console-tickets", json={"kind": "graphical"})
    with opened(client, answer.json()["ticket"], f"{API}/console-sessions/graphical", origin=None) as stream:
        assert at_console(stream)["you_write"]
        viewer = Viewer(stream.send_bytes, _Bytes(stream).read)
        viewer.greet()
        assert set(viewer.picture().pixels) == {0x20}


class _Bytes:
    def __init__(self, stream: WebSocketTestSession) -> None:
        self._stream, self._kept = stream, b""

    def read(self, size: int) -> bytes:
        if not self._kept:
            self._kept = self._stream.receive_bytes()
        read, self._kept = self._kept[:size], self._kept[size:]
        return read


@pytest.mark.parametrize("role", ["read-only"])
def test_who_may_not_use_a_vm_gets_no_ticket_for_it(site: Site, role: Any) -> None:
    browser = site.logged_in(site.token("default", role))
    answer = browser.post(f"{PAGE}/console-tickets", data={"kind": "serial"}, headers=FROM_A_PAGE)
    assert (answer.status_code, answer.json()["code"]) == (403, "access.denied")


def test_two_people_see_one_console_and_the_one_who_took_it_over_writes(site: Site) -> None:
    first, second = (site.logged_in(site.token("default", "tenant-user")) for _ in range(2))
    with opened(first, ticket_of(first)) as one, opened(second, ticket_of(second)) as two:
        assert at_console(one)["you_write"]
        assert one.receive_bytes().startswith(b"console of ")
        watching, changed = at_console(two), at_console(one)
        assert (watching["you_write"], watching["writer"]) == (False, changed["writer"])
        assert changed["watching"] == watching["watching"] != []
        assert two.receive_bytes().startswith(b"console of ")
        two.send_bytes(b"not me")
        one.send_bytes(b"me")
        assert (one.receive_bytes(), two.receive_bytes()) == (b"me", b"me")
        two.send_text('{"take_over": true}')
        assert at_console(two)["you_write"]
        assert not at_console(one)["you_write"]
        one.send_bytes(b"not any more")
        two.send_bytes(b"now me")
        assert (one.receive_bytes(), two.receive_bytes()) == (b"now me", b"now me")
    assert any(row[0] == "take_over_console" for row in audited(site))


def test_who_watches_a_screen_sends_no_key_to_it(site: Site) -> None:
    first, second = (site.logged_in(site.token("default", "tenant-user")) for _ in range(2))
    path = f"{PAGE}/console-sessions/graphical"
    with (
        opened(first, ticket_of(first, "graphical"), path) as one,
        opened(second, ticket_of(second, "graphical"), path) as two,
    ):
        assert at_console(one)["you_write"]
        assert not at_console(two)["you_write"]
        viewer = Viewer(two.send_bytes, _Bytes(two).read)
        viewer.greet()
        before = viewer.picture().pixels
        two.send_bytes(PRESSED_A)
        assert viewer.picture().pixels == before
        two.send_text('{"take_over": true}')
        two.send_bytes(PRESSED_A)
        at_console(two)
        assert viewer.picture().pixels != before


def test_whoever_logs_out_closes_the_consoles_of_the_session(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "ASK_AGAIN_S", 0.1)
    browser, other = (site.logged_in(site.token("default", "tenant-user")) for _ in range(2))
    with opened(browser, ticket_of(browser)) as stream:
        at_console(stream)
        stream.receive_bytes()
        for leaving, code in ((other, None), (browser, 1008)):
            leaving.post("/web/logout", headers=FROM_A_PAGE)
            stream.send_bytes(b"x")
            heard = [stream.receive() for _ in range(1 if code is None else 2)]
            assert heard[-1].get("code") == code
    assert any(row[:2] == ("close_console", "default/train") for row in audited(site))


def test_a_guest_that_has_its_terminal_answer_keeps_no_console_open(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_sessions, "ASK_AGAIN_S", 0.05)
    monkeypatch.setattr(console_sessions, "IDLE_S", 2.0)
    browser = site.logged_in(site.token("default", "tenant-user"))
    with opened(browser, ticket_of(browser)) as stream:
        at_console(stream)
        assert stream.receive_bytes().startswith(b"console of ")
        typed_until = time.monotonic() + 3
        while time.monotonic() < typed_until:
            assert _echoed(stream, b"x") is None
            time.sleep(0.1)
        while (message := _echoed(stream, b"\x1b[12;40R")) is None:
            time.sleep(0.1)
    assert message == "console.idle"


def _echoed(stream: WebSocketTestSession, sent: bytes) -> str | None:
    """None: it was; else why the console ended."""
    stream.send_bytes(sent)
    heard = stream.receive()
    return None if "text" not in heard else str(json.loads(heard["text"])["problem"]["code"])


def test_a_host_may_take_a_minute_to_open_a_console(site: Site) -> None:
    consoles, clock = site.plane.services.consoles, site.plane.world.clock
    ticket, _ = consoles.give("default", "train", "serial", "uid:1", None)
    session = consoles.use(ticket, "default", "train", "serial", "uid:1", None)
    clock.sleep(60)
    assert consoles.at("default", session).you_write
    clock.sleep(200)
    with pytest.raises(Conflict) as over:
        consoles.at("default", session)
    assert over.value.code == "console.over"


def test_a_person_has_so_many_consoles_and_no_more(site: Site) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    for _ in range(MAX_OF_ACTOR):
        ticket_of(browser)
    answer = browser.post(f"{PAGE}/console-tickets", data={"kind": "serial"}, headers=FROM_A_PAGE)
    assert (answer.status_code, answer.json()["code"]) == (409, "console.too_many")
    ticket_of(site.logged_in(site.token("default", "tenant-user")))


def test_a_console_ends_when_its_token_is_revoked(site: Site) -> None:
    token = site.token("default", "tenant-user")
    browser = site.logged_in(token)
    with opened(browser, ticket_of(browser)) as stream:
        at_console(stream)
        stream.receive_bytes()
        site.plane.services.tenancy.tokens.revoke("default", token_id_of(token) or "")
        assert stream.receive() == {"type": "websocket.close", "code": 1008, "reason": "who opened it may no longer"}


def test_a_console_ends_with_its_vm_and_its_page_is_told_so(site: Site) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    with opened(browser, ticket_of(browser)) as stream:
        at_console(stream)
        stream.receive_bytes()
        site.plane.services.vms.stop("default", "train")
        site.plane.engine.drain()
        assert json.loads(stream.receive_text())["problem"]["code"] == "vm.not_running"
        assert stream.receive()["code"] == 4000


def test_a_vm_without_a_screen_says_so_to_its_page(site: Site) -> None:
    """And nothing of who is at it: the page takes that as being connected."""
    vm = site.plane.services.vms.get("default", "train")
    site.plane.hosts.without_screen.add(vm.id)
    browser = site.logged_in(site.token("default", "tenant-user"))
    with opened(browser, ticket_of(browser, "graphical"), f"{PAGE}/console-sessions/graphical") as stream:
        problem = json.loads(stream.receive_text())["problem"]
        assert (problem["code"], "restart-vm" in problem["hint"]) == ("vm.no_display", True)
        assert stream.receive()["code"] == 4000


@pytest.mark.parametrize("text", ["x", "[" * 199, '{"take_over": false}', "y" * 100_000])
def test_text_that_is_no_wish_ends_the_stream(site: Site, text: str) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    with opened(browser, ticket_of(browser)) as stream:
        at_console(stream)
        stream.receive_bytes()
        stream.send_text(text)
        assert stream.receive()["code"] == 1003


def test_bytes_that_no_viewer_says_end_a_screen(site: Site) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    with opened(browser, ticket_of(browser, "graphical"), f"{PAGE}/console-sessions/graphical") as stream:
        at_console(stream)
        stream.receive_bytes()
        stream.send_bytes(b"RFB 003.008\n\x01\x01GET / HTTP/1.1\r\n\r\n")
        while "text" not in (message := stream.receive()):
            assert "bytes" in message
        assert json.loads(message["text"])["problem"]["code"] == "console.no_rfb"


@pytest.mark.parametrize("path", ["/web/map", "/web/nothing", f"{PAGE}/console-sessions/other"])
def test_a_websocket_to_another_page_is_refused(site: Site, path: str) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    with pytest.raises(WebSocketDisconnect), opened(browser, "x", path):
        raise AssertionError("it opened")


def test_the_local_port_opens_consoles_for_its_own_session_alone(site: Site) -> None:
    given = site.local_command().post("/web/tickets").json()
    assert site.loopback.serves is not None
    own = given["address"]
    local = TestClient(site.loopback.serves, base_url=own, follow_redirects=False)
    answer = local.post("/web/ticket", data={"ticket": given["ticket"]}, headers={"Sec-Fetch-Site": "same-origin"})
    cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    ticket = local.post(f"{PAGE}/console-tickets", data={"kind": "serial"}, headers={**cookie, "Origin": own}).json()[
        "ticket"
    ]
    target, protocols = f"{own.replace('http', 'ws', 1)}{PAGE}/console-sessions/serial", ["binary", f"ticket.{ticket}"]
    for headers in ({"Origin": own}, {**cookie, "Origin": "http://evil.localhost"}):
        with pytest.raises(WebSocketDisconnect), local.websocket_connect(target, protocols, headers=headers):
            raise AssertionError("it opened")
    with local.websocket_connect(target, protocols, headers={**cookie, "Origin": own}) as stream:
        assert at_console(stream)["you_write"]
