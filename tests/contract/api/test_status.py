# SPDX-License-Identifier: Apache-2.0
"""The site on one screen, as operators and tenants see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.core.advice.gpu_map import HIDDEN_VM, Cell, GpuRow
from orchestrator.core.advice.overview import FleetUse, ModelUse, TenantUse
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.drivers import with_bundle


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        made.services.tenancy.tenants.create("vision")
        create(made, "train", "GRID T4-4Q")
        create(made, "render", "GRID T4-4Q", tenant="vision", start=False)
        create(made, "draw", "NVIDIA L40S-48Q", tenant="vision")
        yield made


def create(plane: ControlPlane, name: str, profile: str, *, tenant: str = "default", start: bool = True) -> None:
    plane.services.vms.create(replace(create_vm(name, profile=profile, start=start), tenant=tenant))
    plane.engine.drain()


def told(plane: ControlPlane, token: str | None = None, **query: str) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with TestClient(real_app(plane), headers=headers) as client:
        answer = client.get("/v1/status", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_operator_sees_what_is_free_and_who_has_the_rest(plane: ControlPlane) -> None:
    status = told(plane)
    assert status["hosts"] == {"states": {"ready": 2}, "cordoned": 0}
    t4, l40s = sorted(status["gpus"], key=lambda one: one["model"], reverse=True)
    assert (t4["gpus"], t4["used"]) == (2, 0.5)
    assert l40s == {"model": "L40S", "gpus": 2, "free": 1, "unusable": 0, "used": 1.0}
    assert status["tenants"] == [
        {"tenant": "default", "vms": 1, "running": 1, "gpus": 1, "used": 0.25},
        {"tenant": "vision", "vms": 2, "running": 1, "gpus": 2, "used": 1.25},
    ]
    assert status["operations"] == {"under_way": 0, "stuck": 0}
    assert (status["findings"], status["maintenances"]) == ({}, [])


def test_what_is_wrong_and_what_goes_on_is_counted(plane: ControlPlane) -> None:
    plane.services.hosts.cordon(L40S_HOST)
    plane.machine(T4_HOST).domains.clear()
    plane.services.findings.observe(None)
    with_bundle(plane, "580.105.06")
    plane.services.vms.stop("vision", "draw")
    status = told(plane)
    assert status["hosts"]["cordoned"] == 1
    assert next(one for one in status["gpus"] if one["model"] == "L40S")["unusable"] == 2
    assert sum(status["findings"].values()) == len(plane.services.findings.list(host=None)) > 0
    assert status["operations"]["under_way"] >= 1


def test_a_tenant_sees_its_own_part(plane: ControlPlane) -> None:
    token = plane.services.tenancy.tokens.create("vision", "tenant-user", None)[1]
    status = told(plane, token)
    assert status["gpus"] == [
        {"model": "L40S", "gpus": 1, "free": None, "unusable": None, "used": 1.0},
        {"model": "Tesla T4", "gpus": 1, "free": None, "unusable": None, "used": 0.25},
    ]
    assert [one["tenant"] for one in status["tenants"]] == ["vision"]
    assert (status["hosts"], status["findings"], status["maintenances"]) == (None, None, None)
    assert told(plane, tenant="vision") == status


def test_what_is_not_ours_is_used_and_nobodys() -> None:
    cells = (Cell(0, 1, "foreign"), Cell(1, 1, "a", "red"), Cell(2, 2))
    row = GpuRow("h", "g", "L4", None, "time_sliced:1024", 4, 2, cells)
    assert FleetUse.of([row]).by_model() == (ModelUse("L4", 1, 0, 0, 0.5),)
    assert FleetUse.of([row]).by_tenant() == {"red": TenantUse(1, 0.25)}
    hidden = replace(row, free=None, cells=(Cell(0, 1, "a", "red"), Cell(1, 3, HIDDEN_VM)))
    assert FleetUse.of([hidden]).by_model() == (ModelUse("L4", 1, None, None, 0.25),)
