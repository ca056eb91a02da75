# SPDX-License-Identifier: Apache-2.0
"""The overview of the map: the same numbers as the map's, by host and rack, for those who watch the pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.core.advice.gpu_map import GpuRow, use_of
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import ControlPlane, control_plane, create_vm


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    for name in ("t4", "l40s"):
        made.add_host(name)
    made.services.vms.create(replace(create_vm("train"), profile="GRID T4-16Q"))
    made.engine.drain()
    yield made
    made.store.close()


@pytest.fixture
def owner(plane: ControlPlane) -> TestClient:
    return TestClient(real_app(plane))


def _racks(client: TestClient, query: str = "") -> list[Any]:
    reply = client.get(f"/v1/gpu-map/racks{query}")
    assert reply.status_code == 200, reply.text
    return list(reply.json()["racks"])


def _by_host(racks: list[Any], name: str) -> dict[str, Any]:
    return {host: value for rack in racks for host, value in zip(rack["hosts"], rack[name], strict=True)}


def test_each_host_has_the_numbers_of_its_gpus_on_the_map(plane: ControlPlane, owner: TestClient) -> None:
    owner.post("/v1/hosts/l40s/cordon", json={})
    rows: tuple[GpuRow, ...] = plane.services.capacity.gpu_map()
    racks = _racks(owner)
    for use, column in (("empty", "empty"), ("unusable", "unusable"), (None, "gpus")):
        counted = {
            host: sum(row.host == host and use in {None, use_of(row)} for row in rows) for host in ("t4", "l40s")
        }
        assert _by_host(racks, column) == counted
    assert _by_host(racks, "used") == {"t4": 1.0, "l40s": 0.0}
    assert _by_host(racks, "states") == {"t4": "ready", "l40s": "ready"}


def test_a_label_of_a_host_moves_it_to_its_rack_at_once(owner: TestClient) -> None:
    assert [(rack["rack"], rack["hosts"]) for rack in _racks(owner)] == [(None, ["l40s", "t4"])]
    assert owner.patch("/v1/hosts/t4", json={"labels": {"rack": "3"}}).status_code == 200
    assert [(rack["rack"], rack["hosts"]) for rack in _racks(owner)] == [("3", ["t4"]), (None, ["l40s"])]
    gpus = owner.get("/v1/gpu-map?rack=3&limit=1")
    assert {(gpu["host"], gpu["rack"]) for gpu in gpus.json()["gpus"]} == {("t4", "3")}
    assert gpus.headers["x-total-count"] == str(_by_host(_racks(owner), "gpus")["t4"])
    assert {gpu["rack"] for gpu in owner.get("/v1/gpu-map?host=l40s").json()["gpus"]} == {None}
    assert owner.get("/v1/gpu-map?rack=4").json()["gpus"] == []


@pytest.mark.parametrize("model", ["tesla%20t4", "tesla", "T4"])
def test_a_model_is_picked_by_its_name_and_by_a_part_of_it(owner: TestClient, model: str) -> None:
    assert _by_host(_racks(owner, f"?model={model}"), "used") == {"t4": 1.0}
    reply = owner.get(f"/v1/gpu-map?model={model}&limit=1")
    assert {gpu["host"] for gpu in reply.json()["gpus"]} == {"t4"}
    assert reply.headers["x-total-count"] == str(_by_host(_racks(owner), "gpus")["t4"])


@pytest.mark.parametrize("path", ["gpu-map", "gpu-map/racks", "readings/gpus"])
def test_a_model_that_no_gpu_is_of_is_refused_and_those_that_are_there_are_named(owner: TestClient, path: str) -> None:
    reply = owner.get(f"/v1/{path}?model=H100")
    assert (reply.status_code, reply.json()["code"]) == (404, "gpu.model_unknown")
    assert "Tesla T4" in reply.json()["hint"]


def test_a_tenant_is_told_of_no_rack(plane: ControlPlane, owner: TestClient) -> None:
    owner.patch("/v1/hosts/t4", json={"labels": {"rack": "3"}})
    token = plane.services.tenancy.tokens.create("default", "tenant-admin", None)[1]
    own = TestClient(real_app(plane), headers={"Authorization": f"Bearer {token}"})
    assert own.get("/v1/gpu-map/racks").json()["code"] == "access.denied"
    assert own.get("/v1/gpu-map?rack=3").json()["code"] == "host.not_yours"
    assert [gpu["rack"] for gpu in own.get("/v1/gpu-map?model=tesla").json()["gpus"]] == [None]
    assert own.get("/v1/gpu-map?model=L40S").json()["hint"] == "there are Tesla T4"
