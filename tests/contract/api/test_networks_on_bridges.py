# SPDX-License-Identifier: Apache-2.0
"""Bridges of hosts as networks, over the whole API: who adds and takes them, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.core.tenancy.tenant import Member
from tests.contract.api.real_app import real_app_for
from tests.fakes.control_plane import plane_with

RED = 4001
OFFICE = {"name": "office", "bridge": "br0", "vlan": None, "dhcp_servers": ["192.0.2.1"], "tenant": None}


@dataclass
class Pool:
    operator: TestClient
    red: TestClient


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with plane_with(tmp_path, "t4") as plane:
        plane.services.tenancy.tenants.create("red")
        plane.services.tenancy.tenants.put_member(Member(tenant="red", subject=f"uid:{RED}", role="tenant-admin"))
        yield Pool(*map(TestClient, real_app_for(plane, None, RED)))


def test_what_the_command_sends_adds_a_bridge_or_a_nat_network(pool: Pool) -> None:
    nat: dict[str, Any] = {
        "name": "nat",
        "subnet": None,
        "bridge": None,
        "vlan": None,
        "dhcp_servers": [],
        "tenant": None,
    }
    assert pool.operator.post("/v1/networks", json=nat).json()["subnet"] == "10.88.0.0/24"
    added = pool.operator.post("/v1/networks", json=OFFICE)
    assert (added.status_code, added.json()["bridge"], added.json()["subnet"]) == (201, "br0", None)
    assert added.json()["dhcp_servers"] == ["192.0.2.1"]
    assert pool.red.get("/v1/networks/office").json() == added.json()
    assert pool.operator.delete("/v1/networks/office").status_code == 204


def test_only_an_operator_gives_and_takes_a_bridge(pool: Pool) -> None:
    assert pool.red.post("/v1/networks", json=OFFICE).status_code == 403
    assert pool.red.post("/v1/tenants/red/networks", json=OFFICE).status_code == 400
    assert pool.operator.post("/v1/networks", json={**OFFICE, "tenant": "red"}).status_code == 201
    refused = pool.red.delete("/v1/tenants/red/networks/office")
    assert (refused.status_code, refused.json()["code"]) == (403, "network.bridged")
    assert pool.operator.delete("/v1/tenants/red/networks/office").status_code == 204


@pytest.mark.parametrize(
    ("wanted", "status", "code"),
    [
        ({"name": "x", "vlan": 120}, 400, "network.bridge_missing"),
        ({"name": "x", "tenant": "red"}, 400, "network.bridge_missing"),
        ({"name": "x", "bridge": "br0", "subnet": "10.88.9.0/24"}, 400, "network.bridge_or_subnet"),
        ({"name": "x", "bridge": "br 0"}, 400, "network.bridge_invalid"),
        ({"name": "x", "bridge": "br0", "vlan": 4095}, 400, "network.vlan_invalid"),
        ({"name": "x", "bridge": "br0", "dhcp_servers": ["fe80::1"]}, 400, "network.dhcp_server_invalid"),
        ({"name": "x", "bridge": "br0", "tenant": "blue"}, 404, "tenant.unknown"),
        ({"name": "x", "bridge": "br1"}, 409, "host.no_bridge"),
    ],
)
def test_what_cannot_be_a_network_is_refused_and_nothing_is_added(
    pool: Pool, wanted: dict[str, Any], status: int, code: str
) -> None:
    refused = pool.operator.post("/v1/networks", json=wanted)
    assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert pool.operator.get("/v1/networks").json() == []


def test_a_network_of_kind_ovn_is_none_of_the_site(pool: Pool) -> None:
    wide = {"name": "wide", "kind": "ovn", "subnet": "10.0.0.0/24"}
    refused = pool.operator.post("/v1/networks", json=wide)
    assert (refused.status_code, refused.json()["code"]) == (400, "network.ovn_shared")
