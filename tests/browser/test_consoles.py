# SPDX-License-Identifier: Apache-2.0
"""Consoles of VMs in a page: their keys, who writes, what ends them, and that the server may go away meanwhile."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.conftest import Arrive

VM = "vms/default/train"


def terminal_has(page: Page, text: str) -> None:
    expect(page.locator(".xterm-rows")).to_contain_text(text)


def connected(page: Page) -> None:
    expect(page.locator("#console-state")).to_have_text("Connected.")


def shade(page: Page) -> int:
    """The one colour of the simulated screen, as the browser drew it."""
    drawn = page.locator("#console-place canvas")
    return int(drawn.evaluate("canvas => canvas.getContext('2d').getImageData(3, 3, 1, 1).data[0]"))


def until_shade(page: Page, not_this: int) -> int:
    page.wait_for_function(
        "before => document.querySelector('#console-place canvas').getContext('2d').getImageData(3, 3, 1, 1).data[0]"
        " !== before",
        arg=not_this,
    )
    return shade(page)


def test_a_serial_console_shows_what_was_printed_before_and_takes_keys(arrive: Arrive) -> None:
    visitor = arrive()
    page = visitor.visit(VM)
    page.get_by_role("link", name="Serial console").click()
    connected(page)
    terminal_has(page, "login:")
    terminal_has(page, "console of ")
    expect(page.locator("#console-who")).to_contain_text("You write.")
    expect(page.get_by_role("button", name="Take over")).to_be_hidden()
    page.get_by_role("button", name="Type into it").click()
    page.keyboard.type("echo hello")
    terminal_has(page, "echo hello")
    page.keyboard.press("Control+]")
    expect(page.get_by_role("button", name="Type into it")).to_be_focused()
    colour = page.locator(".xterm-rows").evaluate("rows => getComputedStyle(rows).color")
    assert colour == "rgb(255, 255, 255)", "its style was refused"
    assert visitor.said == []


def test_a_screen_is_drawn_and_takes_keys_and_a_text(arrive: Arrive) -> None:
    visitor = arrive()
    page = visitor.visit(f"{VM}/screen")
    connected(page)
    before = until_shade(page, 0)
    expect(page.locator("#console-who")).to_contain_text("You write.")
    page.get_by_role("button", name="Type into it").click()
    page.keyboard.press("a")
    after = until_shade(page, before)
    page.get_by_role("button", name="Ctrl-Alt-Del").click()
    after = until_shade(page, after)
    page.get_by_label("Text to type").fill("ls -l | grep ö")
    page.get_by_role("button", name="Type it").click()
    expect(page.locator("#console-typed")).to_have_text("This keyboard has no key for ö: nothing was typed.")
    page.get_by_label("Keyboard that the guest").select_option("de")
    page.get_by_role("button", name="Type it").click()
    expect(page.locator("#console-typed")).to_have_text("14 of 14 characters typed")
    assert visitor.said == []
