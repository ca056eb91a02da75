# SPDX-License-Identifier: Apache-2.0
"""Whoever mistypes a name is told which one was meant, if it is one that they may know of."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from orchestrator.api.paging import encode_cursor
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import create_vm, plane_with

OF_TENANT = (
    ("GET", "/v1/tenants/reserch", None),
    ("GET", "/v1/tenants/reserch/quota", None),
    ("GET", "/v1/tenants/reserch/policy", None),
    ("GET", "/v1/tokens?tenant=reserch", None),
    ("POST", "/v1/tenants/reserch/networks", {"name": "n"}),
    ("PATCH", "/v1/tenants/reserch/policy", {"isolation": "gpu"}),
)


@pytest.mark.parametrize(("method", "path", "body"), OF_TENANT)
def test_a_tenant_that_is_not_there_is_near_one_for_operators_alone(
    tmp_path: Path, method: str, path: str, body: object
) -> None:
    with plane_with(tmp_path) as plane:
        for name in ("research", "blue"):
            plane.services.tenancy.tenants.create(name)
        token = plane.services.tenancy.tokens.create("blue", "tenant-admin", None)[1]
        operator = TestClient(real_app(plane)).request(method, path, json=body)
        stranger = TestClient(real_app(plane), headers={"Authorization": f"Bearer {token}"})
        missing = stranger.request(method, path, json=body)
        others = stranger.request(method, path.replace("reserch", "research"), json=body)
    assert (operator.status_code, operator.json()["hint"]) == (404, "did you mean research?")
    assert missing.status_code == others.status_code
    assert missing.text.replace("reserch", "research") == others.text
    assert "did you mean" not in missing.text


def test_a_gpu_that_a_host_has_not_is_near_one_that_it_has(tmp_path: Path) -> None:
    with plane_with(tmp_path, "t4") as plane:
        told = TestClient(real_app(plane)).get("/v1/gpus/t4/0000:41:00.1").json()
    assert (told["code"], told["hint"].split(",")[0]) == ("gpu.unknown", "did you mean 0000:41:00.0")


NEVER_THERE = (
    ("operations?subject=default/trian", "operation.subject_unknown", "did you mean default/train"),
    ("operations?subject=t44", "operation.subject_unknown", "did you mean t4"),
    ("audit?subject=default/trian", "audit.subject_unknown", "did you mean default/train"),
    ("audit?subject=nope", "audit.subject_unknown", "'vgpuctl audit list'"),
    ("audit?actor=serverr", "audit.actor_unknown", "did you mean server"),
    ("audit?actor=token:0123456789ab", "audit.actor_unknown", ""),
)


def test_what_never_was_is_told_from_what_nothing_was_done_to(tmp_path: Path) -> None:
    with plane_with(tmp_path, "t4") as plane:
        vm = plane.services.vms.create(create_vm("train"))
        plane.engine.drain()
        token, secret = plane.services.tenancy.tokens.create("default", "read-only", None)
        operator = TestClient(real_app(plane))
        for path, code, hint in NEVER_THERE:
            told = operator.get(f"/v1/{path}")
            assert (told.status_code, told.json()["code"]) == (404, code), path
            assert hint in told.json()["hint"], path
        there = (
            "operations?subject=guest", f"operations?subject=default/train&after={encode_cursor((str(vm.operation),))}",
            "audit?subject=guest&before=1", "audit?actor=server&before=1", f"audit?actor=token:{token.id}",
        )  # fmt: skip
        assert [(path, operator.get(f"/v1/{path}").text) for path in there] == [(path, "[]") for path in there]
        plane.services.vms.delete("default", "train")
        plane.engine.drain()
        gone = [operator.get(f"/v1/{noun}?subject=default/train").json() for noun in ("operations", "audit")]
        assert [len(one) for one in gone] == [2, 2]
        tenant = TestClient(real_app(plane), headers={"Authorization": f"Bearer {secret}"})
        assert tenant.get("/v1/operations?subject=default/train").status_code == 200
        told = tenant.get("/v1/operations?subject=t4").json()
    assert (told["code"], told["hint"]) == ("operation.subject_unknown", "'vgpuctl operation list' shows them")


def test_a_subject_is_found_beyond_the_newest_records(tmp_path: Path) -> None:
    with plane_with(tmp_path) as plane:
        plane.services.tenancy.tenants.create("first")
        for number in range(5):
            plane.services.tenancy.tenants.create(f"later-{number}")
        found = TestClient(real_app(plane)).get("/v1/audit?subject=first&limit=1").json()
    assert [one["action"] for one in found] == ["create_tenant"]


def test_a_vm_goes_by_its_id_however_its_letters_are_written(tmp_path: Path) -> None:
    with plane_with(tmp_path, "t4") as plane:
        plane.services.vms.create(create_vm())
        api = TestClient(real_app(plane))
        vm = str(api.get("/v1/vms/train?tenant=default").json()["id"])
        assert vm != vm.upper()
        for written in (vm, vm.upper(), vm[:8].upper()):
            assert api.get(f"/v1/vms/{written}?tenant=default").json()["name"] == "train", written
