# SPDX-License-Identifier: Apache-2.0
"""A tenant that changes something again and again fills neither the audit nor the time of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from starlette.testclient import TestClient, WebSocketDenialResponse, WebSocketTestSession

from orchestrator.api.app import create_app
from orchestrator.api.limits import Activity
from orchestrator.api.services import Process
from orchestrator.core.tenancy.access import Role
from orchestrator.services.change_allowance import AT_ONCE, ChangeAllowance
from tests.fakes.control_plane import ControlPlane, create_vm, plane_with

FEW = 5
PER_S = 0.01
"""So little that none comes back while a test runs."""
VM = "/v1/vms/train"
PLAN = {"name": "x", "profile": "GRID T4-2Q", "image": "guest", "vcpus": 1, "memory_mib": 256, "disk_bytes": 2**30}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, "t4") as made:
        made.services.vms.create(create_vm())
        made.engine.drain()
        made.services.tenancy.tenants.create("blue")
        yield made


class Askers:
    """Clients of one application whose tenants have little."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        tenancy = replace(plane.services.tenancy, allowance=ChangeAllowance(FEW, PER_S))
        process = Process(started_at=0, idle_seconds=None, activity=Activity())
        self._app = create_app(replace(plane.services, tenancy=tenancy), process)

    def __call__(self, tenant: str, role: Role = "tenant-user") -> TestClient:
        text = self.plane.services.tenancy.tokens.create(tenant, role, None)[1]
        return TestClient(self._app, headers={"Authorization": f"Bearer {text}"})

    def records(self) -> int:
        return self.plane.services.tenancy.audit.how_many()


def _label(client: TestClient, value: int) -> int:
    return client.patch(VM, json={"labels": {"n": str(value)}}).status_code


def test_changes_on_record_of_a_tenant_have_an_end_and_come_back_with_time(plane: ControlPlane) -> None:
    askers = Askers(plane)
    greedy, other, operator = askers("default"), askers("blue", "tenant-admin"), askers("*", "operator")
    before = askers.records()
    assert [_label(greedy, number) for number in range(FEW + 1)] == [200] * FEW + [429]
    assert askers.records() == before + FEW + 1, "the refusal is on record, as others are"
    refused = greedy.patch(VM, json={"labels": {"n": "late"}})
    assert (refused.json()["code"], refused.headers["retry-after"]) == ("server.too_many_changes", "1")
    assert refused.json()["hint"]
    assert dict(plane.services.vms.get("default", "train").spec.labels) == {"n": str(FEW - 1)}
    assert other.patch("/v1/tenants/blue", json={"description": "ours"}).status_code == 200
    assert [_label(operator, number) for number in range(20, 20 + 2 * FEW)] == [200] * 2 * FEW
    plane.world.clock.sleep(2 / PER_S)
    assert [_label(greedy, number) for number in range(3)] == [200, 200, 429]


def test_what_reads_is_refused_or_changes_nothing_takes_nothing(plane: ControlPlane) -> None:
    askers = Askers(plane)
    client = askers("default")
    for _ in range(2 * FEW):
        assert client.get(VM).status_code == 200
        assert client.patch(VM, json={"labels": {"n": "\x00"}}).status_code == 400
        assert client.patch(VM, json={"lable": {}}).status_code == 400
        assert client.patch("/v1/vms/none", json={"labels": {"n": "1"}}).status_code == 404
        assert client.patch(VM, json={"labels": {"n": "1"}}).status_code == 200
        assert client.post("/v1/vms/train/start").status_code == 202
        assert client.post("/v1/vms/plan", json=PLAN).status_code == 200
    assert [_label(client, number) for number in range(10, 10 + FEW)] == [200] * (FEW - 1) + [429]
    assert client.post("/v1/vms/plan", json=PLAN).status_code == 200


