# SPDX-License-Identifier: Apache-2.0
"""One request to an application in this process, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI


@dataclass(frozen=True)
class TenantExplanation:
    status: int
    headers: Mapping[str, str]
    body: str


def ask(app: FastAPI, method: str, path: str, *, uid: int | None, token: str | None = None) -> TenantExplanation:
    """As the user of this machine with that uid; None: from elsewhere."""
    return asyncio.run(ask_within(app, method, path, uid, token))


async def ask_within(
    app: FastAPI, method: str, path: str, uid: int | None, token: str | None = None
) -> TenantExplanation:
    """The same where an event loop runs already."""
    sent: list[MutableMapping[str, Any]] = []
    left: list[MutableMapping[str, Any]] = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": b"", "more_body": False},
    ]

    async def receive() -> MutableMapping[str, Any]:
        return left.pop() if len(left) > 1 else left[0]

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [] if token is None else [(b"authorization", f"Bearer {token}".encode())],
        "client": ("192.0.2.1" if uid is None else f"uid:{uid}", 1),
    }  # fmt: skip
    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return TenantExplanation(int(sent[0]["status"]), headers, b"".join(one.get("body", b"") for one in sent).decode())
