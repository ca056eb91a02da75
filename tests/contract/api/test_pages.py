# SPDX-License-Identifier: Apache-2.0
"""Lists in pages over the real services: of tenants, members, tokens, findings, the audit and operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.api.paging import encode_cursor
from orchestrator.core.tenancy.tenant import Member
from orchestrator.core.vms.backup import Backup, BackupTarget
from orchestrator.core.vms.lease import WantedEnd
from tests.contract.api.conftest import pages_of
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import KEY, ControlPlane, control_plane, create_vm
from tests.fakes.new_database import new_url
from tests.postgres.cluster import Cluster

TENANTS = ("aa", "bb", "cc", "dd", "ee")
LISTS = {
    "/v1/tenants": "name", "/v1/tenants/aa/members": "subject", "/v1/tokens?tenant=aa": "id", "/v1/audit": "sequence",
    "/v1/operations": "id", "/v1/findings?which=all": "subject",
    "/v1/backups": "id", "/v1/backups?tenant=aa": "id",
}  # fmt: skip


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    made = _filled(tmp_path_factory.mktemp("plane"), None)
    yield made
    made.store.close()


def _backup(number: int) -> Backup:
    """Three of a moment, which has more digits than a cursor would show by itself."""
    digits = f"{number * 7 % 12:012}"
    return Backup(
        id=f"00000000-0000-4000-8000-{digits}", target="nas", tenant=TENANTS[number % 2], vm=f"{number % 2:036}",
        vm_name="train", host="t4", size_bytes=1, created_at=1795255200 + number // 3 / 3, taken_of="stopped",
    )  # fmt: skip


def _filled(directory: Path, url: str | None) -> ControlPlane:
    made = control_plane(directory, url=url)
    people = made.services.tenancy
    made.add_host("t4")
    for name in TENANTS:
        people.tenants.create(name)
        people.policies.change(name, {"isolation": "none"})
        lease = WantedEnd(after_s=len(name) * 3600 if name < "cc" else None)
        made.services.vms.create(replace(create_vm(f"vm-{name}"), tenant=name, end=lease))
        made.engine.drain()
        people.tenants.put_member(Member(tenant="aa", subject=f"oidc:{name}", role="read-only"))
        people.tokens.create("aa", "tenant-user", None)
        people.tokens.create(name, "tenant-admin", None)
    with made.store.begin() as tx:
        tx.backups.add_target(BackupTarget(name="nas", created_at=0.1))
        for number in range(12):
            tx.backups.add(_backup(number))
    made.machine("t4").domains.clear()
    made.findings.observe(None)
    return made


@pytest.fixture(scope="module")
def owner(plane: ControlPlane) -> TestClient:
    return TestClient(real_app(plane))


def _pages(client: TestClient, target: str, limit: int) -> Iterator[Any]:
    return pages_of(client, f"{target}{'&' if '?' in target else '?'}limit={limit}")


SORTS = {
    "/v1/vms": ("name", "tenant", "state", "profile", "vcpus", "memory_mib", "lease_end", "created_at", "host"),
    "/v1/hosts": ("name", "state", "address", "cordoned", "last_seen_at"),
    "/v1/operations": ("created_at", "kind", "state", "subject_name"),
    "/v1/audit": ("sequence",),
    "/v1/findings": ("subject", "code", "first_seen"),
    "/v1/tenants": ("name", "created_at"),
    "/v1/tenants/aa/members": ("subject", "role"),
    "/v1/tokens?tenant=aa": ("id", "role", "created_at", "expires_at"),
    "/v1/images": ("name", "size_bytes"),
    "/v1/networks": ("name", "tenant", "subnet"),
    "/v1/profiles": ("name", "memory_mib", "free"),
}


def _text(value: Any) -> Any:
    return (value is not None, value.casefold() if isinstance(value, str) else value)


@pytest.mark.parametrize(("target", "member"), [(target, member) for target in SORTS for member in SORTS[target]])
def test_each_list_is_sorted_over_all_its_pages_both_ways(owner: TestClient, target: str, member: str) -> None:
    _is_sorted_both_ways(owner, target, member)


def test_postgresql_sorts_vms_operations_and_the_audit_as_sqlite_does(postgres: Cluster, tmp_path: Path) -> None:
    plane = _filled(tmp_path, new_url(postgres, KEY))
    client = TestClient(real_app(plane))
    for target in ("/v1/vms", "/v1/operations", "/v1/audit"):
        for member in SORTS[target]:
            _is_sorted_both_ways(client, target, member)
    plane.store.close()


def _is_sorted_both_ways(client: TestClient, target: str, member: str) -> None:
    sorted_by = f"{target}{'&' if '?' in target else '?'}sort="
    whole = client.get(target).json()
    of_a_page = max(2, len(whole) // 4)
    for sign in ("", "-"):
        rows = [row for page in _pages(client, f"{sorted_by}{sign}{member}", of_a_page) for row in page]
        values = [_text(row[member]) for row in rows]
        assert values == sorted(values, reverse=sign == "-")
        assert sorted(map(str, rows)) == sorted(map(str, whole))
    refused = client.get(f"{sorted_by}secret")
    assert (refused.status_code, refused.json()["code"]) == (400, "request.sort")
    assert member in refused.json()["hint"]


def test_capacity_is_sorted(owner: TestClient) -> None:
    rows = owner.get("/v1/capacity?sort=-fits_now").json()["rows"]
    assert [row["fits_now"] for row in rows] == sorted((row["fits_now"] for row in rows), reverse=True)
    assert owner.get("/v1/capacity?sort=x").json()["code"] == "request.sort"


def test_a_tenant_learns_of_no_host_by_an_order(plane: ControlPlane) -> None:
    member = TestClient(
        real_app(plane),
        headers={"Authorization": f"Bearer {plane.services.tenancy.tokens.create('aa', 'read-only', None)[1]}"},
    )
    assert member.get("/v1/vms?sort=name").status_code == 200
    assert member.get("/v1/vms?sort=host").json()["code"] == "request.sort"


@pytest.mark.parametrize("target", ["/v1/gpu-map", "/v1/gpu-map?tenant=aa"])
def test_the_gpu_map_in_pages_of_one_is_the_whole_map(owner: TestClient, target: str) -> None:
    whole = owner.get(target).json()["gpus"]
    pages = [page["gpus"] for page in _pages(owner, target, 1)]
    assert [gpu for page in pages for gpu in page] == whole != []
    assert {len(page) for page in pages} == {1}


def test_a_page_of_the_gpu_map_says_how_many_its_filter_picks(owner: TestClient) -> None:
    tesla = owner.get("/v1/gpu-map?model=tesla%20t4").json()["gpus"]
    reply = owner.get("/v1/gpu-map?model=tesla%20t4&limit=1")
    assert len(tesla) > 1
    assert reply.json()["gpus"] == tesla[:1]
    assert reply.headers["x-total-count"] == str(len(tesla))


def test_a_host_that_is_not_there_has_no_map(owner: TestClient) -> None:
    assert owner.get("/v1/gpu-map?host=t5").json()["code"] == "host.unknown"


@pytest.mark.parametrize("target", LISTS)
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_pages_of_every_list_are_the_list(owner: TestClient, target: str, limit: int) -> None:
    whole = owner.get(target).json()
    assert len(whole) >= len(TENANTS)
    pages = list(_pages(owner, target, limit))
    assert max(map(len, pages)) == limit
    assert [one for page in pages for one in page] == whole
    names = [one[LISTS[target]] for one in whole]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("target", LISTS)
@pytest.mark.parametrize(
    "wrong", ["limit=0", "limit=-1", "limit=10001", "limit=1e9", "after=x", "after=W10", "after=é"]
)
def test_every_page_has_a_bound_and_a_cursor_of_ours(owner: TestClient, target: str, wrong: str) -> None:
    reply = owner.get(f"{target}{'&' if '?' in target else '?'}{wrong}")
    assert (reply.status_code, reply.json()["code"]) in {(400, "request.invalid"), (400, "request.cursor")}


@pytest.mark.parametrize("part", ["0", "-1", "x", "1.5", "\u0661", "9" * 30, ""])
def test_a_forged_number_in_a_cursor_of_the_audit_is_refused(owner: TestClient, part: str) -> None:
    reply = owner.get(f"/v1/audit?after={encode_cursor((part,))}")
    assert (reply.status_code, reply.json()["code"]) == (400, "request.cursor")


def _of(plane: ControlPlane, tenant: str) -> TestClient:
    token = plane.services.tenancy.tokens.create(tenant, "tenant-admin", None)[1]
    return TestClient(real_app(plane), headers={"Authorization": f"Bearer {token}"})


def test_no_cursor_leads_out_of_ones_own_tenant(plane: ControlPlane, owner: TestClient) -> None:
    stranger = _of(plane, "cc")
    for target in ("/v1/tenants", "/v1/operations", "/v1/vms"):
        seen = stranger.get(target).json()
        for page in _pages(owner, target, 1):
            key = {"/v1/tenants": ("name",), "/v1/operations": ("id",), "/v1/vms": ("tenant", "name")}[target]
            cursor = encode_cursor(tuple(page[0][part] for part in key))
            assert all(one in seen for one in stranger.get(f"{target}?after={cursor}").json())
    for target in ("/v1/tenants/aa/members", "/v1/tokens?tenant=aa"):
        assert stranger.get(target).status_code == 404
    assert stranger.get("/v1/audit").status_code == stranger.get("/v1/findings").status_code == 403


def test_the_cursor_of_anothers_operation_says_no_more_than_one_that_is_none(plane: ControlPlane) -> None:
    newest = next(one for one in plane.services.operations.list(unfinished=False, limit=100) if one.tenant == "ee")
    answers = [
        _of(plane, "aa").get(f"/v1/operations?after={encode_cursor((name,))}").json()
        for name in (newest.id, "00000000-0000-4000-8000-000000000000")
    ]
    assert answers[0] == answers[1] == []


def test_gpus_that_are_not_healthy_come_in_pages_and_sorted_with_all_counted(owner: TestClient) -> None:
    for gpu in owner.get("/v1/gpus?host=t4").json():
        body = {"reason": f"fan of {gpu['address']}"}
        assert owner.post(f"/v1/gpu-health/t4/{gpu['address']}/quarantine", json=body).status_code == 200
    pages = list(_pages(owner, "/v1/gpu-health?sort=-cause", 1))
    assert [page["counts"]["quarantined"] for page in pages] == [2, 2]
    causes = [gpu["cause"] for page in pages for gpu in page["gpus"]]
    assert (len(causes), causes) == (2, sorted(causes, reverse=True))
    refused = owner.get("/v1/gpu-health?sort=secret")
    assert (refused.status_code, refused.json()["code"]) == (400, "request.sort")
