# SPDX-License-Identifier: Apache-2.0
"""Consoles of VMs in a page: their keys, who writes, what ends them, and that the server may go away meanwhile."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.browser.conftest import Arrive, ServedSite
from tests.browser.test_for_everybody import violations

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


def test_two_people_at_one_console_and_one_of_them_writes(site: ServedSite, arrive: Arrive) -> None:
    _, token = site.token("default", "tenant-user")
    first, second = arrive().visit(f"{VM}/console"), arrive(token=token).visit(f"{VM}/console")
    writer, watcher = first, second
    for page in (writer, watcher):
        connected(page)
    for writer, watcher in ((first, second), (second, first)):
        if watcher.locator("#console-take").is_hidden():
            writer.get_by_role("button", name="Take over").click()
        expect(writer.locator("#console-who")).to_contain_text("You write. Watching: ")
        expect(watcher.locator("#console-who")).to_contain_text(" writes, you watch.")
        for page, text in ((watcher, "unheard"), (writer, "heard")):
            page.get_by_role("button", name="Type into it").click()
            page.keyboard.type(text)
        for page in (writer, watcher):
            terminal_has(page, "heard")
            expect(page.locator(".xterm-rows")).not_to_contain_text("unheard")


def test_a_vm_that_stops_ends_its_consoles_and_one_that_runs_again_has_them(site: ServedSite, arrive: Arrive) -> None:
    page = arrive().visit("vms/default/infer/screen")
    connected(page)
    site.client.wait(site.client.stop_vm("infer", "default"))
    expect(page.get_by_role("alert")).to_contain_text("VM infer is stopped (vm.not_running)")
    page.get_by_role("button", name="Connect again").click()
    expect(page.get_by_role("alert")).to_contain_text("(vm.not_running)")
    site.client.wait(site.client.start_vm("infer", "default"))
    page.get_by_role("button", name="Connect again").click()
    connected(page)
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_server_that_goes_away_is_found_again_and_what_was_shown_stays(arrive: Arrive) -> None:
    visitor = arrive()
    page, streams = visitor.page, list[WebSocketRoute]()

    def between(stream: WebSocketRoute) -> None:
        stream.connect_to_server()
        streams.append(stream)

    page.route_web_socket("**/console-sessions/*", between)
    visitor.visit(f"{VM}/console")
    connected(page)
    terminal_has(page, "console of ")
    page.route("**/console-tickets", lambda route: route.abort())
    streams[-1].close(code=1012)
    expect(page.locator("#console-state")).to_contain_text("The server does not answer. Trying again in ")
    page.unroute("**/console-tickets")
    connected(page)
    terminal_has(page, "--- connected again ---")
    terminal_has(page, "login:")
    assert len(streams) == 2


def test_a_session_that_ends_closes_its_console(site: ServedSite, arrive: Arrive) -> None:
    number, token = site.token("default", "tenant-user")
    page = arrive(token=token).visit(f"{VM}/screen")
    connected(page)
    site.client.revoke_token(number, "default")
    expect(page.locator("#console-state")).to_have_text("You may no longer open it.")


OPEN = """([address, ticket]) => new Promise((resolve) => {
  const stream = new WebSocket(address, ["binary", `ticket.${ticket}`]);
  stream.onmessage = () => resolve("opened");
  stream.onclose = (event) => resolve(`closed ${event.code}`);
})"""
TICKET = """async (address) => {
  const answer = await fetch(address, {method: "POST", body: new URLSearchParams({kind: "serial"})});
  return (await answer.json()).ticket;
}"""


def test_a_ticket_is_of_no_use_a_second_time_to_another_or_to_a_foreign_page(site: ServedSite, arrive: Arrive) -> None:
    mine, other = arrive(), arrive(token=site.token("default", "tenant-user")[1])
    path = f"{mine.base}/web/{VM}"
    address = f"{path.replace('http', 'ws', 1)}/console-sessions/serial"
    mine.context.route("http://evil.localhost/**", lambda route: route.fulfill(body="<p>", content_type="text/html"))
    tickets = [mine.page.evaluate(TICKET, f"{path}/console-tickets") for _ in range(3)]
    assert mine.page.evaluate(OPEN, [address, tickets[0]]) == "opened"
    assert mine.page.evaluate(OPEN, [address, tickets[0]]) == "closed 1006"
    assert other.page.evaluate(OPEN, [address, tickets[1]]) == "closed 1006"
    mine.page.goto("http://evil.localhost/")
    assert mine.page.evaluate(OPEN, [address, tickets[2]]) == "closed 1006"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["console", "screen"])
def test_a_console_breaks_no_rule_of_accessibility(arrive: Arrive, axe: str, kind: str, scheme: str) -> None:
    page = arrive().visit(f"{VM}/{kind}")
    connected(page)
    assert violations(page, axe, scheme) == []


def test_without_script_it_says_what_was_printed_and_what_opens_it(arrive: Arrive) -> None:
    page = arrive(script=False).visit(f"{VM}/console")
    expect(page.locator("#console-kept")).to_contain_text("login:")
    expect(page.get_by_text("vgpuctl console train")).to_be_visible()


STROKES = """async ([texts]) => {
  const { strokesOf } = await import(document.getElementById("console").dataset.keyboards);
  return texts.map(([layout, text]) => [...text].map((letter) => strokesOf(layout, letter)));
}"""
PRINTABLE = "".join(map(chr, range(0x20, 0x7F))) + "\t\n"


def test_each_keyboard_makes_every_printable_character_of_ascii_by_its_own_keys(arrive: Arrive) -> None:
    page = arrive().visit(f"{VM}/screen")
    connected(page)
    layouts = ("us", "gb", "de", "fr")
    made = page.evaluate(STROKES, [[[layout, PRINTABLE] for layout in layouts]])
    assert [[letter for letter, keys in zip(PRINTABLE, all_, strict=True) if keys is None] for all_ in made] == [[]] * 4
    ((slash,), (at,), (caret,), (no_key,)) = page.evaluate(
        STROKES, [[["de", "/"], ["de", "@"], ["de", "^"], ["us", "é"]]]
    )
    down, up = True, False
    shift, altgr = ["ShiftLeft", 0xFFE1], ["AltRight", 0xFE03]
    assert slash == [[*shift, down], ["Digit7", 0x2F, down], ["Digit7", 0x2F, up], [*shift, up]]
    assert at == [[*altgr, down], ["KeyQ", 0x40, down], ["KeyQ", 0x40, up], [*altgr, up]]
    assert [key[0] for key in caret] == ["Backquote", "Backquote", "Space", "Space"]
    assert no_key is None


def test_a_guest_that_wants_something_repeated_for_ever_does_not_hang_the_page(arrive: Arrive) -> None:
    page = arrive().visit(f"{VM}/console")
    connected(page)
    page.get_by_role("button", name="Type into it").click()
    for final in "ILMSTZb":
        page.keyboard.type("x")
        page.keyboard.press("Escape")
        page.keyboard.type(f"[2147483647{final}")
    page.keyboard.type("still here")
    terminal_has(page, "still here")
