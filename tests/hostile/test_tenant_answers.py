# SPDX-License-Identifier: Apache-2.0
"""What a tenant is told names no host and no GPU, whatever it asks for and whatever went wrong for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.api.visibility import failure_for_tenant, refusal_for_tenant
from orchestrator.core.errors import (
    FAMILIES,
    Conflict,
    Denied,
    Fatal,
    InvalidInput,
    NoCapacity,
    NotFound,
    QuotaExceeded,
    Retryable,
    Unknown,
    VgpuctlError,
    agent_error,
    error_to_dict,
)
from orchestrator.core.tenancy.access import EVERYWHERE, Role
from orchestrator.ports.timers import TimerHealth
from tests.contract.api.real_app import real_app
from tests.contract.api.test_tenant_views import PROFILE, QUESTIONS, site
from tests.fakes.fake_host import Strike

GIB = 1024**3
NAMES_A_PLACE = re.compile(r"\b(?:t4|l40s)(?![-\w])|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|\.test\b")
"""Names and addresses of the hosts, and PCI addresses."""
BODY: dict[str, Any] = {
    "name": "b", "tenant": "own", "profile": PROFILE, "image": "guest", "memory_mib": 256, "disk_bytes": GIB,
}  # fmt: skip
SAYING = "host t4 (t4.test): GPU 0000:41:00.0 is held by foreign/simple"
FAILURES = (Retryable, Fatal, Unknown, Conflict, NoCapacity, InvalidInput, NotFound, Denied, QuotaExceeded)
HOSTS = ("t4", "l40s", "gone", "T4", "t4 ", "a" * 63)
MEMORY = (256, 65536, 1 << 20)


def _failing(kind: type[VgpuctlError]) -> VgpuctlError:
    """As the link raises what an agent answered."""
    return agent_error(error_to_dict(kind("host.failed", SAYING, hint=SAYING, details=SAYING)))


def _at(effect: str, wrong: VgpuctlError) -> Strike:
    return lambda _number, _moment, name: wrong if effect in name else None


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Of tenant ``own``: a VM that runs, one that is stopped, and an operation for each way that hosts fail."""
    with site(tmp_path_factory.mktemp("tenant") / "state", [("simple", PROFILE)]) as (plane, found):
        plane.services.tenancy.quotas.change("own", {"vms": 20})
        assert found.post("/v1/vms", json={**BODY, "name": "runs"}).status_code == 202
        plane.engine.drain()
        for number, kind in enumerate(FAILURES):
            plane.hosts.strike = _at("CreateVolume", _failing(kind))
            assert found.post("/v1/vms", json={**BODY, "name": f"failed-{number}"}).status_code == 202
            plane.engine.drain()
        plane.hosts.strike = _at("Volume", _failing(Fatal))
        assert found.post("/v1/vms", json={**BODY, "name": "stuck"}).status_code == 202
        plane.engine.drain()
        yield found


def _told(text: str, what: object) -> None:
    assert not NAMES_A_PLACE.search(text), f"{what}: {NAMES_A_PLACE.findall(text)} in {text[:2000]}"


def test_nothing_that_a_tenant_reads_names_a_place(client: TestClient) -> None:
    for question in (*QUESTIONS, "vms/mine?tenant=own", "vms/runs?tenant=own", "server", "images", "networks"):
        _told(client.get(f"/v1/{question}").text, question)


def test_an_operation_that_failed_on_its_host_names_no_place(client: TestClient) -> None:
    operations = client.get("/v1/operations").json()
    states = {one["state"] for one in operations}
    assert {"done", "undone", "stuck"} <= states
    for one in operations:
        for path in (f"/v1/operations/{one['id']}", f"/v1/operations/{one['id']}/events?wait=0.1"):
            answer = client.get(path)
            assert answer.status_code == 200
            _told(answer.text, one)
        if one["state"] == "undone":
            assert one["error"]["code"] in {"host.failed", "gpu.no_capacity"}
            assert one["error"]["message"]


@pytest.mark.parametrize("kind", FAMILIES.values(), ids=FAMILIES)
def test_a_refusal_repeats_nothing_that_a_host_said_and_has_no_details(kind: type[VgpuctlError]) -> None:
    for code in ("host.failed", "guest.failed", "store.failed", "quota.exceeded"):
        said = agent_error(error_to_dict(kind(code, SAYING, hint=SAYING, details=SAYING)))
        _told(str(error_to_dict(refusal_for_tenant(said))), kind)
        _told(str(failure_for_tenant(error_to_dict(said))), kind)
        assert refusal_for_tenant(kind(code, "ours", details=SAYING)).details is None


def test_what_is_in_the_way_of_a_volume_or_a_start_names_no_place(tmp_path: Path) -> None:
    with site(tmp_path / "s", []) as (plane, found):
        plane.services.volumes.create("own", "lost", GIB, "l40s")
        with plane.store.begin() as tx:
            assert tx.volumes.lose("l40s") == 1
            tx.hosts.update(replace(tx.hosts.get("t4"), state="provisioning"))
        plane.services.volumes.create("own", "far", GIB, "l40s")
        plane.services.volumes.create("own", "near", GIB, "t4")
        asked = [
            found.post("/v1/volumes/far/attach?tenant=own", json={"vm": "mine"}),
            found.post("/v1/volumes/lost/attach?tenant=own", json={"vm": "mine"}),
            found.post("/v1/vms", json={**BODY, "volumes": ["far", "near"]}),
            found.post("/v1/vms/mine/start?tenant=own"),
        ]
    codes = [one.json()["code"] for one in asked]
    assert codes == ["volume.elsewhere", "volume.lost", "volume.elsewhere", "host.provisioning"]
    for one in asked:
        _told(one.text, one.json()["code"])


