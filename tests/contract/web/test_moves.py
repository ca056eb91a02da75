# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.core.maintenance.maintenance import DefragmentMove, HostTurn, Maintenance, Planned
from orchestrator.core.vms.lease import show_moment
from orchestrator.services.maintenance.maintenances import WantedDrain
from orchestrator.web.api_calls import ApiCalls
from tests.contract.web.conftest import FROM_A_PAGE, Site
from tests.contract.web.test_views import LIVE, shown
from tests.fakes.fake_machine import FakeMachine, t4


def test_a_vm_s_page_tells_where_it_may_move_and_its_tenant_what_keeps_it(site: Site) -> None:
    page = "/web/vms/default/train"
    operator = site.logged_in(site.token("*", "admin"))
    everywhere = operator.get(page).text
    assert shown(everywhere).count("it is there already") == 2
    assert "move.same_host" in everywhere
    only = shown(operator.get(f"{page}?legal=suspended&host=t4").text)
    assert "(its own)" in only
    assert "no host is called" in shown(operator.get(f"{page}?host=nowhere").text)
    own = shown(site.logged_in(site.token("default", "tenant-user")).get(page).text)
    assert "as far as the VM itself goes yes yes yes yes" in own
    assert "(its own)" not in own
    assert "Where it may move" not in operator.get(page, headers=LIVE).text


def test_each_question_of_a_vm_s_page_is_put_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = list[str](), ApiCalls.answer

    async def noted(calls: ApiCalls, method: str, path: str, *args: Any, **more: Any) -> Any:
        asked.append(path)
        return await answer(calls, method, path, *args, **more)

    monkeypatch.setattr(ApiCalls, "answer", noted)
    assert site.logged_in(site.token("*", "admin")).get("/web/vms/default/train").status_code == 200
    assert "/v1/vms/train/moves" in asked
    assert len(asked) == len(set(asked))


def test_an_operator_moves_it_by_a_button_and_a_refusal_stands_beside_it(site: Site) -> None:
    page, plane = "/web/vms/default/train", site.plane
    operator = site.logged_in(site.token("*", "operator"))
    form = f'action="{page}/move"'
    assert form in operator.get(page).text
    assert form not in site.logged_in(site.token("default", "tenant-admin")).get(page).text
    vm = plane.services.vms.get("default", "train")
    refused = operator.post(f"{page}/move", data={"key": "m1", "id": vm.id, "host": vm.host}, headers=FROM_A_PAGE)
    assert refused.status_code == 409
    assert f'name="host" maxlength="63" list="moves-to" autocomplete="off" value="{vm.host}"' in refused.text
    another = operator.post(f"{page}/move", data={"key": "m2", "id": "of-the-one-before"}, headers=FROM_A_PAGE)
    assert another.status_code == 409
    plane.hosts.machines["t4-2.test"] = FakeMachine(machine_id="m9", gpus=[t4()])
    plane.add_host("t4-2")
    wanted = {"key": "m3", "id": vm.id, "host": "t4-2", "cold": "1"}
    begun = operator.post(f"{page}/move", data=wanted, headers=FROM_A_PAGE)
    assert begun.status_code == 303, shown(begun.text)
    plane.engine.drain()
    assert plane.services.vms.get("default", "train").host == "t4-2"
    assert plane.services.vms.get("default", "train").state == vm.state


@pytest.mark.parametrize(("chosen", "told"), [
    (False, "is stopped in its host's turn, moved, and started again, from "),
    (True, "is stopped when its user has chosen, moved, and started again, from "),
])  # fmt: skip
def test_a_vm_s_page_tells_what_maintenance_does_to_it(site: Site, *, chosen: bool, told: str) -> None:
    services, at = site.plane.services, site.plane.world.clock.now() + 3600
    host = services.vms.get("default", "train").host
    services.maintenances.drain(host, WantedDrain(when=Planned(at=at)))
    if chosen:
        services.maintenances.choose("default", "train", at + 3600)
    page = shown(site.logged_in(site.token("default", "tenant-user")).get("/web/vms/default/train").text)
    assert f"Maintenance of its host (drain): it {told}" in page


