# SPDX-License-Identifier: Apache-2.0
"""An operator's and a tenant's day at the pages, with and without script."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import PROFILE, Arrive, ServedSite, Visitor


def _create(visitor: Visitor, name: str, tenant: str) -> None:
    page = visitor.visit("vms/new")
    page.locator("[name=name]").fill(name)
    page.locator("[name=tenant]").select_option(tenant)
    page.locator("[name=profile]").select_option(PROFILE)


def _press(visitor: Visitor, button: str) -> None:
    visitor.page.get_by_role("button", name=button, exact=True).click()


def test_an_operator_s_day(site: ServedSite, arrive: Arrive) -> None:
    visitor = arrive()
    page = visitor.page
    expect(page.get_by_role("link", name="default/train")).to_have_count(1)
    page.locator("[name=model]").select_option("L40S")
    _press(visitor, "Filter")
    expect(page).to_have_url(re.compile(r"model=L40S"))
    expect(page.get_by_role("link", name="· L40S")).to_have_count(4)
    _create(visitor, "daily", "default")
    expect(page.locator("#fit")).to_contain_text("It fits.")
    expect(page.locator("#fit")).to_contain_text(f"vgpuctl create-vm daily --tenant default --profile '{PROFILE}'")
    _press(visitor, "Create")
    expect(page).to_have_url(re.compile("/web/operations/"))
    expect(page.get_by_role("status")).to_contain_text("done")
    page.get_by_role("link", name="default/daily").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("VM default/daily")
    _press(visitor, "Stop")
    expect(page.get_by_role("status")).to_contain_text("done")
    visitor.visit("vms/default/daily").get_by_label("Type daily").fill("dayly")
    _press(visitor, "Delete")
    expect(page.locator("form", has_text="Type daily").get_by_role("alert")).to_contain_text("type daily")
    page.get_by_label("Type daily").fill("daily")
    _press(visitor, "Delete")
    expect(page.get_by_role("status")).to_contain_text("done")
    assert [vm["name"] for vm in site.client.vms() if vm["name"] == "daily"] == []
    visitor.visit("hosts/l40s-0").get_by_label("Why").fill("fan 3 is loud")
    _press(visitor, "Cordon: place no new VM there")
    expect(page.get_by_text("fan 3 is loud")).to_be_visible()
    _press(visitor, "Uncordon: place VMs there again")
    expect(page.get_by_text("fan 3 is loud")).to_have_count(0)
    assert visitor.said == []


def test_a_tenant_s_day(site: ServedSite, arrive: Arrive) -> None:
    visitor = arrive(token=site.token("vision", "tenant-user")[1])
    page = visitor.page
    expect(page.get_by_role("link", name="Hosts")).to_have_count(0)
    expect(page.get_by_text("None of your VMs is on a GPU")).to_be_visible()
    _create(visitor, "mine", "vision")
    expect(page.locator("#fit")).to_contain_text("It fits.")
    expect(page.locator("#fit")).not_to_contain_text("t4-")
    _press(visitor, "Create")
    expect(page.get_by_role("status")).to_contain_text("done")
    _create(visitor, "more", "vision")
    expect(page.locator("#fit").get_by_role("alert")).to_contain_text("quota")
    _press(visitor, "Create")
    expect(page.get_by_role("alert")).to_contain_text("quota.exceeded")
    expect(page.locator("[name=name]")).to_have_value("more")
    visitor.visit("map")
    expect(page.get_by_text("vision/mine")).to_be_visible()
    expect(page.get_by_text("default/train")).to_have_count(0)
    visitor.visit("vms/vision/mine").get_by_label("Type mine").fill("mine")
    _press(visitor, "Delete")
    expect(page.get_by_role("status")).to_contain_text("done")
    assert visitor.said == []


def test_a_day_without_script(site: ServedSite, arrive: Arrive) -> None:
    visitor = arrive(script=False)
    page = visitor.page
    _create(visitor, "plain", "default")
    _press(visitor, "Does it fit?")
    expect(page.locator("#fit")).to_contain_text("It fits.")
    expect(page.locator("[name=name]")).to_have_value("plain")
    _press(visitor, "Create")
    expect(page).to_have_url(re.compile("/web/operations/"))
    site.client.wait(page.url.rpartition("/")[2])
    visitor.visit("vms/default/plain").get_by_label("Type plain").fill("plain")
    _press(visitor, "Delete")
    site.client.wait(page.url.rpartition("/")[2])
    visitor.visit("vms")
    expect(page.get_by_text("default/plain")).to_have_count(0)


def test_a_list_changes_while_it_is_shown_and_keeps_the_focus(site: ServedSite, arrive: Arrive) -> None:
    visitor = arrive()
    page = visitor.visit("vms")
    link = page.get_by_role("link", name="default/train")
    link.focus()
    site.client.wait(site.client.stop_vm("infer", "default"))
    expect(page.get_by_role("row", name="default/infer")).to_contain_text("stopped")
    expect(link).to_be_focused()
    site.client.wait(site.client.start_vm("infer", "default"))
    expect(page.get_by_role("row", name="default/infer")).to_contain_text("running")
    assert visitor.said == []
