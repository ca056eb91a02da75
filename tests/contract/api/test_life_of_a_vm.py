# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from tests.contract.api.conftest import Send


def _finish(send: Send, operation: str) -> Any:
    since = -1
    while True:
        found = send("GET", f"/v1/operations/{operation}?wait=10&since={since}").json()
        assert found["revision"] > since
        since = found["revision"]
        if found["state"] in {"done", "undone", "stuck"}:
            return found


def _wanted(name: str, **change: object) -> dict[str, object]:
    return {"name": name, "profile": "t4-small", "image": "guest", **change}


def test_a_vm_is_created_stopped_started_and_deleted(send: Send) -> None:
    created = send("POST", "/v1/vms", _wanted("alive"))
    assert created.status == 202
    assert _finish(send, created.json()["operation"])["state"] == "done"
    vm = send("GET", "/v1/vms/alive").json()
    assert (vm["state"], vm["host"], vm["device"]["type_name"]) == ("running", "gpu1", "GRID T4-1Q")
    for verb, state in (("stop", "stopped"), ("start", "running")):
        _finish(send, send("POST", f"/v1/vms/alive/{verb}").json()["operation"])
        assert send("GET", "/v1/vms/alive").json()["state"] == state
    _finish(send, send("DELETE", "/v1/vms/alive").json()["operation"])
    assert send("GET", "/v1/vms/alive").status == 404


def test_the_same_request_attaches_and_another_conflicts(send: Send) -> None:
    first = send("POST", "/v1/vms", _wanted("twice")).json()
    again = send("POST", "/v1/vms", _wanted("twice")).json()
    assert (again["operation"], again["existing"]) == (first["operation"], True)
    refused = send("POST", "/v1/vms", _wanted("twice", vcpus=8))
    assert (refused.status, refused.json()["code"]) == (409, "vm.exists")
    _finish(send, send("DELETE", "/v1/vms/twice").json()["operation"])


def test_user_data_is_taken_and_never_shown(send: Send) -> None:
    send("POST", "/v1/vms", _wanted("secretive", user_data="#cloud-config\n# s3cr3t\n"))
    vm = send("GET", "/v1/vms/secretive")
    assert vm.json()["has_user_data"] is True
    assert b"s3cr3t" not in vm.body
    _finish(send, send("DELETE", "/v1/vms/secretive").json()["operation"])


def test_a_failed_operation_carries_its_error_and_a_stuck_one_what_remains(send: Send) -> None:
    for name, state in (("fails", "undone"), ("stuck", "stuck")):
        operation = _finish(send, send("POST", "/v1/vms", _wanted(name)).json()["operation"])
        assert (operation["state"], operation["error"]["code"]) == (state, "gpu.create_failed")
        assert bool(operation["remainder"]) == (state == "stuck")
    abandoned = send("POST", f"/v1/operations/{operation['id']}/abandon")
    assert abandoned.json()["state"] == "undone"
    again = send("POST", f"/v1/operations/{operation['id']}/retry")
    assert (again.status, again.json()["code"]) == (409, "operation.not_stuck")
    for name in ("fails", "stuck"):
        _finish(send, send("DELETE", f"/v1/vms/{name}").json()["operation"])


def test_a_wait_without_a_change_ends_in_time(send: Send) -> None:
    created = send("POST", "/v1/vms", _wanted("quiet")).json()["operation"]
    finished = _finish(send, created)
    same = send("GET", f"/v1/operations/{created}?wait=5&since={finished['revision']}").json()
    assert same == finished
    _finish(send, send("DELETE", "/v1/vms/quiet").json()["operation"])


def test_a_refusal_for_want_of_room_has_a_reason_for_each_gpu(send: Send) -> None:
    names = [f"many-{number}" for number in range(16)]
    for name in names:
        send("POST", "/v1/vms", _wanted(name))
    refused = send("POST", "/v1/vms", _wanted("one-more"))
    assert (refused.status, refused.json()["code"]) == (507, "gpu.no_capacity")
    assert refused.json()["reasons"][0]["subjects"] == ["gpu1/0000:41:00.0"]
    for vm in send("GET", "/v1/vms").json():
        _finish(send, send("DELETE", f"/v1/vms/{vm['name']}").json()["operation"])
