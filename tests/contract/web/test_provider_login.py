# SPDX-License-Identifier: Apache-2.0
"""A browser that is sent to the identity provider and comes back; the provider is a process of its own, with real
signatures."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest
from starlette.testclient import TestClient

from orchestrator.adapters.state.clock import SystemClock
from orchestrator.core.tenancy.tenant import Member
from orchestrator.oidc.identities import OidcIdentities, Strength
from orchestrator.oidc.provider import Provider
from orchestrator.web.proofs import ATTEMPT_COOKIE, COOKIE
from tests.contract.web.conftest import FROM_A_PAGE, ORIGIN, Site, local_browser, site_with
from tests.fakes.oidc_provider import CLIENT, OidcProvider, oidc_provider

BACK = f"{ORIGIN}/web/login/back"


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[OidcProvider]:
    with oidc_provider() as one:
        yield one


@pytest.fixture
def provider(shared_provider: OidcProvider) -> OidcProvider:
    shared_provider.claims, shared_provider.refuses, shared_provider.away = {}, False, False
    return shared_provider


@pytest.fixture
def site(tmp_path: Path, provider: OidcProvider) -> Iterator[Site]:
    strength = Strength(acr=("gold",))
    identities = OidcIdentities(Provider(issuer=provider.issuer), CLIENT, "groups", SystemClock(), strength)
    with site_with(tmp_path, identities) as made:
        made.plane.services.tenancy.tenants.put_member(
            Member(tenant="default", subject="oidc:sub:ann", role="tenant-user")
        )
        yield made


def _sent(browser: TestClient, **query: str) -> str:
    """The provider's address that the browser is sent to."""
    answer = browser.get("/web/login/provider", params=query)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def _visit(address: str) -> str:
    """What the provider answers, as the path that the browser is sent back to."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    try:
        urllib.request.build_opener(Stay).open(address, timeout=20)
    except urllib.error.HTTPError as answer:
        where = str(answer.headers["Location"])
        assert where.startswith(f"{BACK}?")
        return where.removeprefix(ORIGIN)
    raise AssertionError("it was not sent back")


def test_who_logs_in_at_the_provider_comes_back_to_the_page_and_is_that_member(site: Site) -> None:
    browser = site.browser()
    to_login = browser.get("/web/vms?state=running").headers["location"]
    page = browser.get(to_login).text
    assert "Log in at 127.0.0.1" in page
    assert 'href="/web/login/provider?to=%2Fweb%2Fvms%3Fstate%3Drunning"' in page
    answer = browser.get(_visit(_sent(browser, to="/web/vms?state=running")))
    assert (answer.status_code, answer.headers["location"]) == (303, "/web/vms?state=running"), answer.text
    shown = browser.get("/web/vms").text
    assert "oidc:sub:ann" in shown
    assert "default/train" in shown
    assert ATTEMPT_COOKIE not in browser.cookies


def test_the_provider_is_asked_for_a_code_with_all_that_binds_it(site: Site) -> None:
    browser = site.browser()
    first, second = (dict(parse_qsl(urlsplit(_sent(browser)).query)) for _ in range(2))
    fixed = {
        "response_type": "code", "client_id": CLIENT, "redirect_uri": BACK, "scope": "openid email profile",
        "code_challenge_method": "S256",
    }  # fmt: skip
    drawn = {"state", "nonce", "code_challenge"}
    assert {name: value for name, value in first.items() if name not in drawn} == fixed
    assert [name for name in drawn if first[name] == second[name]] == []
    cookie = browser.get("/web/login/provider").headers["set-cookie"]
    assert {"HttpOnly", "Path=/", "Secure", "SameSite=lax", "Max-Age=600"} <= {*cookie.split("; ")}
    assert all(first[name] not in cookie for name in drawn)


def test_another_browser_s_login_is_refused(site: Site) -> None:
    mine, theirs = site.browser(), site.browser()
    back = _visit(_sent(mine))
    for browser in (theirs, site.browser()):
        answer = browser.get(back)
        assert answer.status_code == 403
        assert "login.other_browser" in answer.text
        assert f"{COOKIE}=" not in answer.headers.get("set-cookie", "")
    _sent(theirs)
    answer = theirs.get(back)  # it has begun one, but another
    assert answer.status_code == 403
    assert "login.refused" in answer.text
    assert mine.get(back).status_code == 303


def test_a_code_is_good_once(site: Site) -> None:
    browser = site.browser()
    back = _visit(_sent(browser))
    kept = browser.cookies.get(ATTEMPT_COOKIE) or ""
    assert browser.get(back).status_code == 303
    assert site.browser().get(back, headers={"Cookie": f"{ATTEMPT_COOKIE}={kept}"}).status_code == 403


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"nonce": "another"}, "login.refused"),
        ({"nonce": None}, "login.refused"),
        ({"aud": "another"}, "token.refused"),
        ({"iss": "https://evil.test"}, "token.refused"),
        ({"exp": 1}, "token.refused"),
        ({"sub": "stranger"}, "peer.denied"),
    ],
)
def test_a_token_that_is_not_for_this_login_begins_no_session(
    site: Site, provider: OidcProvider, claims: dict[str, object], code: str
) -> None:
    provider.claims = claims
    browser = site.browser()
    answer = browser.get(_visit(_sent(browser)))
    assert answer.status_code in {401, 403}
    assert f"<code>{code}</code>" in answer.text
    assert browser.get("/web/map").status_code == 303


def test_the_provider_s_refusal_is_shown_as_text(site: Site, provider: OidcProvider) -> None:
    provider.refuses = True
    browser = site.browser()
    answer = browser.get(_visit(_sent(browser)))
    assert answer.status_code == 403
    assert "<b>not</b> today" in unescape(answer.text)
    assert "<b>not" not in answer.text


@pytest.mark.parametrize("change", [{"state": "x"}, {"state": ""}, {"iss": "https://evil.test"}, {"code": "guessed"}])
def test_an_answer_that_is_not_to_this_login_is_refused_without_its_words(site: Site, change: dict[str, str]) -> None:
    browser = site.browser()
    path, _, query = _visit(_sent(browser)).partition("?")
    words = {} if "code" in change else {"error_description": "call 555 now"}
    answer = browser.get(f"{path}?{urlencode({**dict(parse_qsl(query)), **words, **change})}")
    assert answer.status_code == 403
    assert "call 555 now" not in answer.text


def test_a_login_ends_under_the_name_that_it_began_under(site: Site) -> None:
    browser = site.browser()
    answer = browser.get(_visit(_sent(browser)), headers={"Host": "other.test"})
    assert answer.status_code == 403
    assert "login.other_browser" in answer.text


@pytest.mark.parametrize("host", ["a/b", "a?b", "a b", "", "a" * 300])
def test_nobody_is_sent_back_to_what_is_no_host(site: Site, host: str) -> None:
    answer = site.browser().get("/web/login/provider", headers={"Host": host})
    assert answer.status_code == 403
    assert "session.wrong_host" in answer.text


def test_nobody_is_led_elsewhere_after_a_login(site: Site) -> None:
    browser = site.browser()
    answer = browser.get(_visit(_sent(browser, to="https://evil.test/")))
    assert answer.headers["location"] == "/web/map"


def test_a_login_too_weak_for_its_role_is_sent_back_for_the_level(site: Site, provider: OidcProvider) -> None:
    site.plane.services.tenancy.tenants.put_member(Member(tenant="*", subject="oidc:sub:ann", role="admin"))
    browser = site.browser()
    weak = browser.get(_visit(_sent(browser)))
    assert weak.status_code == 403
    assert "login.too_weak" in weak.text
    assert "Log in at 127.0.0.1 with gold" in weak.text
    strong = _sent(browser, acr="gold")
    assert parse_qs(urlsplit(strong).query)["acr_values"] == ["gold"]
    assert browser.get(_visit(strong)).status_code == 303
    assert "acr_values" not in _sent(browser, acr="whatever")


def test_a_long_token_makes_a_session_as_a_short_one_does(site: Site, provider: OidcProvider) -> None:
    provider.claims = {"groups": [f"group-{number:04}-of-a-large-company" for number in range(150)]}
    browser = site.browser()
    assert browser.get(_visit(_sent(browser))).status_code == 303
    assert len([name for name in browser.cookies if name.startswith(COOKIE)]) == 3
    assert "oidc:sub:ann" in browser.get("/web/map").text
    provider.claims = {}
    assert browser.get(_visit(_sent(browser))).status_code == 303
    assert [name for name in browser.cookies if name.startswith(COOKIE)] == [COOKIE]
    browser.post("/web/logout", headers=FROM_A_PAGE)
    assert [*browser.cookies] == []


def test_a_session_ends_when_its_person_is_no_member_any_more(site: Site) -> None:
    browser = site.browser()
    browser.get(_visit(_sent(browser)))
    assert browser.get("/web/vms").status_code == 200
    site.plane.services.tenancy.tenants.remove_member("default", "oidc:sub:ann")
    assert browser.get("/web/vms").status_code == 403


def test_who_logs_out_is_shown_the_way_to_the_provider_s_logout_without_the_token(
    site: Site, provider: OidcProvider
) -> None:
    browser = site.browser()
    browser.get(_visit(_sent(browser)))
    page = browser.get(browser.post("/web/logout", headers=FROM_A_PAGE).headers["location"]).text
    shown = urlencode({"client_id": CLIENT, "post_logout_redirect_uri": f"{ORIGIN}/web/login"})
    assert f'href="{provider.issuer}/logout?{shown}"' in unescape(page)
    assert "id_token_hint" not in page


def test_a_local_user_s_port_sends_nobody_to_the_provider(site: Site) -> None:
    local = local_browser(site)
    assert "Log in at" not in local.get("/web/login").text
    answer = local.get("/web/login/provider")
    assert (answer.status_code, "login.no_provider" in answer.text) == (404, True)


def test_a_provider_that_is_away_is_told_beside_the_form(tmp_path: Path, provider: OidcProvider) -> None:
    provider.away = True
    identities = OidcIdentities(Provider(issuer=provider.issuer), CLIENT, "groups", SystemClock())
    with site_with(tmp_path, identities) as away:
        answer = away.browser().get("/web/login/provider")
        assert answer.status_code == 502
        assert "login.unreachable" in answer.text
        assert 'name="token"' in answer.text


def test_a_client_with_a_secret_shows_it_to_the_provider_alone(tmp_path: Path, provider: OidcProvider) -> None:
    provider.secret = "client-secret-1"
    try:
        for secret, status in (("client-secret-1", 303), (None, 403)):
            identities = OidcIdentities(
                Provider(issuer=provider.issuer), CLIENT, "groups", SystemClock(), client_secret=secret
            )
            (state := tmp_path / str(status)).mkdir()
            with site_with(state, identities) as site:
                site.plane.services.tenancy.tenants.put_member(
                    Member(tenant="default", subject="oidc:sub:ann", role="tenant-user")
                )
                browser = site.browser()
                where = _sent(browser)
                assert "client-secret-1" not in where
                assert browser.get(_visit(where)).status_code == status
    finally:
        provider.secret = None
