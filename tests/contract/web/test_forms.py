# SPDX-License-Identifier: Apache-2.0
"""Forms: what they begin with, that they do nothing twice, and what the audit has of them."""

from __future__ import annotations

import re

from tests.contract.web.conftest import FROM_A_PAGE, Site, local_browser
from tests.contract.web.test_list_acts import forms
from tests.fakes.control_plane import create_vm

DELETE = "/web/vms/default/train/delete"


def test_a_vm_s_deletion_that_is_sent_twice_leads_to_one_operation(site: Site) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    (form,) = forms(browser.get("/web/vms/default/train").text)[DELETE]
    led = []
    for _ in range(3):
        answer = browser.post(DELETE, data={**form, "confirm": "train"}, headers=FROM_A_PAGE)
        led.append((answer.status_code, answer.headers.get("location", "").partition("?")[0]))
        site.plane.engine.drain()
    assert led[0] == (303, led[0][1])
    assert led[0][1].startswith("/web/operations/")
    assert set(led) == {led[0]}


def test_a_member_s_forms_begin_with_a_tenant_of_its_own(site: Site) -> None:
    site.plane.services.tenancy.tenants.create("vision")
    browser = site.logged_in(site.token("vision", "tenant-user"))
    assert '<option value="vision" selected>' in browser.get("/web/vms/new").text
    for page, address in (("volumes", "/web/volumes/act/new"), ("networks", "/web/networks/act/new")):
        (form,) = forms(browser.get(f"/web/{page}").text)[address]
        assert form["tenant"] == "vision"
    operator = site.logged_in(site.token("*", "admin")).get("/web/vms/new").text
    assert '<option value="default" selected>' in operator


def test_the_audit_says_that_somebody_did_it_in_a_browser(site: Site) -> None:
    far, near = site.logged_in(site.token("*", "admin")), local_browser(site)
    for browser, key in ((far, "1"), (near, "2")):
        answer = browser.post("/web/hosts/t4/cordon", data={"key": key}, headers={"Sec-Fetch-Site": "same-origin"})
        assert answer.status_code == 303, re.sub("<[^>]+>", " ", answer.text)
        site.plane.services.hosts.uncordon("t4")
    cordons = [one for one in site.plane.services.tenancy.audit.list(limit=9, before=None) if one.action == "cordon"]
    assert [(one.interface, one.source) for one in cordons] == [("web", "loopback"), ("web", "testclient")]


def test_a_session_and_a_token_are_refused_by_the_api_as_well(site: Site) -> None:
    token = site.token("*", "admin")
    browser = site.logged_in(token)
    for path in ("/v1/whoami", "/web/map"):
        answer = browser.get(path, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 400
        assert "session.two_proofs" in answer.text


def test_the_form_names_the_vms_that_are_in_the_way_to_who_may_know_them(site: Site) -> None:
    form = {"tenant": "default", "profile": "GRID T4-16Q", "image": "guest", "vcpus": "1", "memory": "512MiB"}
    site.plane.services.vms.create(create_vm("more", profile="GRID T4-16Q"))
    site.plane.engine.drain()
    operator, member = site.token("*", "admin"), site.token("default", "tenant-admin")
    explained = site.api(operator).get("/v1/explain", params={"profile": "GRID T4-16Q", "vcpus": 1, "memory_mib": 512})
    (remedy,) = explained.json()["remedies"]
    told, others = (
        site.logged_in(token).post("/web/vms/new/plan", data=form, headers=FROM_A_PAGE).text.partition('id="fit"')[2]
        for token in (operator, member)
    )
    for vm in remedy["actions"]:
        assert f'<a href="/web/vms/default/{vm["vm"]}">' in told
    assert "gpu.no_capacity" in others
    assert "let it in" not in others


def test_a_vm_s_page_says_why_it_is_where_it_is_to_who_may_know_where(site: Site) -> None:
    planned = site.plane.services.vms.plan(create_vm("more"))
    site.plane.services.vms.create(create_vm("more"))
    site.plane.engine.drain()
    operator, member = (
        site.logged_in(site.token(tenant, "read-only")).get("/web/vms/default/more").text for tenant in ("*", "default")
    )
    assert f"of {planned.host}: {planned.why}." in operator
    assert "Why it is there" not in member


def test_profiles_are_filtered_by_kind_and_model(site: Site) -> None:
    browser = site.logged_in(site.token("default", "read-only"))
    whole = browser.get("/web/profiles").text
    assert '<option value="passthrough">' in whole
    t4 = browser.get("/web/profiles?model=Tesla+T4&kind=time_sliced").text
    assert "GRID T4-2Q" in t4
    assert "L40S" in whole
    assert "L40S" not in t4


def test_a_role_that_nobody_has_chosen_is_the_least(site: Site) -> None:
    page = site.logged_in(site.token("*", "admin")).get("/web/tenants/default").text
    assert re.findall(r'<select name="role"><option[^>]*>([a-z-]+)', page) == ["read-only", "read-only"]


def test_the_hosts_are_filtered_by_state(site: Site) -> None:
    site.plane.services.hosts.cordon("l40s")
    browser = site.logged_in(site.token("*", "admin"))
    for state, hosts in (("cordoned", {"l40s"}), ("ready", {"l40s", "t4"}), ("unreachable", set())):
        html = browser.get(f"/web/hosts?state={state}").text
        assert set(re.findall(r'<th scope="row"><a href="/web/hosts/([^"]+)"', html)) == hosts
        assert f'<option value="{state}" selected>' in html
    site.plane.services.hosts.uncordon("l40s")
