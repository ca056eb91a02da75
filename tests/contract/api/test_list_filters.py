# SPDX-License-Identifier: Apache-2.0
"""What a list is asked for is looked for in all there is, not among the newest of it; and a cut list says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from orchestrator.core.operation import Operation, StepRecord
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import ControlPlane, control_plane

NEWER = 150
OLD = Operation(
    id="0" * 36, kind="delete_vm", subject="lost", subject_name="aa/lost", tenant="aa", state="stuck",
    steps=(StepRecord(name="undefine.1", title="domain", state="undo_failed"),), attempt=1, created_at=1.0,
)  # fmt: skip
FILTERS = {
    "/v1/operations": {
        "active": "true", "state": "stuck", "kind": "delete_vm", "tenant": "aa", "subject": "aa/lost",
        "beginning": "0000",
    },
    "/v1/audit": {
        "actor": "uid:7", "subject": "aa/lost", "before": "", "since": "1970-01-01T00:00:01Z",
        "until": "1970-01-01T01:00:02+01:00", "refused": "true",
    },
}  # fmt: skip
CASES = [(path, name) for path, filters in FILTERS.items() for name in filters]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path_factory.mktemp("plane"))
    made.services.tenancy.tenants.create("aa")
    with made.store.begin() as tx:
        tx.operations.add(OLD, host="gpu1", inputs={})
        tx.audit.append(at=1.0, actor="uid:7", action="delete_vm", subject="aa/lost", outcome="refused: x")
        for number in range(NEWER):
            newer = replace(OLD, id=f"1{number:035}", kind="create_vm", state="done", tenant="default")
            newer = replace(newer, subject=f"vm{number}", subject_name=f"default/vm{number}", created_at=2.0 + number)
            tx.operations.add(newer, host="gpu1", inputs={})
            tx.audit.append(at=2.0, actor="uid:0", action="create_vm", subject="default/vm", outcome="accepted")
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def owner(plane: ControlPlane) -> TestClient:
    return TestClient(real_app(plane))


def test_every_filter_of_a_list_that_is_cut_is_tried_here(owner: TestClient) -> None:
    paths = owner.get("/v1/openapi.json").json()["paths"]
    for path, filters in FILTERS.items():
        names = {one["name"] for one in paths[path]["get"]["parameters"] if one["in"] == "query"}
        assert names - {"limit", "after", "sort"} == set(filters), path


@pytest.mark.parametrize(("path", "name"), CASES)
def test_newer_ones_that_do_not_match_hide_none_that_does(owner: TestClient, path: str, name: str) -> None:
    value = FILTERS[path][name]
    if name == "before":
        value = str(owner.get(path, params={"subject": "aa/lost"}).json()[0]["sequence"] + 1)
    both = {"until": FILTERS[path]["until"]} if name == "since" else {}  # the newer ones are later too
    reply = owner.get(path, params={name: value, "limit": 1, **both})
    subjects = [row.get("subject_name", row["subject"]) for row in reply.json()]
    assert subjects == ["aa/lost"], reply.text
    assert ("x-total-count" in reply.headers) == (name == "before")  # older ones were there


@pytest.mark.parametrize("path", FILTERS)
def test_a_cut_list_says_how_many_there_are_in_the_whole_of_it(owner: TestClient, path: str) -> None:
    whole = owner.get(path, params={"limit": 10_000})
    assert "x-total-count" not in whole.headers
    assert owner.get(path, params={"limit": 7}).headers["x-total-count"] == str(len(whole.json()))


def test_the_number_of_a_filtered_list_is_that_of_what_matches(owner: TestClient) -> None:
    reply = owner.get("/v1/operations", params={"kind": "create_vm", "limit": 2})
    assert reply.headers["x-total-count"] == str(NEWER)
    assert owner.get("/v1/audit", params={"actor": "uid:0", "limit": 2}).headers["x-total-count"] == str(NEWER)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [("kind=nope", "operation.kind_unknown"), ("state=nope", "request.invalid"), ("tenant=nope", "tenant.unknown")],
)
def test_a_filter_with_a_typo_is_no_empty_list(owner: TestClient, wrong: str, code: str) -> None:
    assert owner.get(f"/v1/operations?{wrong}").json()["code"] == code


def test_filters_together_must_all_hold(owner: TestClient) -> None:
    assert owner.get("/v1/operations?active=true&state=done").json() == []
    assert len(owner.get("/v1/operations?active=true&state=stuck&kind=delete_vm&tenant=aa").json()) == 1


def test_a_tenant_filters_among_its_own(plane: ControlPlane) -> None:
    token = plane.services.tenancy.tokens.create("aa", "tenant-user", None)[1]
    client = TestClient(real_app(plane), headers={"Authorization": f"Bearer {token}"})
    reply = client.get("/v1/operations?limit=1")
    assert [row["subject_name"] for row in reply.json()] == ["aa/lost"]
    assert "x-total-count" not in reply.headers
    assert client.get("/v1/operations?tenant=default").json()["code"] == "tenant.unknown"
