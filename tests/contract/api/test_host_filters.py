# SPDX-License-Identifier: Apache-2.0
"""Hosts are picked before the list is cut into pages, and the pages have all that was picked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.core.drivers.check import host_rows
from orchestrator.core.drivers.lock import DriverLock, Locked
from orchestrator.services.drivers import locks
from tests.contract.api.conftest import pages_of
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import A100_HOST, L40S_HOST, T4_HOST, ControlPlane, plane_with


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with plane_with(tmp_path_factory.mktemp("plane"), T4_HOST, L40S_HOST, A100_HOST) as made:
        made.services.hosts.cordon(L40S_HOST)
        yield made


@pytest.fixture(scope="module")
def owner(plane: ControlPlane) -> TestClient:
    return TestClient(real_app(plane))


@pytest.mark.parametrize(
    ("only", "hosts"),
    [
        ("state=ready", {T4_HOST, L40S_HOST, A100_HOST}),
        ("state=cordoned", {L40S_HOST}),
        ("state=unreachable", set()),
        ("state=cordoned&selector=rack=9", set()),
    ],
)
@pytest.mark.parametrize("order", ["", "&sort=-name", "&sort=-cordoned", "&sort=gpus", "&sort=-last_seen_at"])
def test_hosts_are_filtered_by_state(owner: TestClient, only: str, hosts: set[str], order: str) -> None:
    pages = list(pages_of(owner, f"/v1/hosts?{only}{order}&limit=1"))
    assert [len(page) for page in pages] == [1] * len(hosts) or pages == [[]]
    assert {host["name"] for page in pages for host in page} == hosts


def test_a_page_says_how_many_hosts_its_filter_picks(owner: TestClient) -> None:
    assert owner.get("/v1/hosts?state=ready&limit=1").headers["x-total-count"] == "3"


def test_a_state_that_no_host_can_have_is_no_empty_list(owner: TestClient) -> None:
    assert owner.get("/v1/hosts?state=fine").json()["code"] == "request.invalid"


def _checked(owner: TestClient, query: str = "") -> list[Any]:
    return [row for page in pages_of(owner, f"/v1/driver-check?limit=2{query}") for row in page["rows"]]


def test_the_pages_of_what_was_compared_are_the_whole(owner: TestClient) -> None:
    whole = owner.get("/v1/driver-check").json()["rows"]
    assert len(whole) > 2
    assert _checked(owner) == whole
    assert _checked(owner, f"&host={T4_HOST[0]}*") == [row for row in whole if f" {T4_HOST[0]}" in row["subject"]] != []
    unknown = [row for row in whole if row["verdict"] == "unknown"]
    assert _checked(owner, "&verdict=unknown") == unknown != whole
    parts = [row["part"] for row in _checked(owner, "&sort=-part")]
    assert parts == sorted(parts, reverse=True)
    assert owner.get("/v1/driver-check?host=x*").json()["code"] == "host.unknown"


def test_a_page_of_what_was_compared_compares_its_own_hosts_once(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, compared = replace(plane.services.driver_locks, _seen={}), list[str]()

    def counted(name: str, *facts: Any) -> Any:
        compared.append(name)
        return host_rows(name, *facts)

    monkeypatch.setattr(locks, "host_rows", counted)
    (first,) = service.check(most=1)
    assert compared == [first[0][0]]
    assert service.check(after=first[0])[0] > first
    service.check()
    assert sorted(compared) == sorted({T4_HOST, L40S_HOST, A100_HOST})
    service.apply(DriverLock(site=(Locked(component="host_driver", version="580.65.05"),)))
    assert {row.wanted for _, row in service.check() if row.part == "host_driver"} == {"580.65.05"}
    service.apply(DriverLock(site=()))
