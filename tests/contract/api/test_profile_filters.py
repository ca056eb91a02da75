# SPDX-License-Identifier: Apache-2.0
"""Profiles are picked by kind, GPU model, host and what is free, before the list is cut; a tenant names no place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from orchestrator.services import offerings
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import A100_HOST, L40S_HOST, T4_HOST, ControlPlane, plane_with


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with plane_with(tmp_path_factory.mktemp("plane"), T4_HOST, L40S_HOST, A100_HOST) as made:
        made.services.tenancy.tenants.create("red")
        yield made


@pytest.fixture(scope="module")
def owner(plane: ControlPlane) -> TestClient:
    return TestClient(real_app(plane))


def names(client: TestClient, **only: str | int) -> set[str]:
    reply = client.get("/v1/profiles", params={"limit": 10_000, **only})
    assert reply.status_code == 200, reply.text
    return {one["name"] for one in reply.json()}


def test_every_filter_leaves_what_fits_and_nothing_else(owner: TestClient) -> None:
    every = owner.get("/v1/profiles", params={"limit": 10_000}).json()
    for kind in ("time_sliced", "mig_backed", "mig", "passthrough"):
        assert names(owner, kind=kind) == {one["name"] for one in every if one["kind"] == kind}, kind
    assert {one["kind"] for one in every} >= {"time_sliced", "mig_backed", "passthrough"}
    for host in (T4_HOST, L40S_HOST, A100_HOST):
        assert names(owner, host=host) == {one["name"] for one in every if host in one["hosts"]} != set(), host
    assert names(owner, free="true") == {one["name"] for one in every if one["free"]} != set()


def test_a_model_is_that_of_a_gpu_that_gives_it(owner: TestClient) -> None:
    l40s = names(owner, model="l40s")
    assert {"l40s-12q", "NVIDIA L40S-12Q"} <= l40s
    assert not {one for one in l40s if "T4" in one or one.startswith(("t4-", "a100-"))}
    assert {"t4-2q", "GRID T4-2Q"} <= names(owner, model="T4", host=T4_HOST)
    assert names(owner, model="T4", host=L40S_HOST) == set()
    assert names(owner, model="H100") >= {one for one in names(owner) if one.startswith("h100-")}


def test_a_whole_name_is_that_model_alone(owner: TestClient) -> None:
    a10 = names(owner, model="a10")
    assert "NVIDIA A10-4Q" in a10 or "a10-4q" in a10
    assert not {name for name in a10 if "A100" in name or name.startswith("a100-")}
    assert {name for name in names(owner, model="a100") if name.startswith("a100-")}
    assert names(owner, model="A10", host=A100_HOST) == set()


def test_filters_hold_together_and_before_the_list_is_cut(owner: TestClient) -> None:
    both = names(owner, host=L40S_HOST, kind="time_sliced")
    assert both == names(owner, host=L40S_HOST) & names(owner, kind="time_sliced")
    page = owner.get("/v1/profiles", params={"host": L40S_HOST, "kind": "time_sliced", "limit": 1})
    assert [one["name"] in both for one in page.json()] == [True]
    assert ("host=l40s" in page.headers["link"], "limit=1" in page.headers["link"]) == (True, True)


def test_a_list_names_some_hosts_and_counts_all_and_one_profile_names_all(
    owner: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offerings, "HOSTS_NAMED", 0)
    every = owner.get("/v1/profiles?available=true").json()
    assert {(len(one["hosts"]), one["host_count"] > 0) for one in every} == {(0, True)}
    for one in every[:3]:
        shown = owner.get(f"/v1/profiles/{one['name']}").json()
        assert len(shown["hosts"]) == shown["host_count"] == one["host_count"], one["name"]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [("host=nowhere", "host.unknown"), ("model=L4OS", "gpu.model_unknown"), ("kind=vgpu", "request.invalid")],
)
def test_a_filter_with_a_typo_is_no_empty_list(owner: TestClient, wrong: str, code: str) -> None:
    assert owner.get(f"/v1/profiles?{wrong}").json()["code"] == code


@pytest.mark.parametrize(
    ("asked", "code"),
    [(f"host={T4_HOST}", "host.not_yours"), ("host=nowhere", "host.not_yours"), ("free=true", "profile.free_not_told")],
)
def test_a_tenant_picks_by_kind_and_model_alone(plane: ControlPlane, asked: str, code: str) -> None:
    token = plane.services.tenancy.tokens.create("red", "tenant-user", None)[1]
    client = TestClient(real_app(plane), headers={"Authorization": f"Bearer {token}"})
    refused = client.get(f"/v1/profiles?{asked}")
    assert (refused.status_code, refused.json()["code"]) == (403, code)
    assert "l40s-12q" in names(client, kind="time_sliced", model="L40S", free="false")
