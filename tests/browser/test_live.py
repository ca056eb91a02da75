# SPDX-License-Identifier: Apache-2.0
"""Pages while things happen elsewhere: no reload, no polling, and nothing missed while the server was away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.browser.conftest import PROFILE, Arrive, ServedSite
from tests.fakes.simulated import wish

QUIET_MS = 3000


def _fetches(page: Page) -> list[str]:
    """What the page has fetched again from now on."""
    fetched: list[str] = []

    def note(request: Request) -> None:
        if request.headers.get("hx-target", "").startswith("div#"):
            fetched.append(request.url)

    page.on("request", note)
    return fetched


def _until_quiet(page: Page) -> None:
    """What happened to VMs just before may be told late; a page that polled would never be quiet."""
    fetched = _fetches(page)
    for _ in range(10):
        fetched.clear()
        page.wait_for_timeout(QUIET_MS)
        if not fetched:
            return
    raise AssertionError(fetched)


@contextmanager
def _made(site: ServedSite, name: str) -> Iterator[None]:
    site.client.wait(site.client.create_vm(wish(name, PROFILE)))
    yield
    site.client.wait(site.client.delete_vm(name, "default"))


def test_a_vm_made_elsewhere_appears_without_a_reload(site: ServedSite, arrive: Arrive) -> None:
    visitor = arrive()
    page = visitor.visit("vms")
    page.evaluate("window.notReloaded = true")
    _until_quiet(page)
    with _made(site, "elsewhere"):
        expect(page.get_by_role("row", name="default/elsewhere")).to_contain_text("running")
    expect(page.get_by_role("link", name="default/elsewhere")).to_have_count(0)
    assert page.evaluate("window.notReloaded")
    assert visitor.said == []


def test_what_happened_while_the_server_was_away_is_shown_when_it_is_back(site: ServedSite, arrive: Arrive) -> None:
    visitor = arrive()
    page = visitor.visit("vms")
    page.wait_for_timeout(QUIET_MS)
    visitor.context.set_offline(True)
    with _made(site, "meanwhile"):
        page.wait_for_timeout(QUIET_MS)
        expect(page.get_by_role("link", name="default/meanwhile")).to_have_count(0)
        visitor.context.set_offline(False)
        expect(page.get_by_role("link", name="default/meanwhile")).to_have_count(1)


def _cut_off(route: Route) -> None:
    route.abort()


def _refuse(route: Route) -> None:
    route.fulfill(status=503, body="busy")


@pytest.mark.parametrize("fails", [_cut_off, _refuse])
def test_a_stream_that_could_not_be_opened_with_its_page_is_opened_later(
    site: ServedSite, arrive: Arrive, fails: Callable[[Route], None]
) -> None:
    visitor = arrive()
    visitor.page.route("**/web/news?*", fails, times=1)
    page = visitor.visit("vms")
    expect(page.locator("#away")).to_be_visible()
    expect(page.locator("#away")).to_be_hidden()
    with _made(site, "later"):
        expect(page.get_by_role("row", name="default/later")).to_contain_text("running")
    assert visitor.said == []


def test_readings_are_drawn_and_numbers_stay_open_while_they_are_fetched_again(
    site: ServedSite, arrive: Arrive
) -> None:
    visitor = arrive()
    page = visitor.visit("vms/default/train")
    expect(page.locator(".plot canvas").first).to_be_visible()
    page.get_by_text("As numbers").first.click()
    moments = page.locator("details[open] tbody").first
    expect(moments).not_to_have_text(moments.text_content() or "")
    assert page.locator(".plot canvas").count() == page.locator(".plot").count()
    assert visitor.said == []


def test_a_stream_that_somebody_has_put_into_a_page_is_not_listened_to(arrive: Arrive) -> None:
    visitor = arrive()
    page = visitor.visit("vms")
    page.evaluate("""() => {
        const put = document.createElement("div");
        put.setAttribute("hx-sse:connect", "/web/news?noun=vm");
        put.addEventListener("htmx:sse:after:connection", () => { window.listened = true; });
        document.body.append(put);
        htmx.process(put);
    }""")
    page.wait_for_timeout(QUIET_MS)
    assert page.evaluate("window.listened") is None
