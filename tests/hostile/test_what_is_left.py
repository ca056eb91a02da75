# SPDX-License-Identifier: Apache-2.0
"""What a tenant leaves behind is not its successor's, and what strangers make us log does not fill a disk."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from orchestrator.core.tenancy.tenant import Member
from orchestrator.server.telemetry import AT_ONCE, Repeats
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import ControlPlane, plane_with

WANTED = {
    "name": "secret", "tenant": "red", "profile": "GRID T4-2Q", "image": "guest", "memory_mib": 256,
    "disk_bytes": 1 << 30,
}  # fmt: skip


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, "t4") as made:
        yield made


def _tenant(plane: ControlPlane, uid: int) -> TestClient:
    plane.services.tenancy.tenants.create("red")
    plane.services.tenancy.tenants.put_member(Member(tenant="red", subject=f"uid:{uid}", role="tenant-admin"))
    return TestClient(real_app(plane, uid))


def test_a_tenant_made_again_sees_nothing_of_the_one_before(plane: ControlPlane) -> None:
    client = _tenant(plane, 4711)
    assert client.post("/v1/vms", json=WANTED).status_code == 202
    plane.engine.drain()
    seen = client.get("/v1/operations").json()
    assert client.delete("/v1/vms/secret?tenant=red").status_code == 202
    plane.engine.drain()
    plane.services.tenancy.policies.change("red", {"isolation": "none"})
    plane.services.tenancy.tenants.delete("red")
    assert client.get("/v1/operations").status_code == 403
    later = _tenant(plane, 4712)
    for path in ("operations", "vms", "tokens?tenant=red"):
        answer = later.get(f"/v1/{path}")
        assert (answer.status_code, answer.json()) == (200, [])
    assert seen
    for one in seen:
        assert later.get(f"/v1/operations/{one['id']}").status_code == 404
        assert later.get(f"/v1/operations/{one['id']}/events").status_code == 404
    assert later.get("/v1/tenants/red/policy").json()["isolation"] == "instance"


def test_a_line_that_is_written_again_and_again_is_written_a_few_times_and_counted() -> None:
    now = 0.0
    lines = Repeats(lambda: now)

    def record(line: int) -> logging.LogRecord:
        return logging.LogRecord("x", logging.WARNING, "f.py", line, "peer %d", (line,), None)

    assert sum(lines.filter(record(1)) for _ in range(10_000)) == AT_ONCE
    assert lines.filter(record(2))
    now = 11.0
    later = record(1)
    assert lines.filter(later)
    assert later.getMessage() == f"peer 1 ({10_000 - AT_ONCE} more like it were left out)"
