# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from orchestrator.api import errors
from orchestrator.api.limits import LimitBody

BOUND = 1000


def _app() -> FastAPI:
    app = FastAPI()

    @app.post("/read")
    async def read(request: Request) -> int:
        return len(await request.body())

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def forever() -> AsyncIterator[str]:
            while True:
                yield "event\n\n"
                await asyncio.sleep(0)

        return StreamingResponse(forever())

    errors.install(app)
    app.add_middleware(LimitBody, max_bytes=BOUND)
    return app


async def _send_on_and_on(method: str, path: str) -> list[MutableMapping[str, Any]]:
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"x" * 100, "more_body": True}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": [], "client": ("192.0.2.1", 1),
    }  # fmt: skip
    await _app()(scope, receive, send)
    return sent


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/read", 413), ("GET", "/stream", 200)])
def test_a_body_that_never_ends_ends_the_request_before_and_after_the_answer_began(
    method: str, path: str, status: int
) -> None:
    assert asyncio.run(_send_on_and_on(method, path))[0]["status"] == status
