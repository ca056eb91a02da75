# SPDX-License-Identifier: Apache-2.0
"""Who becomes known to the pages, by what, and for how long."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from dataclasses import replace
from typing import NoReturn
from urllib.parse import urlencode

import pytest
from cryptography.fernet import Fernet
from starlette.testclient import TestClient

from orchestrator.api.app import create_app
from orchestrator.api.limits import Activity
from orchestrator.api.services import Process
from orchestrator.core.errors import Retryable
from orchestrator.core.tenancy.tenant import token_id_of
from orchestrator.web import ended_sessions
from orchestrator.web.pages import pages_beside
from orchestrator.web.proofs import COOKIE, Proof, Session
from tests.contract.web.conftest import FROM_A_PAGE, ORIGIN, Site, local_browser


def test_a_stranger_is_sent_to_the_login_from_every_page(site: Site) -> None:
    for path in ("/web/map", "/web/vms?state=lost", "/web/vms/default/train", "/web/vms/new"):
        answer = site.browser().get(path)
        assert answer.status_code == 303
        assert answer.headers["location"] == f"/web/login?{urlencode({'because': 'needed', 'to': path})}"


@pytest.mark.parametrize(
    ("to", "target"),
    [
        ("/web/vms?state=lost", "/web/vms?state=lost"),
        *((to, "/web/map") for to in (
            "", "//evil.test", "https://evil.test/web/map", "/web/\\evil", "/web/logout", "/web/login", "/v1/vms",
            "/webs", "/web/a b", "/web/" + 1000 * "a", "javascript:alert(1)",
        )),
    ],
)  # fmt: skip
def test_who_logs_in_goes_on_to_a_page_of_ours_alone(site: Site, to: str, target: str) -> None:
    form = {"token": site.token("*", "admin"), "to": to}
    answer = site.browser().post("/web/login", data=form, headers=FROM_A_PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, target)


def test_a_uid_of_the_socket_alone_opens_no_page(site: Site) -> None:
    assert site.local_command().get("/web/map", follow_redirects=False).status_code == 303


def test_a_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(site: Site) -> None:
    answer = site.browser().post("/web/login", data={"token": site.token("*", "admin")}, headers=FROM_A_PAGE)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "Path=/", "Secure", "SameSite=lax"} <= set(re.split("; ", cookie))
    assert "Domain" not in cookie


@pytest.mark.parametrize("token", ["", "nonsense", "vgpuctl_000000000000_wrong", "a b"])
def test_a_wrong_token_is_refused_beside_the_form_and_leaves_no_cookie(site: Site, token: str) -> None:
    answer = site.browser().post("/web/login", data={"token": token}, headers=FROM_A_PAGE)
    assert answer.status_code in {400, 401}
    assert 'class="refusal"' in answer.text
    assert 'name="token"' in answer.text
    assert "set-cookie" not in answer.headers


def test_a_session_ends_when_its_token_is_revoked(site: Site) -> None:
    token = site.token("default", "tenant-user")
    browser = site.logged_in(token)
    assert browser.get("/web/vms").status_code == 200
    site.plane.services.tenancy.tokens.revoke("default", token_id_of(token) or "")
    answer = browser.get("/web/vms")
    assert (answer.status_code, answer.headers["location"]) == (303, "/web/login?because=over&to=%2Fweb%2Fvms")
    assert f'{COOKIE}=""' in answer.headers["set-cookie"]


def test_a_fragment_of_an_ended_session_leads_to_the_login_and_back_to_its_page(site: Site) -> None:
    shown = {"HX-Request": "true", "HX-Current-URL": f"{ORIGIN}/web/vms?tenant=a"}
    answer = site.browser().get("/web/vms?tenant=a", headers=shown)
    assert answer.status_code == 204
    assert answer.headers["hx-redirect"] == "/web/login?because=needed&to=%2Fweb%2Fvms%3Ftenant%3Da"


def test_whoever_logs_out_is_a_stranger(site: Site) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    browser.post("/web/logout", headers=FROM_A_PAGE)
    assert browser.get("/web/map").status_code == 303


def test_whoever_logs_out_ends_every_copy_of_the_session_and_no_other_of_the_same_token(site: Site) -> None:
    token = site.token("*", "admin")
    browser, copy, other = site.logged_in(token), site.browser(), site.logged_in(token)
    copy.cookies.update(browser.cookies)
    assert copy.get("/web/map").status_code == 200
    browser.post("/web/logout", headers=FROM_A_PAGE)
    answer = copy.get("/web/map")
    assert (answer.status_code, answer.headers["location"]) == (303, "/web/login?because=needed&to=%2Fweb%2Fmap")
    assert copy.post("/web/hosts/t4/cordon", headers=FROM_A_PAGE).headers["location"].startswith("/web/login")
    assert not site.api(token).get("/v1/hosts/t4").json()["cordoned"]
    assert other.get("/web/map").status_code == 200
    assert site.logged_in(token).get("/web/map").status_code == 200


def test_a_session_that_was_logged_out_of_is_over_at_other_controllers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Fernet.generate_key()
    process = Process(started_at=time.time(), idle_seconds=None, activity=Activity())
    here, there = (
        replace(site, app=pages_beside(ring, site.plane.store)(create_app(site.plane.services, process), site.loopback))
        for _ in range(2)
    )
    browser, copy = here.logged_in(site.token("*", "admin")), there.browser()
    copy.cookies.update(browser.cookies)
    assert copy.get("/web/map").status_code == 200
    browser.post("/web/logout", headers=FROM_A_PAGE)
    monkeypatch.setattr(ended_sessions, "ASK_AGAIN_S", 0.0)
    assert copy.get("/web/map").headers["location"].startswith("/web/login")


def test_sessions_that_would_be_over_are_not_remembered(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_sessions, "ASK_AGAIN_S", 0.0)
    ended = ended_sessions.EndedSessions(site.plane.store)
    proof, now = Proof(token="t", uid=None), time.time()
    over, current = (Session(proof=proof, id=name, end=now + left) for name, left in (("over", -1), ("current", 60)))

    async def course() -> tuple[bool, bool]:
        await ended.add(over)
        await ended.add(current)
        return await ended.has(over), await ended.has(current)

    assert asyncio.run(course()) == (False, True)


def test_a_session_that_is_ended_while_others_are_read_stays_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = ended_sessions.EndedSessions(site.plane.store)
    session = Session(proof=Proof(token="t", uid=None), id="ended", end=time.time() + 60)
    reads, added = threading.Event(), threading.Event()

    def read() -> frozenset[str]:
        reads.set()
        added.wait(10)
        return frozenset()

    async def course() -> bool:
        monkeypatch.setattr(ended, "_read", read)
        reading = asyncio.create_task(ended.has(session))
        await asyncio.to_thread(reads.wait, 10)
        await ended.add(session)
        added.set()
        await reading
        return await ended.has(session)

    assert asyncio.run(course())


def test_a_logout_that_nobody_can_remember_is_refused_in_words(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    monkeypatch.setattr(site.plane.store, "begin", _away)
    answer = browser.post("/web/logout", headers=FROM_A_PAGE)
    assert (answer.status_code, "database.away" in answer.text) == (502, True)


def _away() -> NoReturn:
    raise Retryable("database.away", "the database does not answer", hint="try again")


def test_a_local_user_s_ticket_logs_in_as_that_user_once_and_on_this_machine_alone(site: Site) -> None:
    given = site.local_command().post("/web/tickets").json()
    assert re.fullmatch(r"http://vgpuctl-[0-9a-f]{16}\.localhost:[0-9]+", given["address"])
    browser = local_browser(site)
    assert given["actor"] in browser.get("/web/map").text
    for _ in range(2):  # over TLS first, then once more
        answer = site.browser().post("/web/ticket", data={"ticket": given["ticket"]}, headers=FROM_A_PAGE)
        assert answer.status_code == 403
        assert "session.ticket_refused" in answer.text
        assert "set-cookie" not in answer.headers


def test_a_token_s_ticket_ends_with_the_token(site: Site) -> None:
    token = site.token("default", "tenant-user")
    given = site.api(token).post("/web/tickets").json()
    assert given["address"] is None
    browser = site.browser()
    browser.post("/web/ticket", data={"ticket": given["ticket"]}, headers=FROM_A_PAGE)
    assert browser.get("/web/vms").status_code == 200
    site.plane.services.tenancy.tokens.revoke("default", token_id_of(token) or "")
    assert browser.get("/web/vms").status_code == 303


def test_a_stranger_gets_no_ticket(site: Site) -> None:
    assert site.browser().post("/web/tickets", headers=FROM_A_PAGE).status_code == 400
    assert site.api("vgpuctl_000000000000_wrong").post("/web/tickets").status_code == 401


def test_a_session_and_a_token_in_one_request_are_refused(site: Site) -> None:
    token = site.token("*", "admin")
    answer = site.logged_in(token).get("/web/map", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 400
    assert "session.two_proofs" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.test", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.test"},
        {"Origin": "null"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://pool.test", "Sec-Fetch-Site": "same-origin"},
        {},
    ],
)
def test_a_form_of_another_origin_does_nothing(site: Site, headers: dict[str, str]) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    answer = browser.post("/web/vms/default/train/stop", data={"key": "1"}, headers=headers)
    assert answer.status_code == 403
    assert "session.foreign_origin" in answer.text
    assert site.plane.services.vms.get("default", "train").state == "running"


@pytest.mark.parametrize(
    "headers", [FROM_A_PAGE, {"Origin": "null", "Sec-Fetch-Site": "same-origin"}, {"Origin": f"{ORIGIN}:443"}]
)
def test_a_form_of_our_own_is_taken(site: Site, headers: dict[str, str]) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    assert browser.post("/web/vms/default/train/stop", data={"key": "1"}, headers=headers).status_code == 303


def test_the_cookie_is_no_proof_to_the_api(site: Site) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    assert browser.get("/v1/vms").status_code == 401


@pytest.mark.parametrize("path", ["/web/login", "/web/map", "/web/nothing", "/web/vms"])
def test_every_answer_has_the_strict_headers(site: Site, path: str) -> None:
    answer = site.logged_in(site.token("*", "admin")).get(path)
    policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert re.fullmatch(r"'self' 'nonce-[\w-]{20,}'", policy["script-src"])
    assert policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-request-id"] in answer.text


def test_a_nonce_is_used_once(site: Site) -> None:
    browser = site.browser()
    first, second = (browser.get("/web/login").headers["content-security-policy"] for _ in range(2))
    assert first != second


def test_files_of_pages_are_kept_by_browsers_under_their_hash_alone(site: Site) -> None:
    address = re.search(r'href="(/web/static/[^"]+page\.css)"', site.browser().get("/web/login").text)
    assert address is not None
    assert "immutable" in site.browser().get(address[1]).headers["cache-control"]
    assert site.browser().get("/web/static/0000000000000000/page.css").status_code == 404
    assert site.browser().get("/web/static/0000000000000000/..%2f..%2fpages.py").status_code == 404


@pytest.mark.parametrize(
    ("site_of_link", "sent_by_itself"), [("none", True), ("cross-site", False), ("same-site", False), (None, False)]
)
def test_a_ticket_behind_another_site_s_link_waits_for_a_click(
    site: Site, site_of_link: str | None, sent_by_itself: bool
) -> None:
    headers = {} if site_of_link is None else {"Sec-Fetch-Site": site_of_link}
    page = site.browser().get("/web/ticket", headers=headers).text
    assert ("data-opened-by-reader" in page) is sent_by_itself


def test_a_session_of_this_machine_s_own_port_is_none_on_the_network(site: Site) -> None:
    local = local_browser(site)
    assert local.get("/web/map").status_code == 200
    assert site.browser().get("/web/map", headers={"Cookie": local.headers["Cookie"]}).status_code == 303


def test_nobody_s_tickets_push_out_another_s(site: Site) -> None:
    token = site.token("default", "tenant-user")
    first = site.local_command().post("/web/tickets").json()["ticket"]
    for _ in range(300):
        site.api(token).post("/web/tickets")
    assert site.loopback.serves is not None
    local = TestClient(site.loopback.serves, base_url=f"http://{site.loopback.host}", follow_redirects=False)
    answer = local.post("/web/ticket", data={"ticket": first}, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 303