def test_the_owner_of_the_pool_reads_what_happened(tmp_path: Path) -> None:
    with site(tmp_path / "s", []) as (plane, found):
        plane.hosts.strike = _at("CreateVolume", _failing(Fatal))
        found.post("/v1/vms", json={**BODY, "name": "failed"})
        plane.engine.drain()
        owner = TestClient(real_app(plane))
        told = [one for one in owner.get("/v1/operations").json() if one["state"] == "undone"]
        vm = owner.get("/v1/vms/mine?tenant=own").json()
    assert told[0]["error"]["message"] == SAYING
    assert (vm["host"], vm["devices"][0]["gpu"]) != (None, None)


@pytest.mark.parametrize("path", ["/v1/vms", "/v1/vms/plan"])
def test_a_host_that_a_tenant_names_is_refused_whatever_is_free_on_it(client: TestClient, path: str) -> None:
    answers = set()
    for host, memory, vcpus in product(HOSTS, MEMORY, (1, 64)):
        reply = client.post(path, json={**BODY, "host": host, "memory_mib": memory, "vcpus": vcpus})
        if reply.status_code != 400:
            answers.add((reply.status_code, reply.json()["code"], reply.json()["detail"]))
    assert [(status, code) for status, code, _ in answers] == [(403, "host.not_yours")]


@pytest.mark.parametrize("address", ["0000:41:00.0", "0000:ff:00.0", "41:00.0"])
def test_a_gpu_that_a_tenant_names_is_refused_in_the_same_words_by_whoever_is_asked(
    client: TestClient, address: str
) -> None:
    asked = {"gpu": address, "profile": PROFILE, "tenant": "own"}
    answers = [client.post(path, json={**BODY, "gpu": address}) for path in ("/v1/vms", "/v1/vms/plan")]
    answers += [client.get("/v1/explain", params=asked), client.get("/v1/explain", params={**asked, "host": "t4"})]
    told = {(one.status_code, one.json()["code"], one.json()["detail"], one.json()["hint"]) for one in answers}
    assert [(status, code) for status, code, _, _ in told] == [(403, "host.not_yours")]
    _told(str(told), address)


@pytest.mark.parametrize("path", ["/v1/vms", "/v1/vms/plan"])
def test_what_no_host_could_hold_is_refused_by_what_was_asked_for_alone(client: TestClient, path: str) -> None:
    wanted = ({"memory_mib": 1 << 20}, {"vcpus": 256}, {"disk_bytes": 1 << 44}, {"vcpus": 256, "memory_mib": 1 << 20})
    answers = [client.post(path, json={**BODY, **one}) for one in wanted]
    assert {(one.status_code, one.json()["code"]) for one in answers} == {(400, "vm.never_fits")}
    assert len({one.text.replace(one.json()["detail"], "") for one in answers}) == 1
    assert all(one.json()["reasons"] == [] for one in answers)
    for one in answers:
        _told(one.text, one)


def test_a_plan_says_that_it_fits_and_not_where(client: TestClient) -> None:
    plan = client.post("/v1/vms/plan", json=BODY)
    assert plan.status_code == 200
    _told(plan.text, "plan")
    assert plan.json()["host"] is None
    assert plan.json()["actions"] == []


def test_operations_are_counted_that_the_caller_may_see(tmp_path: Path) -> None:
    with site(tmp_path / "s", []) as (plane, found):
        plane.services.vms.delete("own", "mine")
        owner = TestClient(real_app(plane))
        assert owner.get("/v1/server").json()["running_operations"] == 1
        token = plane.services.tenancy.tokens.create("foreign", "tenant-user", None)[1]
        stranger = TestClient(real_app(plane), headers={"Authorization": f"Bearer {token}"})
        assert found.get("/v1/server").json()["running_operations"] == 1
        assert stranger.get("/v1/server").json()["running_operations"] == 0


_NO_OPERATORS: tuple[tuple[str, Role], ...] = (
    ("own", "tenant-admin"), ("own", "tenant-user"), ("own", "read-only"), (EVERYWHERE, "read-only"),
)  # fmt: skip


def test_of_the_servers_process_operators_alone_are_told(tmp_path: Path) -> None:
    failing = (TimerHealth(name="look", every_s=1, good_ago_s=9, failed=3, error="t4 hangs"),)
    with site(tmp_path / "s", []) as (plane, _):
        tokens = [plane.services.tenancy.tokens.create(*of, None)[1] for of in _NO_OPERATORS]
        app = real_app(plane, timers=failing)
        for token in tokens:
            told = TestClient(app, headers={"Authorization": f"Bearer {token}"}).get("/v1/server").json()
            assert told.pop("warnings") == []
            assert {key for key, value in told.items() if value is not None} == {"version", "running_operations"}
        told = TestClient(app).get("/v1/server").json()
    assert told["pid"] == os.getpid()
    assert told["started_at"] is not None
    assert told["warnings"] == ["look: t4 hangs"]
