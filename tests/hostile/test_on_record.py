# SPDX-License-Identifier: Apache-2.0
"""Every change has its audit record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from starlette.testclient import TestClient

from orchestrator.core.vms.lease import WantedEnd
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


AGAIN: tuple[tuple[str, str, object], ...] = (
    ("PATCH", "/v1/vms/train", {"labels": {"a": "1"}, "protected": True}),
    ("POST", "/v1/vms/leased/extend", {"until": "2030-01-01T00:00:00Z"}),
    ("PATCH", "/v1/hosts/t4", {"labels": {"rack": "3"}}),
    ("POST", "/v1/hosts/t4/cordon", {"reason": "fan"}),
    ("POST", "/v1/hosts/t4/uncordon", None),
    ("PATCH", "/v1/tenants/default", {"description": "lab", "labels": {"a": "1"}}),
    ("PATCH", "/v1/tenants/default/policy", {"isolation": "gpu"}),
    ("PATCH", "/v1/tenants/default/quota", {"limits": {"vms": 5}}),
    ("PUT", "/v1/tenants/default/members", {"subject": "uid:1234", "role": "tenant-user"}),
    ("DELETE", "/v1/tenants/default/members?subject=uid:1234", None),
    ("POST", "/v1/tenants/default/networks", {"name": "own"}),
    ("PATCH", "/v1/tenants/default/networks/own", {"description": "ours"}),
    ("POST", "/v1/networks", {"name": "n"}),
    ("PATCH", "/v1/networks/n", {"labels": {"a": "1"}}),
    ("POST", "/v1/networks/n/unshare", None),
    ("POST", "/v1/images", {"name": "i", "source": "/guest.qcow2"}),
    ("PATCH", "/v1/images/i", {"labels": {"a": "1"}}),
    ("PUT", "/v1/images/i/guest-driver", {"version": "580.65.06"}),
    ("POST", "/v1/volumes", {"name": "v", "size_bytes": 2**30}),
    ("PATCH", "/v1/volumes/v", {"description": "data"}),
)


def test_what_is_so_already_is_not_recorded_again(tmp_path: Path) -> None:
    with plane_with(tmp_path, "t4") as plane:
        audit, client = plane.services.tenancy.audit, TestClient(real_app(plane))
        plane.services.vms.create(create_vm())
        plane.services.vms.create(replace(create_vm("leased"), end=WantedEnd(after_s=3600)))
        plane.engine.drain()
        token = plane.services.tenancy.tokens.create("default", "tenant-user", None)[0].id
        for method, path, body in (*AGAIN, ("DELETE", f"/v1/tokens/{token}?tenant=default", None)):
            before = audit.how_many()
            first = client.request(method, path, json=body)
            assert first.is_success, (path, first.text)
            records = audit.how_many()
            assert records == before + 1, (method, path)
            again = client.request(method, path, json=body)
            assert (again.status_code < 300, again.content) == (True, first.content), path
            assert audit.how_many() == records, (method, path)
        started = plane.services.vms.create(create_vm("other"))
        for _ in range(2):
            plane.services.operations.cancel(str(started.operation))
        assert [one.action for one in audit.list(limit=2)] != ["cancel", "cancel"]


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
