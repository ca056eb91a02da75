# SPDX-License-Identifier: Apache-2.0
"""Every change has its audit record."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import create_vm, plane_with

CHANGES: tuple[tuple[str, str, object, str], ...] = (
    ("POST", "/v1/networks", {"name": "n"}, "add_network"),
    ("POST", "/v1/hosts/t4/cordon", None, "cordon"),
    ("POST", "/v1/hosts/t4/uncordon", None, "uncordon"),
    ("POST", "/v1/images", {"name": "i", "source": "/guest.qcow2"}, "add_image"),
    ("DELETE", "/v1/images/i", None, "remove_image"),
    ("POST", "/v1/findings/repair", {}, "repair"),
    ("PATCH", "/v1/tenants/default/policy", {"isolation": "gpu"}, "set_policy isolation=gpu"),
)


def test_every_change_has_its_record(tmp_path: Path) -> None:
    with plane_with(tmp_path, "t4") as plane:
        client = TestClient(real_app(plane))
        for method, path, body, action in CHANGES:
            answer = client.request(method, path, json=body)
            assert answer.status_code < 300, answer.text
            assert plane.services.tenancy.audit.list(limit=1)[0].action == action
        started = plane.services.vms.create(create_vm())
        plane.services.operations.cancel(str(started.operation))
        assert plane.services.tenancy.audit.list(limit=1)[0].action == "cancel"
