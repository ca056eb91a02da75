# SPDX-License-Identifier: Apache-2.0
"""What pages show: what the API answers to the same person, and no more."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from orchestrator.core.operation import FINISHED
from orchestrator.services.begin import new_operation
from orchestrator.services.vms.vm_volumes import known_volume
from orchestrator.web.api_calls import Refused
from orchestrator.web.views.create import EMPTY, command_of, wanted
from orchestrator.web.views.lists import LISTS
from tests.contract.web.conftest import FROM_A_PAGE, Site
from tests.fakes.control_plane import create_vm
from tests.operations.fabric import HOST, with_board

OPERATORS = (
    "map", "map/gpus", "hosts", "hosts/t4", "vms", "vms/default/train", "vms/new", "operations", "findings",
    "findings?which=all", "tenants/default", "drivers", *LISTS,
)  # fmt: skip
LIVE = {"HX-Request": "true", "HX-Target": "div#live"}
POOL_ONLY = ("hosts", "hosts/t4", "findings", "drivers", "bundles", "audit")


def shown(html: str) -> str:
    """What a reader sees of it."""
    without_code = re.sub(r"<(script|head)\b.*?</\1>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", without_code)))


@pytest.mark.parametrize("path", OPERATORS)
def test_every_page_is_there_for_an_operator_and_reads_without_script(site: Site, path: str) -> None:
    answer = site.logged_in(site.token("*", "admin")).get(f"/web/{path}")
    assert answer.status_code == 200, shown(answer.text)
    assert re.search(r"<h1>[^<]+</h1>", answer.text)
    assert 'href="/web/vms"' in answer.text


@pytest.mark.parametrize("path", POOL_ONLY)
def test_a_tenant_is_refused_what_is_the_pool_s(site: Site, path: str) -> None:
    answer = site.logged_in(site.token("default", "tenant-user")).get(f"/web/{path}")
    assert answer.status_code == 403
    assert "access.denied" in answer.text
    assert f'href="/web/{path}"' not in answer.text


@pytest.mark.parametrize("path", ["map", "map/gpus", "vms", "vms/default/train", "vms/new", "operations", "capacity"])
def test_a_tenant_is_told_of_no_host(site: Site, path: str) -> None:
    """Neither a host's page nor the PCI address of a GPU; both hosts are named in an operator's."""
    own = site.logged_in(site.token("default", "tenant-user")).get(f"/web/{path}")
    every = site.logged_in(site.token("*", "admin")).get(f"/web/{path}")
    assert (own.status_code, every.status_code) == (200, 200)
    assert [mark for mark in ("/web/hosts", "/web/gpus", "0000:", "Host") if mark in own.text] == []
    assert "/web/hosts" in every.text


def test_another_tenant_s_vm_looks_like_none(site: Site) -> None:
    site.plane.services.tenancy.tenants.create("other")
    browser = site.logged_in(site.token("other", "tenant-admin"))
    for path in ("vms/default/train", "vms/default/nothing"):
        answer = browser.get(f"/web/{path}")
        assert answer.status_code == 404
        assert "tenant.unknown" in answer.text
    assert "train" not in shown(browser.get("/web/map").text)


def test_the_map_has_the_api_s_numbers(site: Site) -> None:
    token = site.token("*", "read-only")
    page, status = shown(site.logged_in(token).get("/web/map").text), site.api(token).get("/v1/status").json()
    for model in status["gpus"]:
        assert f"{model['gpus']} {model['model']}, {model['free']} empty" in page
        assert f"{model['used']:g} used" in page
    assert f"{sum(status['hosts']['states'].values())} hosts" in page
    assert f"{status['operations']['under_way']} operations under way" in page
    assert f"{sum(status['findings'].values())} findings" in page


def test_each_gpu_of_the_map_is_drawn_as_the_api_says_it_is_cut(site: Site) -> None:
    token = site.token("*", "read-only")
    gpus = site.api(token).get("/v1/gpu-map").json()["gpus"]
    html = site.logged_in(token).get("/web/map").text
    boxes = re.findall(r'<a class="gpu" href="([^"]+)">(.*?)</a>', html, re.DOTALL)
    assert [address for address, _ in boxes] == [
        f"/web/gpus/{gpu['host']}/{gpu['gpu'].replace(':', '%3A')}" for gpu in gpus
    ]
    for gpu, (_, box) in zip(gpus, boxes, strict=True):
        rects = re.findall(r'<rect class="(\w+)[^"]*" x="(\d+)" y="0" width="(\d+)"', box)
        cells = [("free" if cell["vm"] is None else "used", cell["start"], cell["size"]) for cell in gpu["cells"]]
        assert [(kind, int(x) // 10, int(width) // 10) for kind, x, width in rects] == (cells or [("whole", 0, 1)])


def test_the_gpus_of_a_fabric_partition_name_it_to_those_who_watch_the_pool(site: Site) -> None:
    with_board(site.plane)
    site.plane.services.vms.create(replace(create_vm("pair", profile="gpu:2"), host=HOST))
    site.plane.engine.drain()
    token = site.token("*", "read-only")
    told = [gpu["fabric_partition"] for gpu in site.api(token).get(f"/v1/gpu-map?host={HOST}").json()["gpus"]]
    joined = [number for number in told if number is not None]
    assert len(joined) == 2
    for path in ("map", f"map?host={HOST}", f"hosts/{HOST}"):
        page = shown(site.logged_in(token).get(f"/web/{path}").text)
        words = re.findall(r"given whole, one of 2, fabric partition (\d+): default/pair", page)
        assert [int(number) for number in words] == joined
    page = shown(site.logged_in(site.token("default", "tenant-user")).get("/web/map").text)
    assert page.count("given whole, one of 2: default/pair") == 2


def test_the_form_for_a_vm_is_of_a_tenant_that_the_reader_belongs_to(site: Site) -> None:
    site.plane.services.tenancy.tenants.create("other")
    html = site.logged_in(site.token("other", "tenant-admin")).get("/web/vms/new").text
    assert '<option value="other" selected>' in html


@pytest.mark.parametrize(
    ("query", "hosts"),
    [
        ("host=t4", {"t4"}),
        ("model=l40s", {"l40s"}),
        ("use=partly", {"t4"}),
        ("use=full", set()),
        ("host=t4&use=empty", {"t4"}),
    ],
)
def test_the_map_is_filtered_on_the_server(site: Site, query: str, hosts: set[str]) -> None:
    html = site.logged_in(site.token("*", "admin")).get(f"/web/map?{query}").text
    assert set(re.findall(r'href="/web/gpus/([^/]+)/', html)) == hosts


def test_a_filter_with_a_typo_is_refused_beside_the_filter(site: Site) -> None:
    answer = site.logged_in(site.token("*", "admin")).get("/web/map?host=t5")
    assert answer.status_code == 404
    assert "host.unknown" in answer.text
    assert 'value="t5"' in answer.text


def test_a_fragment_is_the_page_s_own_part(site: Site) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    page, fragment = browser.get("/web/vms").text, browser.get("/web/vms", headers=LIVE).text
    assert "<html" not in fragment
    assert "default/train" in fragment
    assert re.sub(r"\s+", " ", fragment.strip()) in re.sub(r"\s+", " ", page)


@pytest.mark.parametrize("path", ["vms", "vms/default/train", "hosts/t4", "images", "tenants/default", "nothing"])
def test_a_fragment_of_no_name_is_the_page_s_content(site: Site, path: str) -> None:
    fragment = site.logged_in(site.token("*", "admin")).get(f"/web/{path}", headers={"HX-Request": "true"})
    assert fragment.status_code in {200, 404}
    assert "<html" not in fragment.text


def test_text_of_tenants_is_text(site: Site) -> None:
    evil = "<img src=x onerror=alert(1)>\"'{{ 7 * 7 }}"
    token = site.token("*", "admin")
    site.api(token).patch("/v1/tenants/default", json={"description": evil})
    site.api(token).post("/v1/hosts/t4/cordon", json={"reason": evil})
    browser = site.logged_in(token)
    for path in ("tenants", "tenants/default", "hosts/t4", "map"):
        html = browser.get(f"/web/{path}").text
        assert "<img" not in html
    assert evil in unescape(browser.get("/web/tenants").text)


def test_a_stopped_vm_is_told_on_its_operation_s_page(site: Site) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    answer = browser.post("/web/vms/default/train/stop", data={"key": "k1"}, headers=FROM_A_PAGE)
    assert answer.status_code == 303
    site.plane.engine.drain()
    page = browser.get(answer.headers["location"])
    assert "stop vm" in shown(page.text)
    assert site.plane.services.vms.get("default", "train").state == "stopped"


def _operations(site: Site, kind: str) -> list[Any]:
    return [one for one in site.plane.services.operations.list(limit=50) if one.kind == kind]


def test_a_double_click_creates_one_vm(site: Site) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    form = {"name": "twice", "tenant": "default", "profile": "GRID T4-2Q", "image": "guest", "key": "k2"}
    answers = [browser.post("/web/vms/new", data=form, headers=FROM_A_PAGE) for _ in range(2)]
    assert {answer.status_code for answer in answers} == {303}, shown(answers[0].text)
    assert answers[0].headers["location"] == answers[1].headers["location"]
    assert len(_operations(site, "create_vm")) == 2


def test_a_refusal_appears_where_the_click_was(site: Site) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    assert "Extend" not in browser.get("/web/vms/default/train").text, "it has no lease"
    answer = browser.post("/web/vms/default/train/start", data={"key": "k3"}, headers=FROM_A_PAGE)
    assert answer.status_code in {303, 409}
    answer = browser.post(
        "/web/vms/default/train/extend", data={"key": "k4", "lease": "8 parsecs"}, headers=FROM_A_PAGE
    )
    assert answer.status_code == 400
    form = re.search(r'<form method="post" action="/web/vms/default/train/extend">.*?</form>', answer.text, re.DOTALL)
    assert form is not None
    assert 'class="refusal"' in form[0]
    assert 'value="8 parsecs"' in form[0]
    without = browser.post("/web/vms/default/train/extend", data={"key": "k5"}, headers=FROM_A_PAGE)
    assert without.status_code == 400


def _id(site: Site) -> str:
    return str(site.plane.services.vms.get("default", "train").id)


def test_a_form_of_a_vm_that_is_gone_deletes_none_of_its_name(site: Site) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    form = {"confirm": "train", "id": "of-the-one-before"}
    answer = browser.post("/web/vms/default/train/delete", data=form, headers=FROM_A_PAGE)
    assert answer.status_code == 409
    assert "form.another" in answer.text
    assert site.plane.services.vms.get("default", "train").state == "running"


def test_buttons_follow_the_vm_s_state_and_a_doubled_click_stops_it_once(site: Site) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    page = browser.get("/web/vms/default/train").text
    assert re.findall(r"<button>(\w+)</button>", page)[:2] == ["Stop", "Restart"]
    key = re.search(r'name="key" value="(restart-[^"]+)"', page)
    assert key is not None
    for _ in range(2):
        browser.post("/web/vms/default/train/restart", data={"key": key[1]}, headers=FROM_A_PAGE)
        site.plane.engine.drain()
    assert len(_operations(site, "restart_vm")) == 1
    browser.post("/web/vms/default/train/stop", data={"key": "k"}, headers=FROM_A_PAGE)
    site.plane.engine.drain()
    assert re.findall(r"<button>(\w+)</button>", browser.get("/web/vms/default/train").text)[0] == "Start"


@pytest.mark.parametrize("typed", ["", "TRAIN", "default/train"])
def test_nothing_is_deleted_whose_name_is_not_typed(site: Site, typed: str) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    answer = browser.post(
        "/web/vms/default/train/delete", data={"confirm": typed, "id": _id(site)}, headers=FROM_A_PAGE
    )
    assert answer.status_code == 400
    assert "form.not_confirmed" in answer.text
    assert site.plane.services.vms.get("default", "train").state == "running"


def test_a_vm_is_deleted_when_its_name_is_typed(site: Site) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    answer = browser.post(
        "/web/vms/default/train/delete", data={"confirm": "train", "id": _id(site)}, headers=FROM_A_PAGE
    )
    assert answer.status_code == 303
    site.plane.engine.drain()
    assert _operations(site, "delete_vm")[0].state in FINISHED
    assert browser.get("/web/vms/default/train").status_code == 404


@pytest.mark.parametrize("role", ["read-only", "tenant-user"])
def test_buttons_are_those_that_the_api_would_let_one_press(site: Site, role: Any) -> None:
    html = site.logged_in(site.token("default", role)).get("/web/vms/default/train").text
    assert ("/stop" in html) is (role == "tenant-user")
    watching = site.logged_in(site.token("*", "read-only")).get("/web/hosts/t4").text
    assert "/cordon" not in watching


def test_a_host_is_cordoned_and_uncordoned(site: Site) -> None:
    browser = site.logged_in(site.token("*", "operator"))
    browser.post("/web/hosts/t4/cordon", data={"key": "k5", "reason": "fan 3 is loud"}, headers=FROM_A_PAGE)
    assert "fan 3 is loud" in shown(browser.get("/web/hosts/t4").text)
    browser.post("/web/hosts/t4/uncordon", data={"key": "k6"}, headers=FROM_A_PAGE)
    assert "fan 3 is loud" not in shown(browser.get("/web/hosts/t4").text)


def test_the_form_says_whether_it_fits_and_makes_nothing(site: Site) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    form = {"tenant": "default", "profile": "GRID T4-2Q", "image": "guest", "memory": "1536MiB"}
    fragment = browser.post(
        "/web/vms/new/plan", data=form, headers={**FROM_A_PAGE, "HX-Request": "true", "HX-Target": "div#fit"}
    )
    assert "It fits." in fragment.text, shown(fragment.text)
    same = "vgpuctl create-vm new-vm --tenant default --profile 'GRID T4-2Q' --image guest --memory 1536MiB"
    assert same in unescape(fragment.text)
    none = browser.post("/web/vms/new/plan", data={**form, "profile": "A16-2Q"}, headers=FROM_A_PAGE)
    assert none.status_code == 200
    assert 'class="refusal"' in none.text
    assert len(_operations(site, "create_vm")) == 1


@pytest.mark.parametrize("field", ["memory", "disk", "lease"])
def test_a_size_or_lease_without_unit_is_refused_as_the_command_line_does(field: str) -> None:
    with pytest.raises(Refused) as refused:
        wanted({**EMPTY, field: "8"})
    assert refused.value.problem["hint"].startswith("say the unit: 8")


def test_the_command_is_quoted_for_a_shell() -> None:
    form = {**EMPTY, "name": "a;reboot", "profile": "x $(id)", "ssh_keys": "ssh-ed25519 AAAA me\n\nssh-rsa BBBB"}
    assert command_of(form) == (
        "vgpuctl create-vm 'a;reboot' --profile 'x $(id)' --ssh-key 'ssh-ed25519 AAAA me' --ssh-key 'ssh-rsa BBBB'"
    )


def test_what_is_left_empty_is_left_to_the_profile() -> None:
    body = wanted({**EMPTY, "name": "a", "profile": "p", "image": "i", "lease": "2h"})
    assert (body["vcpus"], body["memory_mib"], body["disk_bytes"], body["lease_s"]) == (None, None, None, 7200)


@pytest.mark.parametrize("body", [b"name=a&name=b", b"\xff\xfe", b"&".join(b"a%d=1" % n for n in range(200))])
def test_a_form_that_no_browser_sends_is_refused(site: Site, body: bytes) -> None:
    headers = {**FROM_A_PAGE, "Content-Type": "application/x-www-form-urlencoded"}
    answer = site.browser().post("/web/login", content=body, headers=headers)
    assert answer.status_code == 400
    assert "form.invalid" in answer.text


def test_a_form_without_end_is_cut_off(site: Site) -> None:
    headers = {**FROM_A_PAGE, "Content-Type": "application/x-www-form-urlencoded"}
    answer = site.browser().post("/web/login", content=b"token=" + b"x" * 300_000, headers=headers)
    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/web/nothing", "/web/vms/default/nothing"])
def test_what_is_not_there_says_so_with_the_request_s_id(site: Site, path: str) -> None:
    answer = site.logged_in(site.token("*", "admin")).get(path)
    assert answer.status_code == 404
    assert f"request {answer.headers['x-request-id']}" in shown(answer.text)


def test_a_page_that_is_not_there_keeps_the_links_to_those_that_are(site: Site) -> None:
    assert 'href="/web/vms"' in site.logged_in(site.token("*", "admin")).get("/web/nothing").text


def test_a_deleted_volume_s_operation_leads_to_no_vm(site: Site) -> None:
    token, services, world = site.token("*", "admin"), site.plane.services, site.plane.world
    services.volumes.create("default", "data", 2**30)
    with site.plane.store.begin() as tx:
        volume = known_volume(tx, "default", "data")
        deletion = new_operation("delete_volume", volume, clock=world.clock, ids=world.ids)
        tx.operations.add(deletion, host="t4", inputs={})
    page = site.logged_in(token).get(f"/web/operations/{deletion.id}").text
    assert "default/data" in shown(page)
    assert "/web/vms/default/data" not in page


def test_numbers_have_the_units_that_the_command_line_has(site: Site) -> None:
    admin = site.token("*", "admin")
    site.api(admin).patch("/v1/tenants/default/quota", json={"limits": {"framebuffer": 48 * 1024}}).raise_for_status()
    page = shown(site.logged_in(admin).get("/web/tenants/default").text)
    assert re.search(r"framebuffer \w+ 48GiB", page), page
    assert "Disks kept after a lease 7d" in page
    assert "1 VM, 1 running" in page


def test_the_form_and_the_list_have_the_profiles_that_hosts_offer(site: Site) -> None:
    admin = site.token("*", "admin")
    every = site.api(admin).get("/v1/profiles").json()
    offered = site.api(admin).get("/v1/profiles?available=true").json()
    assert offered == [profile for profile in every if profile["available"]] != every
    browser = site.logged_in(admin)
    form = browser.get("/web/vms/new?profile=a10-12q").text
    choices = re.search(r'<select name="profile".*?</select>', form, re.DOTALL)
    assert choices is not None
    assert len(re.findall("<option", choices[0])) == len(offered) + 2
    assert "<option selected>a10-12q" in choices[0]
    assert f"{len(offered)} in all" in browser.get("/web/profiles").text


def test_filters_say_what_is_typed_there(site: Site) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    pages = {name: shown(browser.get(f"/web/{name}").text) for name in ("hosts", "vms", *LISTS)}
    assert {name for name, page in pages.items() if "Selector" in page} == set()
    assert "any true" not in pages["audit"]


def test_a_tenant_s_map_names_who_has_what_of_its_own_alone(site: Site) -> None:
    page = shown(site.logged_in(site.token("default", "tenant-user")).get("/web/map").text)
    assert re.search(r"1 of \d+ slots taken: default/train ", page), page
    assert "taken: default/train, (not yours)" not in page


@pytest.mark.parametrize("path", ["hosts", "vms", "operations", *LISTS])
def test_the_heads_of_a_list_s_columns_lead_to_it_in_their_order(site: Site, path: str) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    heads = re.findall(r'<th scope="col"><a href="(\?sort=[^"]+)"', browser.get(f"/web/{path}").text)
    if path not in {"volumes", "bundles", "backups"}:  # which have nothing in this test
        assert heads
    for head in heads:
        page = browser.get(f"/web/{path}{head}")
        assert page.status_code == 200, shown(page.text)
        assert page.text.count('aria-sort="ascending"') == 1
        assert f'href="?sort=-{head.removeprefix("?sort=")}"' in page.text


def test_an_order_stays_with_the_filter(site: Site) -> None:
    page = site.logged_in(site.token("*", "admin")).get("/web/vms?state=running&sort=-name").text
    assert '<input type="hidden" name="sort" value="-name">' in page
    assert 'href="?state=running&amp;sort=profile"' in page
