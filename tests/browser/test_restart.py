# SPDX-License-Identifier: Apache-2.0
"""A server that ends and is started again under a page that stays open."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.conftest import FLEET, PROFILE, TIMEOUT_MS
from tests.fakes.certificate import over_tls
from tests.fakes.running import client_of, running_server
from tests.fakes.simulated import wish

OTHERS = 5
"""VMs whose events come after those that the page shows: more than a new stream reads of what was before it."""


def test_a_page_says_that_its_server_is_away_and_shows_what_happened_meanwhile(
    chromium: Browser, tmp_path: Path
) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    tls = over_tls(tmp_path)

    def running(*, listens: bool) -> AbstractContextManager[Path]:
        words = ("--simulate", str(tmp_path / "fleet.yaml"), *(tls.words if listens else ()))
        return running_server(tmp_path / "s", *words, module="orchestrator.server.serve")

    context = chromium.new_context(ignore_https_errors=True)
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    with running(listens=True) as state, client_of(state) as client:
        client.wait(client.create_vm(wish("train", PROFILE)))
        token = client.create_token({"tenant": "*", "role": "operator"})["token"]
        page.goto(f"{tls.url}/web/login?to=/web/vms/default/train")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
        expect(page.locator("#away")).to_be_hidden()
        page.evaluate("window.notReloaded = true")
    expect(page.get_by_text("The server does not answer")).to_be_visible()
    with running(listens=False) as state, client_of(state) as client:
        client.wait(client.stop_vm("train", "default"))
        for number in range(OTHERS):
            client.wait(client.create_vm(wish(f"other-{number}", PROFILE)))
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    with running(listens=True):
        expect(page.get_by_role("button", name="Start", exact=True)).to_be_visible()
        expect(page.locator("#away")).to_be_hidden()
        assert page.evaluate("window.notReloaded")
    context.close()
