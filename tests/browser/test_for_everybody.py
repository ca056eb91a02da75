# SPDX-License-Identifier: Apache-2.0
"""Every page for those who read it by a screen reader, by keys, on a phone or a wall."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Arrive, ServedSite

PAGES = (
    "map", "map?use=full", "map/gpus", "me", "new-token", "vms?sort=-name",
    "hosts", "hosts/t4-0", "gpus/t4-0/0000:41:00.0", "vms", "vms?state=lost",
    "vms/default/train", "vms/default/train/console", "vms/default/train/screen", "vms/new",
    "vms/new?profile=GRID%20T4-4Q", "operations", "findings", "capacity", "profiles", "images", "networks", "volumes",
    "security-groups", "tenants", "tenants/vision", "drivers", "bundles", "audit", "nothing", "hosts?selector=%3D",
)  # fmt: skip
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def violations(page: Page, axe: str, scheme: Any) -> list[str]:
    page.emulate_media(color_scheme=scheme)
    page.evaluate(axe)
    found = page.evaluate("rules => axe.run({runOnly: rules})", RULES)["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in found]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 2560)])
def test_no_page_breaks_a_rule_of_accessibility(arrive: Arrive, axe: str, scheme: str, width: int) -> None:
    visitor = arrive(width=width)
    assert {path: broken for path in PAGES if (broken := violations(visitor.visit(path), axe, scheme))} == {}
    operation = visitor.visit("operations").locator("tbody a").first.get_attribute("href") or ""
    assert violations(visitor.visit(operation.removeprefix("/web/")), axe, scheme) == []
    visitor.context.clear_cookies()
    assert {
        path: broken for path in ("login", "ticket") if (broken := violations(visitor.visit(path), axe, scheme))
    } == {}
    assert visitor.said == []


@pytest.mark.parametrize("width", [360, 2560])
def test_no_page_is_wider_than_its_window(arrive: Arrive, width: int) -> None:
    visitor = arrive(width=width)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert {path: over for path in PAGES if (over := visitor.visit(path).evaluate(wide)) > 0} == {}


def test_on_a_phone_what_a_gpu_is_and_what_changes_a_row_are_in_sight(site: ServedSite, arrive: Arrive) -> None:
    page = arrive(width=360).visit("map")
    cut_off = "spans => spans.filter(span => span.scrollWidth > span.clientWidth).map(span => span.textContent)"
    assert page.locator(".gpu span").evaluate_all(cut_off) == []
    page.goto(page.url.replace("map", "images"))
    page.get_by_text("Change", exact=True).first.click()
    button = page.get_by_role("button", name="Delete").first.bounding_box()
    assert button is not None
    assert button["x"] >= 0
    assert button["x"] + button["width"] <= 360


def test_keys_lead_through_the_pages(arrive: Arrive) -> None:
    visitor = arrive()
    page = visitor.page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Host")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("v")
    expect(page.get_by_label("Host")).to_have_value("gv")
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("g")
    page.keyboard.press("v")
    page.wait_for_url("**/web/vms")


def test_every_page_reads_without_script(site: ServedSite, arrive: Arrive) -> None:
    visitor = arrive(script=False)
    for path in PAGES:
        page = visitor.visit(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    assert len(visitor.visit("vms").locator("tbody tr").all()) == len(site.client.vms())