def test_a_request_that_leaves_several_records_takes_as_many(plane: ControlPlane) -> None:
    askers = Askers(plane)
    client = askers("blue", "tenant-admin")
    tokens = plane.services.tenancy.tokens
    first = client.post("/v1/tokens", json={"tenant": "blue", "role": "tenant-admin"}).json()
    child = TestClient(client.app, headers={"Authorization": f"Bearer {first['token']}"})
    for _ in range(3):
        assert child.post("/v1/tokens", json={"tenant": "blue", "role": "tenant-user"}).status_code == 201
    assert client.delete(f"/v1/tokens/{first['about']['id']}?tenant=blue").status_code == 204
    assert sum(one.revoked_at is not None for one in tokens.list("blue")) == 4
    plane.world.clock.sleep(3.5 / PER_S)
    assert client.patch("/v1/tenants/blue", json={"description": "early"}).status_code == 429
    plane.world.clock.sleep(1 / PER_S)
    assert client.patch("/v1/tenants/blue", json={"description": "later"}).status_code == 200


def test_who_reaches_into_a_guest_again_and_again_is_bounded_as_well(plane: ControlPlane) -> None:
    askers = Askers(plane)
    client, before = askers("default"), askers.records()
    for _ in range(FEW - 1):
        assert client.get(f"{VM}/console/log").status_code == 200
    with client.websocket_connect(f"{VM}/console"):
        pass
    assert client.get(f"{VM}/console/log").status_code == 429
    with pytest.raises(WebSocketDenialResponse) as caught, client.websocket_connect(f"{VM}/console"):
        pass
    assert caught.value.status_code == 429
    assert askers.records() == before + FEW + 1, "a refused stream is on record, a refused read is none"


def test_a_console_takes_one_for_its_opening_and_one_for_its_end(plane: ControlPlane) -> None:
    askers = Askers(plane)
    client, before = askers("default"), askers.records()
    for _ in range(FEW // 2):
        ticket = client.post(f"{VM}/console-tickets", json={"kind": "serial"}).json()["ticket"]
        with client.websocket_connect(f"{VM}/console-sessions/serial", ["binary", f"ticket.{ticket}"]) as stream:
            _told(stream, you_write=True)
            stream.receive_bytes()
    assert askers.records() == before + 2 * (FEW // 2)
    assert [_label(client, number) for number in range(2)] == [200, 429]


def _told(stream: WebSocketTestSession, *, you_write: bool) -> Any:
    """That it is so, or why the console ends."""
    while True:
        message = stream.receive()
        told = json.loads(message.get("text") or "{}")
        if "problem" in told or told.get("at", {}).get("you_write") is you_write:
            return told


def test_two_who_take_a_console_over_from_each_other_again_and_again_are_bounded_as_well(plane: ControlPlane) -> None:
    askers = Askers(plane)
    clients, path = [askers("default"), askers("default")], f"{VM}/console-sessions/serial"
    tickets = [client.post(f"{VM}/console-tickets", json={"kind": "serial"}).json()["ticket"] for client in clients]
    before = askers.records()
    with ExitStack() as opened:
        loop = opened.enter_context(start_blocking_portal())  # one for both, as a server has
        for client in clients:
            client.portal = loop
        one, two = (
            opened.enter_context(client.websocket_connect(path, ["binary", f"ticket.{ticket}"]))
            for client, ticket in zip(clients, tickets, strict=True)
        )
        _told(two, you_write=False)
        for number in range(FEW):
            taking, losing = (one, two) if number % 2 else (two, one)
            taking.send_text('{"take_over": true}')
            taking.send_text('{"take_over": true}')
            last = _told(taking, you_write=True)
            if "problem" in last:
                break
            _told(losing, you_write=False)
        assert last["problem"]["code"] == "server.too_many_changes"
    assert askers.records() <= before + FEW + 2, "the ends of two consoles beside what was allowed"


def test_a_large_plan_of_terraform_is_within_it() -> None:
    allowance, refused = ChangeAllowance(), 0
    for number in range(500):
        for _ in range(4):
            allowance.take("red", number * 0.1)
            allowance.settle("red", 1, number * 0.1)
    assert refused == 0
    assert AT_ONCE >= 2000
