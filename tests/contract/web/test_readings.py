# SPDX-License-Identifier: Apache-2.0
"""Readings on pages: the API's numbers, for those whom the API tells them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from orchestrator.core.readings.frame import Reading, arranged, frame_from_dict, frame_to_dict
from orchestrator.core.readings.quantities import QUANTITIES
from orchestrator.core.vms.vm import Vm
from orchestrator.web.views.readings import UNITS
from tests.contract.web.conftest import Site
from tests.contract.web.test_views import shown
from tests.fakes.fake_machine import snapshot_of
from tests.fakes.frames import frame_of

Table = dict[str, list[str]]
READINGS = {"HX-Request": "true", "HX-Target": "div#readings"}


def send_frames(site: Site, *, passed_through: bool = False) -> Vm:
    """Two frames of the host that the VM is on, ten seconds apart, and the VM."""
    plane, vm = site.plane, site.plane.services.vms.get("default", "train")
    for _ in range(2):
        plane.world.clock.sleep(10)
        frame = frame_of(snapshot_of(plane.machine("t4")), vm, taken_at=plane.world.clock.now())
        if passed_through:
            silent = Reading("gpu", frame.readings[0].id, *arranged({}), silent="passed through")
            frame = type(frame)(frame.taken_at, (silent, *frame.readings[1:]))
        plane.services.readings.kept.receive("t4", frame)
    return vm


def tables(html: str) -> dict[str, Table]:
    """By the chart's title: by each column's heading, its cells."""
    found = {}
    for title, table in re.findall(r"<figcaption>(.*?)</figcaption>.*?<table>(.*?)</table>", html, re.DOTALL):
        headings = [unescape(text) for text in re.findall(r'<th scope="col">(.*?)</th>', table)]
        rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)[1:]]
        found[unescape(title)] = {name: [row[at] for row in rows] for at, name in enumerate(headings)}
    return found


def charted(answer: Any) -> Iterator[list[str]]:
    """What the API has of each series, as pages write it."""
    for reading in answer["readings"]:
        for series in reading["history"]["series"]:
            factor = next(factor for ending, _, factor in UNITS if series["quantity"].endswith(ending))
            if series["quantity"] != "gpu_memory_total_bytes":
                yield ["–" if one is None else f"{one * factor:.4g}" for one in series["numbers"]]


@pytest.mark.parametrize("of", ["vm", "gpu"])
def test_each_number_of_a_chart_is_the_api_s(site: Site, of: str) -> None:
    vm, token = send_frames(site), site.token("*", "read-only")
    gpu = snapshot_of(site.plane.machine("t4")).gpus[0].address
    page, path, query = {
        "vm": ("vms/default/train", f"vms/{vm.spec.name}", {"tenant": "default"}),
        "gpu": (f"gpus/t4/{gpu}", "hosts/t4", {"gpu": gpu}),
    }[of]
    answer = site.api(token).get(f"/v1/readings/{path}", params={**query, "history": "true"}).json()
    drawn = tables(site.logged_in(token).get(f"/web/{page}").text)
    numbers = [cells for table in drawn.values() for name, cells in table.items() if name != "Seconds ago"]
    assert len(numbers) > 3
    assert sorted(numbers) == sorted(charted(answer))


def test_a_host_s_charts_have_a_column_for_each_gpu(site: Site) -> None:
    send_frames(site)
    token = site.token("*", "read-only")
    answer = site.api(token).get("/v1/readings/hosts/t4", params={"kind": "gpu"}).json()
    heard = {reading["gpu"] for reading in answer["readings"] if reading["silent"] is None}
    assert {reading["kind"] for reading in answer["readings"]} == {"gpu"}
    power = tables(site.logged_in(token).get("/web/hosts/t4").text)["Power that is drawn, W"]
    assert power.keys() - {"Seconds ago"} == heard


def test_a_vgpu_s_licence_and_guest_driver_are_told_to_its_tenant(site: Site) -> None:
    send_frames(site)
    page = site.logged_in(site.token("default", "tenant-user")).get("/web/vms/default/train").text
    assert "licensed" in shown(page)
    assert "580.95.05" in shown(page)
    assert [mark for mark in ("/web/hosts", "/web/gpus", "0000:", "GPU-") if mark in page] == []


def test_a_gpu_that_was_passed_through_says_why_it_has_no_reading(site: Site) -> None:
    send_frames(site, passed_through=True)
    gpu = snapshot_of(site.plane.machine("t4")).gpus[0].address
    page = shown(site.logged_in(site.token("*", "admin")).get(f"/web/gpus/t4/{gpu}").text)
    assert "no reading, passed through" in page


@pytest.mark.parametrize("number", [sys.float_info.max, -sys.float_info.max, 1e20, -1e18, 1e-320])
def test_whatever_numbers_a_host_sends_everybody_is_answered(site: Site, number: float) -> None:
    plane, vm = site.plane, site.plane.services.vms.get("default", "train")
    for _ in range(2):
        plane.world.clock.sleep(10)
        sent: Any = frame_to_dict(frame_of(snapshot_of(plane.machine("t4")), vm, taken_at=plane.world.clock.now()))
        for reading in sent["readings"]:
            known = [quantity for quantity in QUANTITIES if quantity.subject == reading["kind"]]
            reading["numbers"] = {quantity.name: number for quantity in known if quantity.has_label("")}
        plane.services.readings.kept.receive("t4", frame_from_dict(sent))
    token, gpu = site.token("*", "admin"), snapshot_of(plane.machine("t4")).gpus[0].address
    for path in ("hosts", "gpus", "vms", "hosts/t4?history=true", "vms/train?history=true"):
        answer = site.api(token).get(f"/v1/readings/{path}")
        assert (answer.status_code, answer.json() != []) == (200, True), path
    for page in ("vms/default/train", "hosts/t4", f"gpus/t4/{gpu}"):
        assert site.logged_in(token).get(f"/web/{page}").status_code == 200, page
    assert site.api(token).get("/v1/metrics/hosts/t4").status_code == 200


def test_a_page_says_that_nothing_was_received(site: Site) -> None:
    for path in ("vms/default/train", "hosts/t4"):
        page = site.logged_in(site.token("*", "admin")).get(f"/web/{path}").text
        assert "Nothing was received" in page


def test_readings_are_fetched_again_alone(site: Site) -> None:
    send_frames(site)
    browser = site.logged_in(site.token("*", "admin"))
    for path in ("vms/default/train", "hosts/t4"):
        part, page = browser.get(f"/web/{path}", headers=READINGS).text, browser.get(f"/web/{path}").text
        assert "<figcaption>" in part
        assert "Id</dt>" not in part
        assert tables(part).keys() == tables(page).keys()


def test_the_map_says_how_busy_each_gpu_is_as_the_api_does_and_no_tenant_is_told(site: Site) -> None:
    send_frames(site)
    token, own = site.token("*", "read-only"), site.token("default", "tenant-user")
    rows = site.api(token).get("/v1/gpu-map").json()["gpus"]
    read = [row for row in rows if row["utilization_ratio"] is not None]
    assert [row["host"] for row in read] == ["t4"]
    assert f"{read[0]['utilization_ratio'] * 100:.4g} % busy, 2 GiB in use" in shown(
        site.logged_in(token).get("/web/map").text
    )
    (mine,) = site.api(own).get("/v1/gpu-map").json()["gpus"]
    assert (mine["utilization_ratio"], mine["memory_used_bytes"]) == (None, None)
    assert "busy" not in shown(site.logged_in(own).get("/web/map").text)


def test_a_host_s_page_tells_cap_limit_and_draw_of_its_gpus_as_the_api_does(site: Site) -> None:
    gpu, token = site.plane.machine("t4").gpus[0].address, site.token("*", "read-only")
    site.plane.findings.observe("t4")
    site.plane.services.power.set_cap("t4", gpu, 150)
    send_frames(site)
    row = next(
        row for row in site.api(token).get("/v1/power", params={"host": "t4"}).json()["gpus"] if row["gpu"] == gpu
    )
    told = " ".join(f"{row[name]} W" for name in ("cap_watts", "limit_watts", "drawn_watts"))
    page = shown(site.logged_in(token).get("/web/hosts/t4").text)
    assert "GPU Cap Limit Takes" in page
    assert f"{gpu} {told}" in page
    assert row["cap_watts"] == 150
