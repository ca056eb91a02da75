# SPDX-License-Identifier: Apache-2.0
"""A tenant's network is nobody else's: asked for in every way that takes a network's name, it is not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from starlette.testclient import TestClient

from orchestrator.core.tenancy.tenant import Member
from tests.contract.api.real_app import real_app_for
from tests.fakes.control_plane import GIB, ControlPlane, plane_with

RED, BLUE = 4001, 4002
SECRET = "plum"
"""A network that red has, and blue is to know nothing of."""
NEVER = "pear"
"""One that nobody has."""


def body(tenant: str, network: str, name: str = "vm") -> dict[str, Any]:
    return {
        "name": name, "tenant": tenant, "network": network, "profile": "GRID T4-2Q", "image": "guest", "vcpus": 1,
        "memory_mib": 256, "disk_bytes": GIB,
    }  # fmt: skip


@dataclass
class Pool:
    plane: ControlPlane
    operator: TestClient
    red: TestClient
    blue: TestClient


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with plane_with(tmp_path, "t4", "l40s") as plane:
        tenants = plane.services.tenancy.tenants
        for name, uid in (("red", RED), ("blue", BLUE)):
            tenants.create(name)
            tenants.put_member(Member(tenant=name, subject=f"uid:{uid}", role="tenant-user"))
            plane.services.tenancy.policies.change(name, {"isolation": "none"})
        plane.services.networks.add(SECRET, None, "red")
        yield Pool(plane, *map(TestClient, real_app_for(plane, None, RED, BLUE)))


def network_on_hosts(plane: ControlPlane) -> dict[str | None, str | None]:
    """Of each domain, as its host defined it."""
    machines = (plane.machine(name) for name in ("t4", "l40s"))
    roots = [ET.fromstring(xml) for machine in machines for xml, _ in machine.domains.values()]
    sources = ((root, root.find("devices/interface/source")) for root in roots)
    return {root.findtext("name"): None if source is None else source.get("network") for root, source in sources}


@pytest.mark.parametrize("name", [SECRET, f"red.{SECRET}"])
def test_what_another_tenant_has_is_answered_as_what_nobody_has(pool: Pool, name: str) -> None:
    asked = (
        ("POST", "/v1/vms", True),
        ("POST", "/v1/vms/plan", True),
        ("GET", "/v1/networks/{}", False),
        ("GET", "/v1/tenants/blue/networks/{}", False),
        ("DELETE", "/v1/tenants/blue/networks/{}", False),
    )
    for method, path, makes in asked:
        theirs, nobodys = (
            pool.blue.request(method, path.format(one), json=body("blue", one) if makes else None)
            for one in (name, name.replace(SECRET, NEVER))
        )
        assert theirs.status_code == nobodys.status_code >= 400, (method, path, theirs.text)
        assert theirs.text.replace(SECRET, NEVER) == nobodys.text
    for path in ("/v1/tenants/red/networks/" + name, "/v1/networks?tenant=red"):
        assert pool.blue.get(path).json()["code"] == "tenant.unknown"
    assert pool.blue.delete("/v1/tenants/red/networks/" + name).status_code == 404
    assert SECRET not in pool.blue.get("/v1/networks").text
    assert SECRET in pool.operator.get("/v1/networks").text


def test_a_name_that_is_nearly_anothers_is_answered_with_no_hint_of_it(pool: Pool) -> None:
    nearly = SECRET[:-1] + "b"
    for answer in (pool.blue.post("/v1/vms", json=body("blue", nearly)), pool.blue.get(f"/v1/networks/{nearly}")):
        assert answer.json()["code"] == "network.unknown"
        assert SECRET not in answer.text
    assert SECRET in pool.red.post("/v1/vms", json=body("red", nearly)).text


def test_the_same_name_is_two_networks_with_subnets_of_their_own(pool: Pool) -> None:
    assert pool.blue.post("/v1/tenants/blue/networks", json={"name": SECRET}).status_code == 201
    for client, tenant in ((pool.red, "red"), (pool.blue, "blue")):
        assert client.post("/v1/vms", json=body(tenant, SECRET)).status_code == 202
    pool.plane.engine.drain()
    assert network_on_hosts(pool.plane) == {"red.vm": f"red.{SECRET}", "blue.vm": f"blue.{SECRET}"}
    found = pool.operator.get("/v1/networks").json()
    assert [(one["tenant"], one["name"]) for one in found] == [("blue", SECRET), ("red", SECRET)]
    assert len({one["subnet"] for one in found}) == 2
    shown = pool.blue.get("/v1/vms/vm?tenant=blue").json()
    assert (shown["network"], shown["network_tenant"]) == (SECRET, "blue")


def test_a_tenants_first_vm_brings_a_default_network_of_its_own(pool: Pool) -> None:
    planned = pool.operator.post("/v1/vms/plan", json=body("blue", "default")).json()
    assert pool.blue.get("/v1/networks").json() == []
    for name in ("vm", "vm", "second"):
        assert pool.blue.post("/v1/vms", json=body("blue", "default", name)).status_code == 202
    pool.plane.engine.drain()
    (made,) = pool.blue.get("/v1/networks").json()
    assert (made["name"], made["tenant"], made["shared"]) == ("default", "blue", False)
    assert planned["actions"][0] == {"action": "EnsureNetwork", "name": "blue.default", "subnet": made["subnet"]}
    assert network_on_hosts(pool.plane) == {"blue.vm": "blue.default", "blue.second": "blue.default"}
    records = pool.plane.services.tenancy.audit.list(limit=100)
    assert [one.subject for one in records if one.action == "add_network"].count("blue/default") == 1


def test_a_network_that_vms_are_on_is_kept_and_its_owner_told_which(pool: Pool) -> None:
    assert pool.red.post("/v1/vms", json=body("red", SECRET)).status_code == 202
    pool.plane.engine.drain()
    refused = pool.red.delete(f"/v1/tenants/red/networks/{SECRET}")
    assert (refused.status_code, refused.json()["code"]) == (409, "network.in_use")
    assert "vm" in refused.json()["title"] + refused.json()["detail"]
    pool.red.delete("/v1/vms/vm?tenant=red")
    pool.plane.engine.drain()
    assert pool.red.delete(f"/v1/tenants/red/networks/{SECRET}").status_code == 204
    assert pool.plane.services.tenancy.audit.list(limit=1)[0].action == "delete_network"


def test_what_is_shared_is_the_operators_alone_to_make_share_and_delete(pool: Pool) -> None:
    for method, path in (
        ("POST", "/v1/networks"), ("POST", "/v1/networks/lab/share"), ("POST", "/v1/networks/lab/unshare"),
        ("DELETE", "/v1/networks/lab"), ("POST", "/v1/tenants/red/networks"),
    ):  # fmt: skip
        answer = pool.blue.request(method, path, json={"name": "lab"} if path.endswith("networks") else None)
        assert answer.status_code in {403, 404}, (path, answer.text)
    assert pool.operator.post("/v1/networks", json={"name": "lab"}).json()["shared"]
    for client, tenant in ((pool.red, "red"), (pool.blue, "blue")):
        assert client.post("/v1/vms", json=body(tenant, "lab")).status_code == 202
    pool.plane.engine.drain()
    assert set(network_on_hosts(pool.plane).values()) == {"lab"}
    assert pool.operator.delete("/v1/networks/lab").json()["code"] == "network.in_use"
    assert pool.operator.post("/v1/networks/lab/unshare").status_code == 200
    assert pool.blue.post("/v1/vms", json=body("blue", "lab", "late")).json()["code"] == "network.unknown"
    assert pool.blue.get("/v1/networks/lab").status_code == 404
    assert pool.blue.get("/v1/vms/vm?tenant=blue").json()["network"] == "lab"
    for action in ("unshare_network", "add_network"):
        assert action in {one.action for one in pool.plane.services.tenancy.audit.list(limit=50)}


def test_no_tenant_takes_all_subnets(pool: Pool) -> None:
    for number in range(15):
        assert pool.red.post("/v1/tenants/red/networks", json={"name": f"n{number}"}).status_code == 201
    refused = pool.red.post("/v1/tenants/red/networks", json={"name": "one-more"})
    assert (refused.status_code, refused.json()["code"]) == (409, "network.too_many")
    assert pool.blue.post("/v1/tenants/blue/networks", json={"name": "mine"}).status_code == 201


def test_a_tenant_that_is_made_again_has_none_of_the_networks_of_before(pool: Pool) -> None:
    tenants = pool.plane.services.tenancy.tenants
    tenants.delete("red")
    tenants.create("red")
    assert pool.operator.get("/v1/networks?tenant=red").json() == []


def test_a_subnet_that_is_taken_tells_nobody_which_one_another_has(pool: Pool) -> None:
    (there,) = [one["subnet"] for one in pool.operator.get("/v1/networks").json() if one["name"] == SECRET]
    for asked in ("10.88.0.0/16", there):
        told = pool.blue.post("/v1/tenants/blue/networks", json={"name": "n", "subnet": asked})
        assert (told.status_code, told.json()["code"]) == (409, "network.subnet_overlaps")
        assert there not in told.text.replace(asked, "")
