# SPDX-License-Identifier: Apache-2.0
"""What strangers, their pages and their texts can do with a browser that is logged in: nothing."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import EVIL, Arrive, ServedSite

FORM = """<form method="post" action="{target}"><input name="key" value="1"><button>Win</button></form>"""


@pytest.mark.parametrize("origin", ["http://evil.localhost", "http://evil.test"])
def test_a_form_of_a_foreign_page_does_nothing(site: ServedSite, arrive: Arrive, origin: str) -> None:
    visitor = arrive()
    target = f"{visitor.base}/web/vms/default/train/stop"
    visitor.context.route(
        f"{origin}/**", lambda route: route.fulfill(body=FORM.format(target=target), content_type="text/html")
    )
    visitor.page.goto(f"{origin}/")
    visitor.page.get_by_role("button", name="Win").click()
    expect(visitor.page.get_by_text("session.foreign_origin")).to_be_visible()
    assert site.client.vm("train", "default")["state"] == "running"


def test_a_page_is_shown_in_no_frame(arrive: Arrive) -> None:
    visitor = arrive()
    frame = f'<iframe src="{visitor.base}/web/map"></iframe>'
    visitor.context.route("http://evil.test/**", lambda route: route.fulfill(body=frame, content_type="text/html"))
    visitor.page.goto("http://evil.test/")
    expect(visitor.page.frame_locator("iframe").get_by_role("heading", name="Map")).to_have_count(0)


def test_a_used_ticket_lets_nobody_in(site: ServedSite, arrive: Arrive) -> None:
    visitor, thief = arrive(), arrive()
    base, ticket = site.ticket()
    visitor.visit(f"ticket#{ticket}")
    visitor.page.wait_for_url("**/web/map")
    thief.context.clear_cookies()
    thief.page.goto(f"{base}/web/ticket#{ticket}")
    expect(thief.page.get_by_role("alert")).to_contain_text("session.ticket_refused")
    assert ticket not in thief.page.url
    thief.visit("map")
    expect(thief.page.get_by_role("heading", name="Log in")).to_be_visible()


def test_the_pages_answer_under_their_own_name_alone(arrive: Arrive) -> None:
    visitor = arrive()
    port = visitor.base.rpartition(":")[2]
    for name in ("127.0.0.1", "localhost", "other.localhost"):
        answer = visitor.page.goto(f"http://{name}:{port}/web/login")
        assert answer is not None
        assert answer.status == 421
    answer = visitor.page.goto(f"{visitor.base}/v1/vms")
    assert answer is not None
    assert answer.status == 404


def test_text_of_tenants_is_shown_and_not_obeyed(arrive: Arrive) -> None:
    visitor = arrive()
    dialogs: list[str] = []
    visitor.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    expect(visitor.visit("tenants").get_by_text(EVIL)).to_be_visible()
    expect(visitor.page.locator("main img")).to_have_count(0)
    assert dialogs == []


def test_what_is_put_into_a_page_without_its_nonce_is_inert(arrive: Arrive) -> None:
    visitor = arrive()
    page = visitor.visit("login")
    outcome = page.evaluate(
        """() => {
            const added = document.createElement("button");
            added.setAttribute("hx-post", "/web/logout");
            document.body.append(added);
            htmx.process(added);
            const ran = [];
            window.ran = ran;
            const script = document.createElement("script");
            try { script.textContent = "window.ran.push(1)"; } catch (error) { added.title = error.message; }
            document.body.append(script);
            let wrote = true;
            try { document.body.innerHTML = "<b>x</b>"; } catch (error) { wrote = false; }
            return [added.hasAttribute("hx-post"), ran.length, wrote];
        }"""
    )
    assert outcome == [False, 0, False]


def test_a_session_ends_while_its_page_is_open(site: ServedSite, arrive: Arrive) -> None:
    number, text = site.token("vision", "read-only")
    visitor = arrive(token=text)
    visitor.visit("vms")
    site.client.revoke_token(number, "vision")
    visitor.page.wait_for_url("**/web/login?because=over&to=%2Fweb%2Fvms")
    expect(visitor.page.get_by_role("status")).to_contain_text("Your session is over")