def test_an_operator_empties_a_host_by_its_page_and_sees_how_far_it_is(site: Site) -> None:
    operator, page = site.logged_in(site.token("*", "operator")), "/web/hosts/t4"
    wanted = {"key": "d1", "policy": "wait", "reason": "fan 3"}
    refused = operator.post(f"{page}/drain", data=wanted, headers=FROM_A_PAGE)
    assert (refused.status_code, "form.not_confirmed" in refused.text) == (400, True)
    assert site.plane.services.maintenances.list() == ()
    begun = operator.post(f"{page}/drain", data={**wanted, "key": "d2", "confirm": "t4"}, headers=FROM_A_PAGE)
    assert begun.status_code == 303
    html = operator.get(page).text
    assert "The drain emptying fan 3" in shown(html)
    assert "waits for 1 VMs of default (wait)" in shown(html)
    assert f'action="{page}/drain"' not in html
    watching = site.logged_in(site.token("*", "read-only")).get(page).text
    assert "The drain emptying" in shown(watching)
    assert "cancel-maintenance" not in watching
    (its,) = site.plane.services.maintenances.list()
    operator.post(f"{page}/cancel-maintenance", data={"key": "d3", "id": its.id}, headers=FROM_A_PAGE)
    assert site.plane.services.maintenances.get(its.id).state == "cancelled"


def test_a_tenant_chooses_another_time_for_maintenance_on_its_vm_s_page(site: Site) -> None:
    services, now = site.plane.services, site.plane.world.clock.now()
    services.maintenances.drain("t4", WantedDrain(when=Planned(at=now + 3600)))
    vm, page = services.vms.get("default", "train"), "/web/vms/default/train/maintenance"
    user = site.logged_in(site.token("default", "tenant-user"))
    assert "Choose another time" in user.get("/web/vms/default/train").text
    empty = user.post(page, data={"key": "c1"}, headers=FROM_A_PAGE)
    assert (empty.status_code, "form.empty" in empty.text) == (400, True)
    user.post(page, data={"key": "c2", "at": show_moment(now + 7200)}, headers=FROM_A_PAGE)
    assert services.maintenances.get().chosen[vm.id] == pytest.approx(now + 7200, abs=60)
    user.post(page, data={"key": "c3", "now": "1"}, headers=FROM_A_PAGE)
    assert services.maintenances.get().chosen[vm.id] < now + 60


def test_a_move_is_forecast_on_the_page_and_nothing_is_begun(site: Site) -> None:
    plane = site.plane
    plane.hosts.machines["t4-2.test"] = FakeMachine(machine_id="m9", gpus=[t4()])
    plane.add_host("t4-2")
    operator = site.logged_in(site.token("*", "operator"))
    page = operator.post("/web/vms/default/train/forecast", data={"cold": "1"}, headers=FROM_A_PAGE)
    assert (page.status_code, "To t4-2: it is shut down" in shown(page.text)) == (200, True)
    refused = operator.post("/web/vms/default/train/forecast", data={"host": "nowhere"}, headers=FROM_A_PAGE)
    assert (refused.status_code, "no host is called" in shown(refused.text)) == (404, True)
    assert plane.services.vms.get("default", "train").host == "t4"


def test_a_host_of_a_defragmentation_may_be_emptied_and_tells_which_vms_come_to_it(site: Site) -> None:
    now = site.plane.world.clock.now()
    move = DefragmentMove(vm="v", name="default/comer", source="l40s", leaves="g0", target="t4", gpu="g1")
    its = Maintenance(
        id=site.plane.ids.new_uuid(), act="defragment", policy="tenant", max_unavailable=1, canary=0, failure_budget=0,
        created_at=now, starts_at=now, hosts=tuple(HostTurn(host=host, phase="moving") for host in ("t4", "l40s")),
        moves=(move,),
    )  # fmt: skip
    with site.plane.store.begin() as tx:
        tx.maintenances.add(its)
    html = site.logged_in(site.token("*", "operator")).get("/web/hosts/t4").text
    assert 'action="/web/hosts/t4/drain"' in html
    assert "VMs that come to it so that GPUs of others get empty: default/comer" in shown(html)
    with site.plane.store.begin() as tx:
        tx.maintenances.put(replace(its, hosts=tuple(HostTurn(host=host, phase="emptying") for host in ("t4", "l40s"))))
    assert "Cancel it on all 2 hosts" in shown(site.logged_in(site.token("*", "operator")).get("/web/hosts/t4").text)
