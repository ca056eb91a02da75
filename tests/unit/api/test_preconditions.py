# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.api.request_keys import WITHOUT
from tests.unit.api.asking import Asking, asking

OWNER: Final = f"uid:{os.geteuid()}"
VM: dict[str, Any] = {
    "name": "train", "profile": "t4-small", "image": "guest", "vcpus": 1, "memory_mib": 512, "disk_bytes": 2**30,
}  # fmt: skip


@pytest.fixture(scope="module")
def ask() -> Asking:
    made = asking()
    made("POST", "/v1/tenants", {"name": "red"})
    return made


def limit(ask: Asking) -> int | None:
    lines = ask("GET", "/v1/tenants/red/quota").body
    found: int | None = next(line["limit"] for line in lines if line["resource"] == "vms")
    return found


@pytest.mark.parametrize("tag", ["*", '"old"', ""])
def test_a_change_under_a_condition_is_refused_and_nothing_is_changed(ask: Asking, tag: str) -> None:
    before = limit(ask)
    refused = ask("PATCH", "/v1/tenants/red/quota", {"limits": {"vms": 2}}, if_match=tag)
    assert (refused.status, refused.body["code"], refused.body["status"]) == (400, "request.precondition", 400)
    assert limit(ask) == before
    newest = ask.fake.tenancy.audit.list(limit=1, before=None)[0]
    assert (newest.action, newest.subject) == ("PATCH /v1/tenants/{tenant}/quota", "/v1/tenants/red/quota")
    assert newest.outcome == "refused: request.precondition"
    assert newest.actor.startswith("uid:")
    assert ask("POST", "/v1/hosts/gpu1/cordon", if_match=tag).status == 400
    assert not ask("GET", "/v1/hosts/gpu1").body["cordoned"]


def test_reading_is_not_bound_by_it(ask: Asking) -> None:
    assert ask("GET", "/v1/tenants", if_match='"old"').status == 200


@pytest.mark.fault("F11")
def test_the_same_request_under_its_key_is_answered_again_and_not_carried_out_again(ask: Asking) -> None:
    first = ask("POST", "/v1/vms", VM, idempotency_key="k1")
    assert first.status < 300
    assert ask("POST", "/v1/vms", VM, idempotency_key="k1").body == first.body
    assert [one["kind"] for one in ask("GET", "/v1/operations").body] == ["create_vm"]
    other = ask("POST", "/v1/vms", {**VM, "name": "second"}, idempotency_key="k1")
    assert (other.status, other.body["code"]) == (409, "request.key_reused")
    assert [vm["name"] for vm in ask("GET", "/v1/vms").body] == ["train"]
    assert ask("POST", "/v1/vms", {**VM, "name": "second"}, idempotency_key="k2").status < 300


def test_a_deletion_under_its_key_takes_nothing_that_got_the_same_name_meanwhile(ask: Asking) -> None:
    for key in ("k7", "k8"):
        assert ask("POST", "/v1/tenants", {"name": "brief"}, idempotency_key=key).status == 201
        assert ask("DELETE", "/v1/tenants/brief", idempotency_key="k9").status == 204
    assert "brief" in [tenant["name"] for tenant in ask("GET", "/v1/tenants").body]


def test_a_secret_is_made_and_told_once_under_a_key_and_not_kept(ask: Asking) -> None:
    body = {"tenant": "red", "role": "read-only", "name": "once"}
    made = ask("POST", "/v1/tokens", body, idempotency_key="k10")
    again = ask("POST", "/v1/tokens", body, idempotency_key="k10")
    assert (again.status, again.body["code"]) == (409, "request.shown_once")
    assert [token["name"] for token in ask("GET", "/v1/tokens?tenant=red").body].count("once") == 1
    with ask.fake.tenancy.request_keys.store.read() as tx:
        assert made.body["token"] not in repr(tx.request_keys.find(OWNER, "k10"))


def test_a_key_whose_request_was_refused_is_free_again(ask: Asking) -> None:
    assert ask("POST", "/v1/vms", {**VM, "name": "third", "image": "none"}, idempotency_key="k3").status >= 400
    assert ask("POST", "/v1/vms", {**VM, "name": "third"}, idempotency_key="k3").status < 300


def test_a_key_that_was_never_answered_is_carried_out(ask: Asking) -> None:
    keys = ask.fake.tenancy.request_keys
    first = ask("POST", "/v1/tenants", {"name": "blue"}, idempotency_key="k4")
    with keys.store.begin() as tx:
        kept = tx.request_keys.find(OWNER, "k4")
        assert kept is not None
        assert kept.status == first.status
        tx.request_keys.put(replace(kept, status=None, answer=None))
    assert ask("POST", "/v1/tenants", {"name": "blue"}, idempotency_key="k4").body == first.body


def test_what_is_kept_of_a_request_does_not_show_its_body(ask: Asking) -> None:
    keys = ask.fake.tenancy.request_keys
    body = {**VM, "name": "fourth", "user_data": "#cloud-config\npassword: planted"}
    assert ask("POST", "/v1/vms", body, idempotency_key="k6").status < 300
    with keys.store.read() as tx:
        kept = tx.request_keys.find(OWNER, "k6")
    assert kept is not None
    assert "planted" not in repr(kept)


@pytest.mark.parametrize(
    ("method", "path", "key", "code"),
    [
        ("POST", "/v1/vms/plan", "k", "request.key_refused"),
        ("POST", "/v1/hosts/scan", "k", "request.key_refused"),
        ("GET", "/v1/tenants", "k", "request.key_refused"),
        ("POST", "/v1/tenants", "", "request.key_invalid"),
        ("POST", "/v1/tenants", "a b", "request.key_invalid"),
        ("POST", "/v1/tenants", "k" * 201, "request.key_invalid"),
    ],
)
def test_a_key_where_it_means_nothing_is_refused(ask: Asking, method: str, path: str, key: str, code: str) -> None:
    before = ask("GET", "/v1/tenants").body
    refused = ask(method, path, {"name": "black"}, idempotency_key=key)
    assert (refused.status, refused.body["code"]) == (400, code)
    assert ask("GET", "/v1/tenants").body == before


def test_the_document_names_the_key_where_it_means_something(ask: Asking) -> None:
    for path, operations in ask("GET", "/v1/openapi.json").body["paths"].items():
        for verb, operation in operations.items():
            named = {one["name"] for one in operation["parameters"] if one["in"] == "header"}
            assert "If-Match" not in named, (verb, path)
            assert ("Idempotency-Key" in named) == (verb != "get" and f"{verb.upper()} {path}" not in WITHOUT), (
                verb,
                path,
            )
