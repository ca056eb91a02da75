# SPDX-License-Identifier: Apache-2.0
"""What can be done to the things of lists, by the forms of the pages alone."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.api.permissions import RULES
from orchestrator.api.request_keys import WITHOUT
from orchestrator.core.maintenance.maintenance import Planned
from orchestrator.core.tenancy.tenant import Member
from orchestrator.core.units import GIB
from orchestrator.services.maintenance.maintenances import WantedDrain
from orchestrator.web.views.list_acts import LIST_ACTS
from tests.contract.web.conftest import FROM_A_PAGE, Site, local_browser

_FORM = re.compile(r'<form method="post" action="([^"]+)">(.*?)</form>', re.DOTALL)


def forms(html: str) -> dict[str, list[dict[str, str]]]:
    """What each form of a page sends as it is shown, by its address."""
    found: dict[str, list[dict[str, str]]] = {}
    for action, inside in _FORM.findall(html):
        fields = {name: unescape(value) for name, value in re.findall(r'name="([^"]+)" value="([^"]*)"', inside)}
        found.setdefault(unescape(action), []).append(fields)
    return found


def send(browser: TestClient, page: str, action: str, of: str = "", **typed: str) -> Any:
    """The form of ``page`` that is about ``of``, with what a person types."""
    shown = forms(browser.get(page).text)[action]
    form = next(fields for fields in shown if of in {"", *fields.values()})
    return browser.post(action, data={**form, **typed}, headers=FROM_A_PAGE)


def done(answer: Any) -> str:
    assert answer.status_code == 303, unescape(re.sub("<[^>]+>", " ", answer.text))[-1500:]
    return str(answer.headers["location"])


@pytest.mark.parametrize("act", [act for acts in LIST_ACTS.values() for act in acts], ids=lambda act: act.route)
def test_each_act_is_a_route_of_the_api(act: Any) -> None:
    assert act.route in RULES
    assert act.route not in WITHOUT


def test_a_volume_is_made_and_deleted_by_the_name_that_is_typed(site: Site) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    new = {"name": "data", "size_bytes": "1GiB"}
    assert done(send(browser, "/web/volumes", "/web/volumes/act/new", **new)) == "/web/volumes"
    assert "data" in browser.get("/web/volumes").text
    wrong = send(browser, "/web/volumes", "/web/volumes/act/delete", "data", confirm="dota")
    assert wrong.status_code == 400
    assert "<details open>" in wrong.text
    assert "form.not_confirmed" in wrong.text
    done(send(browser, "/web/volumes", "/web/volumes/act/delete", "data", confirm="data"))
    site.plane.engine.drain()
    assert site.plane.services.volumes.list(None) == ()


def test_a_volume_is_read_by_a_vm_and_by_none_again(site: Site) -> None:
    browser, volumes = site.logged_in(site.token("default", "tenant-user")), site.plane.services.volumes
    volumes.create("default", "data", GIB)
    for by_hand in (volumes.attach, volumes.detach):
        by_hand("default", "data", "train")
        site.plane.engine.drain()
    for act, access, read_by in (("attach", {"read_only": "read-only"}, ("train",)), ("detach", {}, ())):
        done(send(browser, "/web/volumes", f"/web/volumes/act/{act}", "data", vm="train", **access))
        site.plane.engine.drain()
        assert volumes.get("default", "data").read_by == read_by
        assert ("train" in browser.get("/web/volumes").text) == bool(read_by)


def test_a_vm_is_backed_up_verified_and_has_its_disk_back_by_the_page_of_backups(site: Site) -> None:
    browser, plane = site.logged_in(site.token("default", "tenant-user")), site.plane
    plane.services.backup_targets.create("nas")
    done(send(browser, "/web/backups", "/web/backups/act/new", vm="train", tenant="default"))
    assert list(forms(browser.get("/web/backups").text)) == ["/web/backups/act/new", "/web/backups/act/delete"]
    plane.engine.drain()
    assert "running" in browser.get("/web/backups").text
    done(send(browser, "/web/backups", "/web/backups/act/verify"))
    plane.engine.drain()
    done(send(browser, "/web/backups", "/web/backups/act/boot", profile=""))
    plane.engine.drain()
    assert "output" in browser.get("/web/backups").text
    runs = send(browser, "/web/backups", "/web/backups/act/restore", vm="train")
    assert (runs.status_code, "vm.busy" in runs.text) == (409, True)
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    done(send(browser, "/web/backups", "/web/backups/act/restore", vm="train"))
    plane.engine.drain()
    assert send(browser, "/web/backups", "/web/backups/act/delete", confirm="other").status_code == 400
    done(send(browser, "/web/backups", "/web/backups/act/delete", confirm="train"))
    plane.engine.drain()
    assert plane.services.backups.list(None) == ()


def test_a_vms_page_takes_snapshots_of_its_disk_puts_them_back_and_makes_it_larger(site: Site) -> None:
    browser, plane, page = site.logged_in(site.token("default", "tenant-user")), site.plane, "/web/vms/default/train"

    def act(name: str, **typed: str) -> Any:
        answer = send(browser, page, f"{page}/disk/{name}", **typed)
        plane.engine.drain()
        return answer

    done(act("take", snapshot="before"))
    done(act("grow", size_bytes="80GiB"))
    assert plane.services.vms.get("default", "train").spec.disk_bytes == 80 * GIB
    assert "disk.shrinks" in act("grow", size_bytes="1GiB").text
    assert "snapshot.exists" in act("take", snapshot="before").text
    assert act("restore", confirm="another").status_code == 400
    assert "vm.busy" in act("restore", confirm="before").text
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    done(act("restore", confirm="before"))
    done(act("delete", confirm="before"))
    assert plane.services.vms.get("default", "train").snapshots == ()
    plane.services.volumes.create("default", "data", GIB)
    plane.services.volumes.attach("default", "data", "train")
    plane.engine.drain()
    done(act("take", snapshot="whole", volumes="its disk and data volumes"))
    assert ", with data" in browser.get(page).text
    done(act("delete", confirm="whole"))
    assert f"{page}/disk/delete" not in forms(browser.get(page).text)


def test_a_form_of_a_thing_that_is_gone_takes_nothing_of_the_same_name(site: Site) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    site.plane.services.volumes.create("default", "data", 2**30)
    (form,) = forms(browser.get("/web/volumes").text)["/web/volumes/act/delete"]
    site.plane.services.volumes.delete("default", "data")
    site.plane.engine.drain()
    site.plane.services.volumes.create("default", "data", 2**31)
    answer = browser.post("/web/volumes/act/delete", data={**form, "confirm": "data"}, headers=FROM_A_PAGE)
    assert answer.status_code == 409
    assert "form.another" in answer.text
    assert len(site.plane.services.volumes.list(None)) == 1


def test_a_form_that_is_sent_twice_does_nothing_twice(site: Site) -> None:
    browser, services = site.logged_in(site.token("*", "admin")), site.plane.services
    network = {"name": "blue", "subnet": "10.99.0.0/24"}
    done(send(browser, "/web/networks", "/web/networks/act/add", **network))
    (form,) = forms(browser.get("/web/networks").text)["/web/networks/act/remove"]
    for _ in range(2):
        done(browser.post("/web/networks/act/remove", data={**form, "confirm": "blue"}, headers=FROM_A_PAGE))
    done(send(browser, "/web/networks", "/web/networks/act/add", **network))
    done(browser.post("/web/networks/act/remove", data={**form, "confirm": "blue"}, headers=FROM_A_PAGE))
    assert [found.name for found in services.networks.list(None) if found.name == "blue"] == ["blue"]


def test_a_token_s_form_that_is_sent_twice_makes_one_token(site: Site) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    (form,) = forms(browser.get("/web/tenants/default").text)["/web/tenants/default/tokens/new"]
    sent = {**form, "role": "read-only", "name": "twice"}
    address = "/web/tenants/default/tokens/new"
    assert done(browser.post(address, data=sent, headers=FROM_A_PAGE)) == "/web/new-token"
    again = browser.post(address, data=sent, headers=FROM_A_PAGE)
    assert again.status_code == 409
    assert "request.shown_once" in again.text
    assert [token.name for token in site.plane.services.tenancy.tokens.list("default")].count("twice") == 1


def test_a_wrong_size_is_refused_beside_the_form_which_keeps_what_was_typed(site: Site) -> None:
    browser = site.logged_in(site.token("default", "tenant-user"))
    answer = send(browser, "/web/volumes?selector=a%3Db", "/web/volumes/act/new", name="data", size_bytes="8 parsecs")
    assert answer.status_code == 400
    assert '<details class="new" open>' in answer.text
    assert 'value="8 parsecs"' in answer.text


def test_quota_members_and_tokens_are_on_the_tenant_s_page(site: Site) -> None:
    browser, page = site.logged_in(site.token("*", "admin")), "/web/tenants/default"
    done(send(browser, page, f"{page}/quota/set", resource="vms", limit="7"))
    assert re.search(r"vms</th><td>1</td><td>7<", browser.get(page).text)
    done(send(browser, page, f"{page}/quota/set", resource="vms", limit=""))
    assert not re.search(r"vms</th><td>1</td><td>7<", browser.get(page).text)
    done(send(browser, page, f"{page}/members/put", subject="oidc:ann@example.org", role="read-only"))
    assert "oidc:ann@example.org" in browser.get(page).text
    done(send(browser, page, f"{page}/members/remove", "oidc:ann@example.org"))
    assert "oidc:ann@example.org" not in browser.get(page).text


def test_a_token_is_shown_once_and_revoked_by_its_id(site: Site) -> None:
    browser, page = site.logged_in(site.token("*", "admin")), "/web/tenants/default"
    where = done(send(browser, page, f"{page}/tokens/new", role="tenant-user", name="ci", lifetime_s="1d"))
    shown = browser.get(where).text
    token = re.search(r"<code>(vgpuctl_([0-9a-f]{12})_[^<]+)</code>", shown)
    assert token is not None
    assert site.api(token[1]).get("/v1/vms").status_code == 200
    assert token[1] not in browser.get(where).text
    assert token[1] not in browser.get(page).text
    done(send(browser, page, f"{page}/tokens/revoke", token[2], confirm=token[2]))
    assert site.api(token[1]).get("/v1/vms").status_code == 401


def test_what_is_gone_is_told_though_its_form_is_gone_too(site: Site) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    site.plane.services.volumes.create("default", "data", 2**30)
    (form,) = forms(browser.get("/web/volumes").text)["/web/volumes/act/delete"]
    answers = []
    for key in ("1", "2", "3"):
        sent = {**form, "confirm": "data", "key": key}
        answers.append(browser.post("/web/volumes/act/delete", data=sent, headers=FROM_A_PAGE))
        site.plane.engine.drain()
    assert [answer.status_code for answer in answers] == [303, 404, 404]
    assert "volume.unknown" in answers[1].text


def test_who_may_not_has_no_such_form(site: Site) -> None:
    browser = site.logged_in(site.token("default", "read-only"))
    for page in ("volumes", "networks", "images", "tenants/default"):
        assert "/act/" not in browser.get(f"/web/{page}").text
    denied = browser.post(
        "/web/volumes/act/new", data={"name": "a", "tenant": "default", "size_bytes": "1GiB"}, headers=FROM_A_PAGE
    )
    assert denied.status_code == 403


def test_networks_and_tenants_are_made_and_deleted(site: Site) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    done(send(browser, "/web/tenants", "/web/tenants/act/new", name="blue"))
    done(send(browser, "/web/networks", "/web/networks/act/new", name="lab", tenant="blue"))
    assert "blue" in browser.get("/web/networks").text
    done(send(browser, "/web/networks", "/web/networks/act/delete", "blue", confirm="lab"))
    done(send(browser, "/web/tenants", "/web/tenants/act/delete", "blue", confirm="blue"))
    assert "blue" not in browser.get("/web/tenants").text


def test_an_act_that_nothing_has_is_refused(site: Site) -> None:
    browser = site.logged_in(site.token("*", "admin"))
    for path in ("volumes/act/burn", "tenants/default/tokens/burn", "tenants/default/nothing/new", "drivers/burn"):
        assert browser.post(f"/web/{path}", data={}, headers=FROM_A_PAGE).status_code in {400, 404}


def test_the_page_of_oneself_says_what_one_may_where_and_leads_to_its_quota(site: Site) -> None:
    page = site.logged_in(site.token("default", "tenant-user")).get("/web/me").text
    assert re.search(r"default</a></th><td>tenant-user<", page)
    assert 'href="/web/tenants/default#quota"' in page
    assert "/web/me/tokens" not in page


def test_one_s_own_tokens_are_made_seen_and_revoked_on_one_s_page(site: Site) -> None:
    token, others = site.token("default", "tenant-admin"), site.token("default", "tenant-user")
    browser, page = site.logged_in(token), "/web/me"
    where = done(send(browser, page, f"{page}/tokens/new", tenant="default", role="tenant-user", name="ci"))
    made = re.findall(r"<code>(vgpuctl_[^<]+)</code>", browser.get(where).text)
    own, of_made, of_others = (text.split("_")[1] for text in (token, *made, others))
    assert re.findall(r'<th scope="row">(\w{12})<', browser.get(page).text) == [own, of_made]
    assert of_others in browser.get("/web/tenants/default").text
    wrong = send(browser, page, f"{page}/tokens/revoke", of_made, confirm=own)
    assert (wrong.status_code, "form.not_confirmed" in wrong.text) == (400, True)
    assert done(send(browser, page, f"{page}/tokens/revoke", of_made, confirm=of_made)) == page
    assert site.api(made[0]).get("/v1/vms").status_code == 401
    assert re.findall(r'<th scope="row">(\w{12})<', browser.get(page).text) == [own]
    assert f"{page}/tokens/new" not in site.logged_in(site.token("*", "admin")).get(page).text, (
        "it would not stand here"
    )


def test_who_is_in_several_tenants_is_shown_the_capacity_of_one_and_chooses_another(site: Site) -> None:
    tenants = site.plane.services.tenancy.tenants
    for tenant in ("blue", "red"):
        tenants.create(tenant)
        tenants.put_member(Member(tenant=tenant, subject="uid:54321", role="tenant-user"))
    site.plane.services.tenancy.quotas.change("red", {"vms": 0})
    browser = local_browser(site, 54321)
    first, other = (browser.get(f"/web/capacity{query}") for query in ("", "?tenant=red"))
    for answer, tenant in ((first, "blue"), (other, "red")):
        assert answer.status_code == 200, answer.text
        assert re.findall(r"<option[^>]*>([^<]*)<", answer.text) == ["blue", "red"]
        assert f'<option value="{tenant}" selected>' in answer.text
        assert f"profile=t4-4q&amp;tenant={tenant}" in answer.text
    assert "quota.exceeded" in other.text
    assert ("quota.exceeded" in first.text, ">Clear<" in first.text, ">Clear<" in other.text) == (False, False, True)


def test_each_maintenance_that_is_not_over_is_on_the_drivers_page_with_its_own_buttons(site: Site) -> None:
    browser, services = site.logged_in(site.token("*", "admin")), site.plane.services
    later = Planned(at=site.plane.world.clock.now() + 3600)
    older, newer = (services.maintenances.drain(host, WantedDrain(when=later)).id for host in ("t4", "l40s"))
    assert [form["id"] for form in forms(browser.get("/web/drivers").text)["/web/drivers/cancel"]] == [newer, older]
    done(send(browser, "/web/drivers", "/web/drivers/cancel", older))
    assert [services.maintenances.get(one).state for one in (older, newer)] == ["cancelled", "running"]
    done(send(browser, "/web/drivers", "/web/drivers/cancel", newer))
    over = browser.get("/web/drivers").text
    assert over.count("The drain: ") == over.count(">cancelled<") == 1, "the one that was declared last"
