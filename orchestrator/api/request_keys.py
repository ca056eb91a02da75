# SPDX-License-Identifier: Apache-2.0
"""``Idempotency-Key``: a change that is sent again under its key is answered again and not carried out again."""

from __future__ import annotations

from typing import Final

from anyio import to_thread
from fastapi import Request
from fastapi.responses import Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.auth import CallerOf, route_of
from orchestrator.api.errors import MEDIA_TYPE, problem
from orchestrator.api.use_cases import Services
from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.tenancy.request_key import StoredRequest

HEADER: Final = "idempotency-key"
WITHOUT: Final = frozenset(
    {
        "POST /v1/webhooks/{name}/test",
        "POST /v1/vms/plan",
        "POST /v1/vms/{name}/console-tickets",
        "POST /v1/backup-targets/{name}/secret",
        "POST /v1/hosts/scan",
        "POST /v1/findings/look",
        "POST /v1/server/stop",
        "PUT /v1/images/{name}/content",
        "PUT /v1/tenants/{tenant}/images/{name}/content",
        "PUT /v1/driver-bundles/{sha256}/content",
    }
)
"""Routes that take no key: their answers are to be new each time, or they carry a file, which its digest names."""
_SHOWN_ONCE: Final = frozenset({"POST /v1/tokens", "POST /v1/webhooks"})
"""Routes whose answers have a secret: nothing of it is kept. Who sends one again is told that it was carried out."""
_AGAIN: Final = Conflict(
    "request.shown_once",
    "this was carried out already, and its answer, which has a secret, is given once",
    hint="if you have not got it, take back what was made and ask under a new key",
)
_CHANGES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_KEPT: Final = "kept_request"


class AnsweredBefore(Exception):
    """Carries the answer that a request got the first time."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


async def look_up_key(request: Request, caller: CallerOf) -> None:
    """A dependency of all routes.

    :raises InvalidInput: ``request.key_refused``, ``request.key_invalid``
    :raises Conflict: ``request.key_reused``
    :raises AnsweredBefore: it was carried out
    """
    keys = request.headers.getlist(HEADER)
    if not keys:
        return
    route = route_of(request.scope)
    if request.method not in _CHANGES or route in WITHOUT or len(keys) > 1:
        raise InvalidInput(
            "request.key_refused",
            "an idempotency key has no meaning here" if len(keys) == 1 else "there are two idempotency keys",
            hint="one key, with a request that changes something",
        )
    spoken = (route.encode(), request.scope["path"].encode(), request.scope["query_string"], await request.body())
    services: Services = request.app.state.services
    kept = await to_thread.run_sync(services.tenancy.request_keys.begin, caller.actor, keys[0], *spoken)
    if kept.status is not None:
        raise AnsweredBefore(kept.status, kept.answer or "")
    request.scope["state"][_KEPT] = kept


async def answer_again(_: Request, error: Exception) -> Response:
    """Handles :class:`AnsweredBefore`."""
    if not isinstance(error, AnsweredBefore):
        raise error
    return Response(error.body, error.status, media_type=MEDIA_TYPE if error.status >= 400 else "application/json")


class KeepAnswers:
    """ASGI middleware. An answer is held until it is written down: whoever has it can rely on getting it again."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _CHANGES or HEADER not in Headers(scope=scope):
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        held: list[Message] = []

        async def hold(message: Message) -> None:
            held.append(message)

        try:
            await self._app(scope, receive, hold)
        finally:
            kept: StoredRequest | None = scope["state"].get(_KEPT)
            if kept is not None:
                await to_thread.run_sync(_finish, scope, kept, held)
        for message in held:
            await send(message)


def _finish(scope: Scope, kept: StoredRequest, answer: list[Message]) -> None:
    services: Services = scope["app"].state.services
    status = answer[0]["status"] if answer else 500
    body = b"".join(message.get("body", b"") for message in answer)
    if status >= 400:
        services.tenancy.request_keys.forget(kept)
        return
    if route_of(scope) in _SHOWN_ONCE:
        again = problem(_AGAIN)
        status, body = again.status_code, bytes(again.body)
    services.tenancy.request_keys.finish(kept, status, body.decode())
