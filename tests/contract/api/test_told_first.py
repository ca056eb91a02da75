# SPDX-License-Identifier: Apache-2.0
"""Why a VM has no place: what can never be comes before what is not so now, one's own VMs before others'."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.core.errors import InvalidInput, NoCapacity
from orchestrator.services.vms.capacity import Question
from tests.contract.api.test_tenant_views import PROFILE, WHOLE, site
from tests.fakes.control_plane import create_vm

GIB = 1024**3
BODY: dict[str, Any] = {
    "name": "b", "tenant": "own", "profile": PROFILE, "image": "guest", "memory_mib": 256, "disk_bytes": GIB,
}  # fmt: skip
NEVER = (
    ({"vcpus": 400}, "no host of this pool with GPUs for GRID T4-2Q can ever hold 400 vCPUs"),
    ({"memory_mib": 1 << 20}, "no host of this pool with GPUs for GRID T4-2Q can ever hold 1TiB of memory"),
    ({"profile": "NVIDIA A40-8Q"}, "no host of this pool can ever hold NVIDIA A40-8Q"),
    ({"profile": "gpu:16", "vcpus": 2}, "no host of this pool has 16 GPUs (the most: 2)"),
    ({"profile": "gpu:16"}, "no host of this pool has 16 GPUs (the most: 2)"),
    ({"profile": "gpu:16", "vcpus": 400}, "no host of this pool has 16 GPUs (the most: 2)"),
    ({"profile": "NVIDIA A40-8Q", "vcpus": 400}, "no host of this pool can ever hold NVIDIA A40-8Q"),
)


def told(client: TestClient, **more: object) -> tuple[int, str, str]:
    answer = client.post("/v1/vms", json={**BODY, **more})
    return answer.status_code, answer.json()["code"], answer.json()["detail"]


@pytest.mark.parametrize(("more", "message"), NEVER)
def test_what_can_never_be_is_said_to_tenants_even_where_the_pool_is_full(
    tmp_path: Path, more: dict[str, object], message: str
) -> None:
    with site(tmp_path / "s", [("full", WHOLE)]) as (plane, client):
        assert told(client, **more) == (400, "vm.never_fits", message)
        asked_as = {"profile": PROFILE, **{key: str(value) for key, value in more.items()}}
        explained = client.get("/v1/explain", params={"tenant": "own", **asked_as}).json()
        assert (explained["code"], explained["reasons"][0]["message"]) == ("vm.never_fits", message)
        assert explained["asked"]["vcpus"] == more.get("vcpus", explained["asked"]["vcpus"])
        assert len(explained["reasons"]) == 1
        plane.services.hosts.cordon("t4")
        assert told(client, **more)[1:] == ("vm.never_fits", message)


@pytest.mark.parametrize("more", [more for more, _ in NEVER])
def test_an_operator_is_told_the_same_by_create_and_by_explain(tmp_path: Path, more: dict[str, Any]) -> None:
    with site(tmp_path / "s", []) as (plane, _):
        asked: dict[str, Any] = {"profile": PROFILE, **more}
        with pytest.raises(InvalidInput) as caught:
            plane.services.vms.create(replace(create_vm("b"), **{"vcpus": 0, "memory_mib": 0, "disk_bytes": 0} | asked))
        found = plane.services.capacity.explain(Question(**asked)).explanation
        assert found.code == caught.value.code == "vm.never_fits"
        assert (found.reasons[0].message, found.reasons[1:]) == (caught.value.message, caught.value.reasons)


def test_ones_own_vms_come_before_those_of_others(tmp_path: Path) -> None:
    with site(tmp_path / "s", [(f"vm{n}", "GRID T4-16Q" if n < 1 else PROFILE) for n in range(8)]) as (plane, client):
        said = (507, "gpu.no_capacity", "there is no place for it now; your VM mine holds 1 of them")
        assert told(client) == said
        hint = client.post("/v1/vms", json=BODY).json()["hint"]
        assert hint.startswith("'vgpuctl delete-vm mine' gives that back")
        assert told(client, profile=WHOLE) == (507, "gpu.no_capacity", "there is no place for it now")
        explained = client.get(f"/v1/explain?tenant=own&profile={PROFILE}").json()
        assert [one["message"] for one in explained["reasons"]] == ["your VM mine holds 1 of them"]
        plane.services.vms.delete("own", "mine")
        plane.engine.drain()
        assert client.post("/v1/vms", json=BODY).status_code == 202


def test_a_host_that_is_closed_or_full_now_can_hold_it_later(tmp_path: Path) -> None:
    with site(tmp_path / "s", []) as (plane, client):
        plane.services.vms.delete("own", "mine")
        plane.engine.drain()
        for host in ("t4", "l40s"):
            plane.services.hosts.cordon(host)
        assert told(client) == (507, "gpu.no_capacity", "there is no place for it now")


def test_of_a_host_that_was_named_an_operator_hears_first_that_it_never_can(tmp_path: Path) -> None:
    with site(tmp_path / "s", [("full", WHOLE)]) as (plane, _):
        plane.services.hosts.cordon("t4")
        vm = replace(create_vm("b", profile="NVIDIA L40S-12Q"), host="t4")
        for ask in (plane.services.vms.create, plane.services.vms.plan):
            with pytest.raises(InvalidInput) as caught:
                ask(vm)
            assert (caught.value.code, caught.value.exit_code) == ("vm.never_fits", 2)
            assert caught.value.message == "host t4 can never hold NVIDIA L40S-12Q"
            assert {one.code for one in caught.value.reasons if "t4" in str(one.subjects)} == {"profile.unsupported"}
        found = plane.services.capacity.explain(Question(profile="NVIDIA L40S-12Q", host="t4")).explanation
        assert (found.code, found.reasons[0].message) == ("vm.never_fits", "host t4 can never hold NVIDIA L40S-12Q")
        with pytest.raises(NoCapacity) as closed:
            plane.services.vms.create(replace(create_vm("b", profile=PROFILE), host="t4"))
        assert "host.cordoned" in {one.code for one in closed.value.reasons}
