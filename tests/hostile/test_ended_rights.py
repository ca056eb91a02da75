# SPDX-License-Identifier: Apache-2.0
"""Whatever goes on for long after it was asked for ends with the right to ask for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.app import create_app
from orchestrator.api.auth import ASK_AGAIN_S
from orchestrator.api.limits import Activity
from orchestrator.api.services import Process
from orchestrator.core.tenancy.tenant import Member
from tests.fakes.control_plane import ControlPlane, create_vm, plane_with

STILL_S = 30.0
MEMBER = 4242


def _by_token(plane: ControlPlane) -> tuple[list[tuple[bytes, bytes]], str, Callable[[], object]]:
    token, text = plane.services.tenancy.tokens.create("default", "read-only", None)
    headers = [(b"authorization", f"Bearer {text}".encode())]
    return headers, "192.0.2.1", lambda: plane.services.tenancy.tokens.revoke("default", token.id)


def _by_uid(plane: ControlPlane) -> tuple[list[tuple[bytes, bytes]], str, Callable[[], object]]:
    tenants, subject = plane.services.tenancy.tenants, f"uid:{MEMBER}"
    tenants.put_member(Member(tenant="default", subject=subject, role="read-only"))
    return [], subject, lambda: tenants.remove_member("default", subject)


@pytest.mark.parametrize("by", [_by_token, _by_uid])
@pytest.mark.parametrize(("query", "last"), [("/events?wait=600", b""), ("?wait=60&since=99", b"token.refused")])
def test_who_may_no_longer_see_an_operation_is_told_no_more_of_it(
    tmp_path: Path,
    by: Callable[[ControlPlane], tuple[list[tuple[bytes, bytes]], str, Callable[[], object]]],
    query: str,
    last: bytes,
) -> None:
    with plane_with(tmp_path, "t4") as plane:
        app = create_app(plane.services, Process(started_at=0, idle_seconds=None, activity=Activity()))
        started = str(plane.services.vms.create(create_vm()).operation)
        headers, client, revoke = by(plane)
        path, _, wanted = f"/v1/operations/{started}{query}".partition("?")
        body, began = asyncio.run(_until_its_end(app, path, wanted, headers, client, revoke))
        assert time.monotonic() - began < STILL_S
        if last:
            assert last in body
        else:
            assert body.count(b"event: operation") == 1


async def _until_its_end(
    app: Any, path: str, query: str, headers: list[tuple[bytes, bytes]], client: str, revoke: Callable[[], object]
) -> tuple[bytes, float]:
    """Revoked when it has begun to wait; what was sent, and when it was revoked."""
    gone, body, asked = asyncio.Event(), b"", False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal body
        body += message.get("body", b"")

    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "https", "path": path, "root_path": "",
        "raw_path": path.encode(), "query_string": query.encode(), "headers": headers, "client": (client, 1),
    }  # fmt: skip
    answering = asyncio.ensure_future(app(scope, receive, send))
    async with asyncio.timeout(STILL_S):
        while not app.state.waiting.watches or ("/events" in path and b"event: operation" not in body):
            await asyncio.sleep(0.01)
    await asyncio.to_thread(revoke)
    began = time.monotonic()
    if "/events" in path:
        await asyncio.wait_for(answering, STILL_S)
    else:
        await asyncio.sleep(ASK_AGAIN_S)
        await asyncio.to_thread(app.state.waiting.close)
        await asyncio.wait_for(answering, STILL_S)
    return body, began
