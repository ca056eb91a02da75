# SPDX-License-Identifier: Apache-2.0
"""Descriptions and labels of things: merged, kept, told to who may know the thing, and to nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from orchestrator.core.tenancy.access import Role
from orchestrator.core.vms.image import NewImage
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with

SITE, OWN, TENANT = "/v1/networks/common", "/v1/tenants/red/networks/blue", "/v1/tenants/red"
IMAGE, OWN_IMAGE, VOLUME = "/v1/images/guest", "/v1/tenants/red/images/mine", "/v1/volumes/data?tenant=red"
PATHS = {
    SITE: "networks", OWN: "networks", TENANT: "tenants", IMAGE: "images", OWN_IMAGE: "images", VOLUME: "volumes",
}  # fmt: skip
"""And which list has it."""


@contextmanager
def furnished(directory: Path) -> Iterator[ControlPlane]:
    with plane_with(directory, T4_HOST) as made:
        for name in ("red", "green"):
            made.services.tenancy.tenants.create(name)
        made.services.networks.add("common", None)
        made.services.networks.add("blue", None, "red")
        made.services.images.add(NewImage(name="mine", source=iter([b"mine"]), size_bytes=1024), "red")
        made.services.volumes.create("red", "data", 2**30)
        yield made


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with furnished(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def owner_of_what_stays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Whose things no test changes."""
    with furnished(tmp_path_factory.mktemp("plane")) as made:
        yield TestClient(real_app(made))


@pytest.fixture
def owner(plane: ControlPlane) -> TestClient:
    return TestClient(real_app(plane))


def _said(client: TestClient, path: str) -> tuple[str, dict[str, str]]:
    found = client.get(path).json()
    return found["description"], found["labels"]


@pytest.mark.parametrize("path", PATHS)
def test_what_is_not_named_stays_and_null_takes_a_label_away(owner: TestClient, path: str) -> None:
    assert _said(owner, path) == ("", {})
    first = owner.patch(path, json={"description": "lab A", "labels": {"Team": "a", "example.org/Name": "x"}})
    assert (first.status_code, first.json()["labels"]) == (200, {"Team": "a", "example.org/Name": "x"})
    owner.patch(path, json={"labels": {"Team": None, "stage": "test"}})
    assert _said(owner, path) == ("lab A", {"example.org/Name": "x", "stage": "test"})
    owner.patch(path, json={"description": ""})
    assert _said(owner, path) == ("", {"example.org/Name": "x", "stage": "test"})
    listed = owner.get(f"/v1/{PATHS[path]}").json()
    assert {"example.org/Name": "x", "stage": "test"} in [one["labels"] for one in listed]
    newest = owner.get("/v1/audit?limit=1").json()[0]
    assert newest["action"] == f"set_{PATHS[path].removesuffix('s')} description ''"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        {"labels": {"A/b": "1"}}, {"labels": {"a": "b c"}}, {"labels": {f"k{number}": "" for number in range(33)}},
        {"description": "a\nb"}, {"description": "x" * 501}, {"name": "other"}, {"labels": {"a": 1}}, [],
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_label_and_no_description_changes_nothing(
    owner_of_what_stays: TestClient, path: str, body: object
) -> None:
    assert owner_of_what_stays.patch(path, json=body).status_code in {400, 422}
    assert _said(owner_of_what_stays, path) == ("", {})


@pytest.mark.parametrize(
    ("tenant", "role", "allowed"),
    [
        ("red", "tenant-admin", {OWN, TENANT, OWN_IMAGE, VOLUME}), ("red", "tenant-user", {OWN, OWN_IMAGE, VOLUME}),
        ("red", "read-only", set()),
        ("green", "tenant-admin", set()), ("*", "operator", {*PATHS}), ("*", "read-only", set()),
    ],
)  # fmt: skip
def test_who_may_change_the_thing_may_say_what_it_is_for(
    plane: ControlPlane, tenant: str, role: Role, allowed: set[str]
) -> None:
    token = plane.services.tenancy.tokens.create(tenant, role, None)[1]
    client = TestClient(real_app(plane), headers={"Authorization": f"Bearer {token}"})
    assert {path for path in PATHS if client.patch(path, json={"description": "x"}).status_code == 200} == allowed


