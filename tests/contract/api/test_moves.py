# SPDX-License-Identifier: Apache-2.0
"""Where a VM may move, asked of the API: hosts for who runs the pool, the VM itself for its tenant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.contract.api.real_app import real_app
from tests.contract.api.test_tenant_views import site
from tests.fakes.control_plane import ControlPlane

Site = tuple[ControlPlane, TestClient, TestClient]
"""With the operator's client and the tenant's."""


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path / "state", []) as (plane, tenant), TestClient(real_app(plane)) as operator:
        yield plane, operator, tenant


def moves(client: TestClient, query: str = "") -> Any:
    reply = client.get(f"/v1/vms/mine/moves?tenant=own{query}")
    assert reply.status_code == 200, reply.text
    return reply.json()


def codes(verdicts: list[Any]) -> dict[str, list[str]]:
    return {verdict["kind"]: [limit["code"] for limit in verdict["limits"]] for verdict in verdicts}


STOPPED = {kind: ["move.not_running"] for kind in ("live", "suspended", "hibernated")}


def test_an_operator_is_told_of_each_host(both: Site) -> None:
    _, operator, _ = both
    answer = moves(operator)
    assert [host["host"] for host in answer["hosts"]] == ["l40s", "t4"]
    assert [host["is_its_own"] for host in answer["hosts"]] == [False, True]
    away, own = (codes(host["verdicts"]) for host in answer["hosts"])
    assert away == {**{kind: [*found, "profile.unsupported"] for kind, found in STOPPED.items()},
                    "cold": ["profile.unsupported"]}  # fmt: skip
    assert own["cold"] == ["move.same_host"]
    assert answer["hosts"][1]["gpus"] == ["0000:41:00.0"]


def test_hosts_are_filtered_and_paged(both: Site) -> None:
    plane, operator, _ = both
    plane.services.vms.start("own", "mine")
    plane.engine.drain()
    assert [host["host"] for host in moves(operator, "&legal=hibernated")["hosts"]] == ["t4"]
    assert moves(operator, "&legal=live")["hosts"] == []
    assert [host["host"] for host in moves(operator, "&host=l40s")["hosts"]] == ["l40s"]
    assert moves(operator, "&host=l40s&legal=cold")["hosts"] == []
    first = operator.get("/v1/vms/mine/moves?tenant=own&limit=1")
    assert (first.headers["x-total-count"], [host["host"] for host in first.json()["hosts"]]) == ("2", ["l40s"])
    assert [host["host"] for host in operator.get(first.links["next"]["url"]).json()["hosts"]] == ["t4"]


def test_a_tenant_is_told_of_its_own_vm_alone(both: Site) -> None:
    plane, _, tenant = both
    answer = moves(tenant)
    assert (answer["restricted"], answer["hosts"]) == (True, [])
    assert codes(answer["own"]) == {**STOPPED, "cold": []}
    assert tenant.get("/v1/vms/mine/moves?tenant=own&host=t4").json()["code"] == "host.not_yours"
    plane.services.vms.start("own", "mine")
    plane.engine.drain()
    assert all(verdict["legal"] for verdict in moves(tenant)["own"])


def test_what_is_not_there_is_named(both: Site) -> None:
    _, operator, tenant = both
    assert operator.get("/v1/vms/mine/moves?tenant=own&host=nowhere").json()["code"] == "host.unknown"
    assert operator.get("/v1/vms/none/moves?tenant=own").json()["code"] == "vm.unknown"
    assert operator.get("/v1/vms/mine/moves?tenant=own&legal=sideways").status_code == 400
    assert operator.get("/v1/vms/mine/moves?tenant=own&after=forged").json()["code"] == "request.cursor"
    assert tenant.get("/v1/vms/mine/moves?tenant=default").status_code in {403, 404}
