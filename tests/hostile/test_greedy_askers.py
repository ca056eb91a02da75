# SPDX-License-Identifier: Apache-2.0
"""What one asks again and again, or all at once, keeps nobody else from being answered."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from orchestrator.api.app import create_app
from orchestrator.api.file_bodies import MAX_OF_TENANT, with_files
from orchestrator.api.http_answers import PART_BYTES
from orchestrator.api.limits import Activity
from orchestrator.api.routes.guest_streams import MAX_STREAMS_PER_TENANT
from orchestrator.api.services import Process
from orchestrator.core.errors import Retryable
from orchestrator.core.hosts.host import Host
from orchestrator.core.tenancy.access import Role
from orchestrator.core.tenancy.tenant import MAX_ENDED_TOKENS
from orchestrator.services.audit import MOST
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import ControlPlane, create_vm, plane_with

AT_ONCE = 60
"""More than there are threads for requests."""
PATIENCE_S = 20.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, "t4") as made:
        made.services.vms.create(create_vm())
        made.engine.drain()
        yield made


def _token(plane: ControlPlane, tenant: str) -> str:
    return plane.services.tenancy.tokens.create(tenant, "tenant-user", None)[1]


async def _ask(app: ASGIApp, path: str, token: str) -> tuple[int, list[bytes]]:
    """Status and body, in the parts in which it was handed over."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "https", "path": path, "root_path": "",
        "raw_path": path.encode(), "query_string": b"", "headers": [(b"authorization", f"Bearer {token}".encode())],
        "client": ("192.0.2.1", 1),
    }  # fmt: skip
    await app(scope, receive, send)
    return int(sent[0]["status"]), [message.get("body", b"") for message in sent[1:]]


def test_the_description_of_the_api_which_strangers_get_is_put_into_text_once(plane: ControlPlane) -> None:
    app = create_app(plane.services, Process(started_at=0, idle_seconds=None, activity=Activity()))
    client = TestClient(app)
    first = client.get("/v1/openapi.json").content
    app.openapi_schema = {"openapi": "another"}
    assert client.get("/v1/openapi.json").content == first


def test_a_long_answer_is_handed_over_in_parts_between_which_others_are_answered(plane: ControlPlane) -> None:
    app = create_app(plane.services, Process(started_at=0, idle_seconds=None, activity=Activity()))

    async def play() -> tuple[int, list[bytes]]:
        turns, over = 0, asyncio.Event()

        async def take_turns() -> None:
            nonlocal turns
            while not over.is_set():
                await asyncio.sleep(0)
                turns += 1

        beside = asyncio.ensure_future(take_turns())
        _, parts = await _ask(app, "/v1/openapi.json", _token(plane, "default"))
        over.set()
        await beside
        return turns, parts

    turns, parts = asyncio.run(play())
    assert max(map(len, parts)) <= PART_BYTES
    assert turns >= len(parts) - 1 > 5
    assert json.loads(b"".join(parts))["openapi"]


def test_a_tenant_whose_host_hangs_takes_no_thread_of_others(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = threading.Event()

    def console_log(host: Host, vm: str, most: int) -> bytes:
        assert hanging.wait(PATIENCE_S * 3)
        return b"boots"

    monkeypatch.setattr(plane.hosts, "console_log", console_log)
    plane.services.tenancy.tenants.create("blue")
    greedy, other = _token(plane, "default"), _token(plane, "blue")
    app = create_app(plane.services, Process(started_at=0, idle_seconds=None, activity=Activity()))

    async def play() -> tuple[list[int], tuple[int, list[bytes]]]:
        asked = [asyncio.ensure_future(_ask(app, "/v1/vms/train/console/log", greedy)) for _ in range(AT_ONCE)]
        try:
            async with asyncio.timeout(PATIENCE_S * 2):
                while sum(one.done() for one in asked) < AT_ONCE - MAX_STREAMS_PER_TENANT:
                    await asyncio.sleep(0.01)
            answered = await asyncio.wait_for(_ask(app, "/v1/whoami", other), PATIENCE_S)
        finally:
            hanging.set()
        return [status for status, _ in await asyncio.gather(*asked)], answered

    statuses, (status, _) = asyncio.run(play())
    assert status == 200
    assert sorted(statuses) == [200] * MAX_STREAMS_PER_TENANT + [409] * (AT_ONCE - MAX_STREAMS_PER_TENANT)


def test_a_tenant_that_sends_files_slowly_leaves_places_to_others() -> None:
    async def play() -> list[str]:
        end, refused = threading.Event(), []

        async def send(tenant: str) -> None:
            try:
                await with_files(end.wait, tenant=tenant)
            except Retryable as error:
                refused.append(f"{tenant} {error.code}")

        sending = [asyncio.ensure_future(send("red")) for _ in range(8)]
        await asyncio.sleep(0)  # each has its place or its refusal before it waits for a thread
        assert len(refused) == 8 - MAX_OF_TENANT
        sending += [asyncio.ensure_future(send("blue"))]
        await asyncio.sleep(0)
        end.set()
        await asyncio.gather(*sending)
        await asyncio.gather(*(send("red") for _ in range(MAX_OF_TENANT)))
        return refused

    assert asyncio.run(play()) == ["red server.files_busy"] * (8 - MAX_OF_TENANT)


def test_a_tenant_fills_neither_the_audit_by_refusals_nor_the_database_by_tokens(plane: ControlPlane) -> None:
    tenancy = plane.services.tenancy
    plane.services.tenancy.tenants.create("blue")
    roles: tuple[tuple[Role, str], ...] = ("read-only", "default"), ("tenant-user", "blue")
    for role, tenant in roles:
        text = tenancy.tokens.create(tenant, role, None)[1]
        client = TestClient(real_app(plane), headers={"Authorization": f"Bearer {text}"})
        for _ in range(MOST + 20):
            assert client.delete(f"/v1/tenants/{tenant}").status_code == 403
    records = [one.subject for one in tenancy.audit.list(limit=1000, refused=True)]
    assert [records.count(f"/v1/tenants/{tenant}") for tenant in ("default", "blue")] == [MOST, MOST]

    kept = tenancy.tokens.create("default", "tenant-user", None)[0]
    for _ in range(MAX_ENDED_TOKENS + 20):
        plane.world.clock.sleep(0.001)
        tenancy.tokens.revoke("default", tenancy.tokens.create("default", "tenant-user", None)[0].id)
    shown = tenancy.tokens.list("default")
    assert kept in shown
    assert MAX_ENDED_TOKENS <= sum(one.revoked_at is not None for one in shown) <= MAX_ENDED_TOKENS + 1
