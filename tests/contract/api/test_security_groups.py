# SPDX-License-Identifier: Apache-2.0
"""Security groups over the whole API: who makes and changes them, what is refused, what is on record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.core.security_groups import MAX_GROUPS
from orchestrator.core.tenancy.tenant import Member
from tests.contract.api.real_app import real_app_for
from tests.fakes.control_plane import ControlPlane, plane_with

RED, BLUE = 4001, 4002
GROUPS, WEB = "/v1/security-groups", "/v1/security-groups/web?tenant=red"
RULES, USES = "/v1/security-groups/web/rules?tenant=red", "/v1/security-groups/web/uses?tenant=red"
ANYWHERE = {"remote": None, "group": None, "refuse": False}
HTTPS = {"direction": "in", "protocol": "tcp", "first_port": 443, "last_port": 443, **ANYWHERE}
OUT = {"direction": "out", "protocol": "any", "first_port": None, "last_port": None, **ANYWHERE}


@dataclass
class Pool:
    plane: ControlPlane
    operator: TestClient
    red: TestClient
    blue: TestClient


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with plane_with(tmp_path, "t4") as plane:
        for name, uid in (("red", RED), ("blue", BLUE)):
            plane.services.tenancy.tenants.create(name)
            plane.services.tenancy.tenants.put_member(Member(tenant=name, subject=f"uid:{uid}", role="tenant-user"))
        yield Pool(plane, *map(TestClient, real_app_for(plane, None, RED, BLUE)))


def make(pool: Pool, name: str = "web", **more: Any) -> Any:
    return pool.red.post(GROUPS, json={"name": name, "tenant": "red", **more})


def test_a_group_is_made_changed_read_and_deleted_by_its_tenant(pool: Pool) -> None:
    made = make(pool)
    assert (made.status_code, made.headers["location"]) == (201, "/v1/security-groups/web")
    assert made.json()["rules"] == [OUT]
    assert make(pool).json() == made.json()
    assert make(pool, rules=[HTTPS]).json()["code"] == "group.exists"
    changed = pool.red.post(RULES, json={"add": [{"direction": "in", "protocol": "tcp", "first_port": 443}]})
    assert changed.json()["rules"] == [HTTPS, OUT]
    assert pool.red.post(RULES, json={"add": [HTTPS], "remove": [OUT]}).json()["rules"] == [HTTPS]
    described = pool.red.patch(WEB, json={"description": "front", "labels": {"team": "a"}}).json()
    assert described == pool.red.get(WEB).json() == {**changed.json(), "rules": [HTTPS], "description": "front",
                                                    "labels": {"team": "a"}}  # fmt: skip
    assert [(row["tenant"], row["name"]) for row in pool.red.get(f"{GROUPS}?selector=team=a").json()] == [
        ("red", "web")
    ]
    assert pool.red.delete(WEB).status_code == 204
    assert pool.red.get(WEB).json()["code"] == "group.unknown"


def test_every_tenant_has_a_default_group_which_stays(pool: Pool) -> None:
    rows = pool.operator.get(GROUPS).json()
    assert [(row["tenant"], row["name"]) for row in rows] == [(name, "default") for name in ("blue", "default", "red")]
    default = f"{GROUPS}/default?tenant=red"
    assert pool.red.delete(default).json()["code"] == "group.default"
    changed = pool.red.post(f"{GROUPS}/default/rules?tenant=red", json={"add": [HTTPS]}).json()
    assert changed == pool.red.get(default).json()
    assert HTTPS in changed["rules"]
    assert HTTPS not in pool.blue.get(f"{GROUPS}/default?tenant=blue").json()["rules"]
    assert pool.red.patch(default, json={"description": "ours"}).json()["description"] == "ours"


def test_another_tenants_groups_are_not_there(pool: Pool) -> None:
    make(pool)
    never = f"{GROUPS}/never?tenant=red"
    for method, path in (("GET", ""), ("DELETE", ""), ("PATCH", ""), ("POST", "/rules"), ("POST", "/uses")):
        answers = [
            pool.blue.request(method, f"{GROUPS}/{name}{path}?tenant=red", json={} if method[0] == "P" else None)
            for name in ("web", "never")
        ]
        assert answers[0].status_code == answers[1].status_code >= 400, (method, path)
        assert answers[0].json()["code"] == answers[1].json()["code"]
    assert pool.red.get(never).status_code == 404
    assert [row["tenant"] for row in pool.blue.get(GROUPS).json()] == ["blue"]
    assert pool.blue.post(GROUPS, json={"name": "web", "tenant": "red"}).status_code in {403, 404}


def test_a_rule_that_refuses_is_another_than_the_one_that_allows(pool: Pool) -> None:
    make(pool, rules=[HTTPS])
    refusal = {**HTTPS, "refuse": True}
    assert pool.red.post(RULES, json={"add": [refusal]}).json()["rules"] == [HTTPS, refusal]
    assert pool.red.post(RULES, json={"remove": [refusal]}).json()["rules"] == [HTTPS]
    assert pool.red.post(RULES, json={"remove": [refusal]}).json()["code"] == "group.rule_unknown"
    actions = [row["action"] for row in pool.operator.get("/v1/audit?subject=red/web").json()]
    assert actions[:2] == ["change_security_group -refuse in tcp 443", "change_security_group +refuse in tcp 443"]
    usage = pool.red.get("/v1/tenants/red/quota").json()
    assert pool.red.post(RULES, json={"add": [refusal]}).status_code == 200
    assert pool.red.get("/v1/tenants/red/quota").json() != usage


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (RULES, {"add": [{**HTTPS, "protocol": "icmp"}]}, "group.rule_invalid"),
        (RULES, {"add": [{**OUT, "remote": "10.0.0.1/8"}]}, "group.rule_invalid"),
        (RULES, {"add": [{**OUT, "group": "nobody"}]}, "group.unknown"),
        (RULES, {"add": [HTTPS], "remove": [{**HTTPS, "last_port": 444}]}, "group.rule_unknown"),
        (RULES, {"add": [{"direction": "up"}]}, "request.invalid"),
        (USES, {"add": [{}]}, "group.on_nothing"),
        (USES, {"add": [{"vm": "nobody"}]}, "vm.unknown"),
        (USES, {"add": [{"network": "nowhere"}]}, "network.unknown"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_whole(pool: Pool, path: str, body: dict[str, Any], code: str) -> None:
    before = make(pool).json()
    refused = pool.red.post(path, json=body)
    assert refused.json()["code"] == code, refused.json()
    assert pool.red.get(WEB).json() == before


def test_a_network_of_each_host_alone_takes_no_group_and_says_why(pool: Pool) -> None:
    make(pool)
    pool.red.post("/v1/tenants/red/networks", json={"name": "nat"})
    refused = pool.red.post(USES, json={"add": [{"network": "nat"}]}).json()
    assert refused["code"] == "group.network_kind"
    assert "network nat is NAT of each host" in refused["detail"]
    assert refused["hint"]


def test_a_group_that_rules_name_stays_and_there_is_an_end_of_them(pool: Pool) -> None:
    make(pool)
    make(pool, "db", rules=[{"direction": "in", "group": "web"}])
    assert pool.red.delete(WEB).json()["code"] == "group.in_use"
    for number in range(MAX_GROUPS - 3):
        assert make(pool, f"g{number}").status_code == 201
    assert make(pool, "one-more").json()["code"] == "group.too_many"


def test_changes_are_on_record_and_the_tenants_end_takes_the_groups(pool: Pool) -> None:
    make(pool)
    pool.red.post(RULES, json={"add": [HTTPS], "remove": [OUT]})
    pool.red.post(RULES, json={"add": [HTTPS]})
    pool.red.post(RULES, json={"add": [{"direction": "in", "protocol": "tcp", "first_port": 22}]})
    rows = pool.operator.get("/v1/audit?subject=red/web").json()
    assert [row["action"] for row in rows] == [
        "change_security_group +in tcp 22", "change_security_group +in tcp 443, -out any",
        "create_security_group +out any",
    ]  # fmt: skip
    assert {row["actor"] for row in rows} == {f"uid:{RED}"}
    pool.operator.delete("/v1/tenants/red")
    pool.operator.post("/v1/tenants", json={"name": "red"})
    rows = pool.operator.get(f"{GROUPS}?tenant=red").json()
    assert [row["name"] for row in rows] == ["default"]
