# SPDX-License-Identifier: Apache-2.0
"""A guest's serial console and its screen in a real browser: through page, server, SSH, agent, libvirt and QEMU."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import started_chromium
from tests.fakes.running import client_of
from tests.fakes.several import until
from tests.lab.enrolled import Enrolled
from tests.lab.product import Product

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("enrolment", ["t4"], indirect=True)]

GUEST_MS = 240_000
"""Under emulation everything takes a while."""
COLOURS = """() => {
  const canvas = document.querySelector("#console-place canvas");
  if (!canvas || !canvas.width) return 0;
  const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return new Set(pixels).size;
}"""


def logged_in(browser: Browser, product: Product) -> Page:
    context = browser.new_context()
    context.set_default_timeout(GUEST_MS)
    page = context.new_page()
    with client_of(product.state) as client:
        given = client.web_ticket()
    page.goto(f"{given['address']}/web/ticket#{given['ticket']}")
    page.wait_for_url("**/web/map")
    return page


def opened(page: Page, kind: str) -> Page:
    page.goto(f"{page.url.partition('/web/')[0]}/web/vms/default/seen/{kind}")
    expect(page.locator("#console-state")).to_have_text("Connected.")
    return page


def test_two_people_at_a_guest_s_console_and_its_screen(enrolled: Enrolled) -> None:
    expect.set_options(timeout=GUEST_MS)
    product = enrolled.product
    product.ok(*enrolled.request("seen", "--ssh-key", enrolled.public_key))
    with started_chromium() as browser:
        writer, watcher = (opened(logged_in(browser, product), "console") for _ in range(2))
        expect(watcher.locator("#console-who")).to_contain_text("you watch")
        expect(writer.locator(".xterm-rows")).to_contain_text("vgpu-guest")  # what it printed when it booted
        writer.get_by_role("button", name="Type into it").click()
        writer.keyboard.type("echo $((6 * 7))-from-the-guest\n")
        for page in (writer, watcher):
            expect(page.locator(".xterm-rows")).to_contain_text("42-from-the-guest")
        screen = opened(watcher, "screen")
        until(lambda: screen.evaluate(COLOURS) > 1, "a picture of the guest", GUEST_MS / 1000)
        product.ok("stop-vm", "seen", "--force")
        expect(writer.locator("#console-again")).to_be_visible()
        expect(screen.locator("#console-again")).to_be_visible()
    assert product.json("doctor") == []
    product.ok("delete-vm", "seen", "--yes")
