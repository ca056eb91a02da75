# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core.maintenance.maintenance import Planned
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