def test_a_shared_network_is_not_the_tenants_to_describe(owner: TestClient) -> None:
    refused = owner.patch("/v1/tenants/red/networks/common", json={"description": "mine"})
    assert (refused.status_code, refused.json()["code"]) == (409, "network.shared")


def test_an_image_of_the_site_is_not_the_tenants_to_describe(owner: TestClient) -> None:
    refused = owner.patch("/v1/tenants/red/images/guest", json={"description": "mine"})
    assert (refused.status_code, refused.json()["code"]) == (404, "image.unknown")
    assert _said(owner, IMAGE) == ("", {})


def test_it_stays_whatever_is_done_with_an_image(plane: ControlPlane, owner: TestClient) -> None:
    owner.patch(OWN_IMAGE, json={"labels": {"a": "1"}})
    assert owner.put(f"{OWN_IMAGE}/guest-driver", json={"version": "580.65.06"}).json()["labels"] == {"a": "1"}
    again = NewImage(name="mine", source=iter([b"mine"]), size_bytes=1024)
    assert plane.services.images.add(again, "red", shared=True).about.labels == (("a", "1"),)
    assert owner.get(OWN_IMAGE).json()["labels"] == {"a": "1"}


def test_it_stays_when_a_volume_is_attached_and_taken_back(plane: ControlPlane, owner: TestClient) -> None:
    plane.services.volumes.create("default", "disk", 2**30)
    owner.patch("/v1/volumes/disk", json={"description": "before", "labels": {"a": "1"}})
    plane.services.vms.create(create_vm("train", start=False))
    plane.engine.drain()
    plane.services.volumes.attach("default", "disk", "train")
    owner.patch("/v1/volumes/disk", json={"description": "meanwhile"})
    plane.engine.drain()
    assert _said(owner, "/v1/volumes/disk") == ("meanwhile", {"a": "1"})
    plane.services.volumes.detach("default", "disk", "train")
    plane.engine.drain()
    assert owner.get("/v1/volumes/disk").json()["vm"] is None
    assert owner.post("/v1/volumes", json={"name": "disk", "size_bytes": 2**30}).json()["labels"] == {"a": "1"}


def test_a_bridged_network_that_was_described_is_the_same_when_it_is_added_again(plane: ControlPlane) -> None:
    owner = TestClient(real_app(plane))
    owner.patch(SITE, json={"labels": {"a": "1"}})
    assert owner.post("/v1/networks", json={"name": "common", "subnet": None}).status_code == 201
    assert owner.post("/v1/networks/common/unshare").json()["labels"] == {"a": "1"}


def test_it_goes_with_the_thing(owner: TestClient) -> None:
    for path in (OWN, TENANT, OWN_IMAGE, VOLUME):
        owner.patch(path, json={"description": "gone soon"})
    assert owner.delete(VOLUME).status_code == 202
    assert owner.post("/v1/volumes", json={"name": "data", "size_bytes": 2**30, "tenant": "red"}).json()["labels"] == {}
    assert owner.delete(VOLUME).status_code == 202
    assert owner.delete(OWN_IMAGE).status_code == 204
    assert owner.delete(TENANT).status_code == 204
    assert owner.post("/v1/tenants", json={"name": "red"}).json()["description"] == ""
    assert owner.post("/v1/tenants/red/networks", json={"name": "blue"}).json()["description"] == ""


@pytest.mark.parametrize("path", [*PATHS, "/v1/hosts/t4"])
def test_a_list_picks_by_labels_before_it_is_cut(owner: TestClient, path: str) -> None:
    there = f"/v1/{PATHS.get(path, 'hosts')}"
    owner.patch(path, json={"labels": {"Team": "a", "stage": "test"}})
    picked = owner.get(there, params={"selector": "Team=a,!spare", "limit": 1})
    assert [one["labels"] for one in picked.json()] == [{"Team": "a", "stage": "test"}]
    assert "link" not in picked.headers
    assert len(owner.get(there, params={"selector": "!Team"}).json()) == len(owner.get(there).json()) - 1
    assert owner.get(there, params={"selector": "Team=b"}).json() == []
    assert owner.get(there, params={"selector": "a b"}).json()["code"] == "label.selector_invalid"
