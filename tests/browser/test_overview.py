# SPDX-License-Identifier: Apache-2.0
"""The map of more GPUs than a page has: a cell for each host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import TIMEOUT_MS, Arrive, ServedSite
from tests.browser.test_for_everybody import violations
from tests.fakes.simulated import serving_fleet

HOSTS = 102
FLEET = f"""\
groups:
  - {{name: t4, count: {HOSTS}, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 64, memory_gib: 256}}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedSite]:
    with serving_fleet(tmp_path_factory.mktemp("many"), FLEET) as client:
        names = [host["name"] for host in client.hosts()]
        for name in names[:2]:
            client.change_host(name, {"labels": {"rack": "7"}})
        yield ServedSite(client)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_overview_breaks_no_rule_of_accessibility(arrive: Arrive, axe: str, scheme: str) -> None:
    visitor = arrive()
    expect(visitor.page.locator(".cells a")).to_have_count(HOSTS)
    assert violations(visitor.page, axe, scheme) == []
    assert violations(visitor.visit("map/gpus"), axe, scheme) == []
    assert violations(visitor.visit("map?rack=7"), axe, scheme) == []
    assert visitor.said == []


def test_the_overview_is_as_wide_as_a_phone_and_leads_on_without_script(arrive: Arrive) -> None:
    page = arrive(script=False, width=360).page
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0
    page.locator(".cells a").first.click()
    page.wait_for_url("**/web/hosts/*")
    page.go_back()
    page.get_by_role("link", name="Rack 7").click()
    expect(page.locator("a.gpu")).to_have_count(4)
    page.go_back()
    page.get_by_role("link", name="GPU by GPU").click()
    page.wait_for_url("**/web/map/gpus")
    page.get_by_role("link", name="Next page").click()
    page.wait_for_url("**/web/map/gpus?after=*")


def test_a_cell_changes_with_its_host(site: ServedSite, arrive: Arrive) -> None:
    page = arrive().page
    name = site.client.hosts()[-1]["name"]
    cell = page.locator(f'.cells a[href="hosts/{name}"] rect')
    expect(cell).to_have_class("free")
    site.client.cordon(name)
    expect(cell).to_have_class("broken", timeout=TIMEOUT_MS)
    site.client.uncordon(name)
