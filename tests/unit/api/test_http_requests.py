# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from fastapi import Response

from orchestrator.api.http_answers import started
from orchestrator.services.messages import Started
from tests.unit.api.asking import Asking, asking
from tests.unit.api.test_preconditions import VM


@pytest.fixture(scope="module")
def ask() -> Asking:
    return asking()


def test_a_path_says_which_methods_it_has(ask: Asking) -> None:
    refused = ask("PUT", "/v1/vms")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, POST, HEAD")
    assert ask("PUT", "/v1/vms/train").headers["allow"] == "GET, PATCH, DELETE, HEAD"
    told = ask("OPTIONS", "/v1/tenants/red/quota")
    assert (told.status, told.headers["allow"]) == (405, "GET, PATCH, HEAD")
    assert ask("OPTIONS", "/v1/nowhere").status == 404


def test_head_is_get_without_the_body(ask: Asking) -> None:
    got, head = ask("GET", "/v1/hosts"), ask("HEAD", "/v1/hosts")
    assert (head.status, head.headers["content-length"], head.body) == (200, got.headers["content-length"], None)
    assert ask("HEAD", "/v1/hosts/nowhere").status == 404


def test_what_was_made_says_where_it_is(ask: Asking) -> None:
    started = ask("POST", "/v1/vms", VM)
    assert (started.status, started.headers["location"]) == (202, f"/v1/operations/{started.body['operation']}")
    assert ask("POST", "/v1/tenants", {"name": "blue"}).headers["location"] == "/v1/tenants/blue"
    assert ask("GET", "/v1/tenants/blue").status == 200


def test_where_nothing_has_to_be_done_the_address_is_that_of_what_was_to_be_made_and_of_nothing_else() -> None:
    """It was ``/v1/vms/train/start/train`` once."""
    nothing = Started(operation=None, name="train")
    created, begun = Response(), Response()
    started(created, nothing, made="vms")
    started(begun, nothing)
    assert (created.headers["location"], "location" in begun.headers) == ("/v1/vms/train", False)


def test_a_token_that_is_none_is_answered_with_what_is_asked_for(ask: Asking) -> None:
    refused = ask("GET", "/v1/vms", authorization="Bearer vgpuctl_wrong")
    assert (refused.status, refused.body["status"], refused.body["code"]) == (401, 401, "token.refused")
    assert refused.headers["www-authenticate"] == 'Bearer realm="vgpuctl"'


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/xml"])
def test_a_body_of_another_type_is_refused_by_that(ask: Asking, kind: str) -> None:
    refused = ask("POST", "/v1/vms", VM, content_type=kind)
    assert (refused.status, refused.body["code"]) == (415, "request.media_type")
    assert refused.body["detail"] == f"the body is {kind or 'of no named type'}, the API takes JSON"


def test_a_body_that_is_no_json_is_told_where(ask: Asking) -> None:
    refused = ask("POST", "/v1/vms", b'{"name": "a",}')
    assert (refused.status, refused.body["code"]) == (400, "request.invalid")
    assert refused.body["detail"].startswith("body: it is not JSON at character 13: ")


def test_a_value_of_none_of_its_forms_is_told_by_the_name_that_was_sent(ask: Asking) -> None:
    refused = ask("PATCH", "/v1/hosts/lab1", {"vcpu_overcommit": 100})
    assert (refused.status, refused.body["code"]) == (400, "request.invalid")
    assert refused.body["detail"].startswith("vcpu_overcommit: is more than 64 (and 1 more)")
    assert {reason["subjects"][0] for reason in refused.body["reasons"]} == {"vcpu_overcommit"}


def test_a_list_of_a_tenant_that_is_not_there_is_no_empty_list(ask: Asking) -> None:
    for path in ("/v1/vms", "/v1/operations", "/v1/gpu-map", "/v1/capacity"):
        refused = ask("GET", f"{path}?tenant=nope")
        assert (refused.status, refused.body["code"]) == (404, "tenant.unknown"), path
