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
    ("PUT", "/v1/images/i/guest-driver", {"version": "580.65.06"}, "set_guest_driver 580.65.06"),
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


def test_who_acted_with_a_token_is_known_by_its_name_when_it_and_its_tenant_are_gone(tmp_path: Path) -> None:
    with plane_with(tmp_path) as plane:
        plane.services.tenancy.tenants.create("red")
        named, text = plane.services.tenancy.tokens.create("red", "tenant-admin", None, "nightly-ci")
        nameless, other = plane.services.tenancy.tokens.create("red", "tenant-admin", None)
        for token, name in ((text, "a"), (other, "b")):
            client = TestClient(real_app(plane), headers={"Authorization": f"Bearer {token}"})
            assert client.post("/v1/tenants/red/networks", json={"name": name}).status_code == 201
            assert client.delete(f"/v1/tenants/red/networks/{name}").status_code == 204
            assert client.delete("/v1/tenants/red").status_code == 403
        plane.services.tenancy.tokens.revoke("red", named.id)
        plane.services.tenancy.tenants.delete("red")
        said = [(one.actor, one.action, one.subject) for one in plane.services.tenancy.audit.list(limit=100)]
        assert plane.services.tenancy.audit.verify(None).problems == ()
    actors = {actor for actor, _, _ in said if actor.startswith("token:")}
    assert actors == {f"token:{named.id} (nightly-ci)", f"token:{nameless.id}"}
    subjects = [(action, subject) for _, action, subject in said if action.endswith("token tenant-admin")]
    assert subjects == [
        ("create_token tenant-admin", nameless.id), ("create_token tenant-admin", f"{named.id} (nightly-ci)"),
    ]  # fmt: skip
    assert ("server", "revoke_token", f"{named.id} (nightly-ci)") in said
