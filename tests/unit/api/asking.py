# SPDX-License-Identifier: Apache-2.0
"""One request at a time to an application in this process, as its owner."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastapi import FastAPI

from orchestrator.api.app import create_app
from orchestrator.api.limits import Activity
from orchestrator.api.services import Process
from orchestrator.api.use_cases import Services
from orchestrator.api.waiting import Waiting
from tests.fakes.services import InMemory


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Asking:
    app: FastAPI
    fake: InMemory

    def __call__(self, method: str, target: str, body: object = None, **headers: str) -> Answer:
        """``if_match`` stands for the header ``if-match``."""
        return asyncio.run(self._ask(method, target, body, headers))

    async def _ask(self, method: str, target: str, body: object, headers: dict[str, str]) -> Answer:
        path, _, query = target.partition("?")
        sent: list[MutableMapping[str, Any]] = []
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        given = {
            "content-type": "application/json",
            "content-length": str(len(content)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path,
            "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": (f"uid:{os.geteuid()}", 1),
        }  # fmt: skip
        await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        text = b"".join(message.get("body", b"") for message in sent)
        return Answer(sent[0]["status"], found, json.loads(text) if text else None)


@cache
def _routes() -> FastAPI:
    return create_app(InMemory().as_services(), Process(started_at=0, idle_seconds=None, activity=Activity()))


def serving(services: Services) -> FastAPI:
    """The routes, which take half a second to put together, are those of all tests; what they serve is one test's."""
    app = _routes()
    app.state.services, app.state.waiting = services, Waiting(services.operations)
    return app


def asking() -> Asking:
    fake = InMemory()
    fake.record_enrolled()
    return Asking(serving(fake.as_services()), fake)
