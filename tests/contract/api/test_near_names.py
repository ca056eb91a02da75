# SPDX-License-Identifier: Apache-2.0
"""Whoever mistypes a name is told which one was meant, if it is one that they may know of."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import plane_with

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
