# SPDX-License-Identifier: Apache-2.0
"""The map by rack and host, and of more GPUs than a page has: a cell for each host, with the API's numbers."""

from __future__ import annotations

import re

import pytest

from orchestrator.web.views import fleet
from orchestrator.web.views.overview import drawn_racks
from tests.contract.web.conftest import Site
from tests.contract.web.test_views import shown


def test_more_than_a_page_of_gpus_is_an_overview_of_hosts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "GPUS_ON_A_PAGE", 1)
    token = site.token("*", "admin")
    browser, api = site.logged_in(token), site.api(token)
    api.patch("/v1/hosts/t4", json={"labels": {"rack": "3"}})
    html = browser.get("/web/map").text
    assert re.findall(r'<a href="hosts/([^"]+)" tabindex="-1">', html) == ["t4", "l40s"]
    for rack in api.get("/v1/gpu-map/racks").json()["racks"]:
        assert f"1 host; {sum(rack['gpus'])} GPU" in shown(html)
        assert f": {sum(rack['used']):g} used, {sum(rack['empty'])} empty" in shown(html)
        assert f"{rack['hosts'][0]}: {rack['used'][0]:g} of {rack['gpus'][0]}" in html
    for path in re.findall(r'href="(/web/map(?:/gpus|\?rack=3))"', html):
        detailed = browser.get(path).text
        assert 'class="gpu"' in detailed
        assert 'class="cells"' not in detailed
    assert re.findall(r'<a href="hosts/([^"]+)"', browser.get("/web/map?model=l40s").text) == ["l40s"]
    own = site.logged_in(site.token("default", "tenant-user"))
    assert 'class="cells"' not in own.get("/web/map").text


def test_the_map_stands_by_rack_and_host(site: Site) -> None:
    token = site.token("*", "admin")
    site.api(token).patch("/v1/hosts/t4", json={"labels": {"rack": "3"}})
    headings = re.findall(r"<h[23]>(.*?)</h[23]>", site.logged_in(token).get("/web/map").text)
    assert [re.sub("<[^>]+>", "", heading) for heading in headings] == ["Rack 3", "t4", "No rack", "l40s"]


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        (("ready", 8, 0, 0.0), "free"),
        (("ready", 8, 0, 0.1), "p1"),
        (("ready", 8, 0, 4.0), "p2"),
        (("ready", 8, 0, 7.9), "p3"),
        (("ready", 8, 0, 8.0), "used"),
        (("ready", 8, 8, 0.0), "broken"),
        (("ready", 8, 8, 1.0), "used broken"),
        (("unreachable", 8, 8, 1.0), "bad"),
    ],
)
def test_a_host_s_cell_is_as_full_as_its_gpus(host: tuple[str, int, int, float], kind: str) -> None:
    state, gpus, unusable, used = host
    rack = {
        "rack": None, "hosts": ["a<b"], "states": [state], "gpus": [gpus], "empty": [0],
        "unusable": [unusable], "used": [used],
    }  # fmt: skip
    (block,) = drawn_racks([rack])[0]["blocks"]
    assert f'<rect class="{kind}"' in block
    assert 'href="hosts/a%3Cb"' in block
    assert "<title>a&lt;b: " in block
