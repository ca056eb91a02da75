# SPDX-License-Identifier: Apache-2.0
"""Writes down every request that wanted to change something and was refused. Of a what-if only who was denied it is."""

from __future__ import annotations

import json
import logging
from typing import Final

from anyio import to_thread
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.allowance import settle
from orchestrator.api.auth import route_of
from orchestrator.api.errors import problem
from orchestrator.api.permissions import WHAT_IFS, may_operate
from orchestrator.api.protocols import origin_of
from orchestrator.api.use_cases import Services
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.names import is_name
from orchestrator.core.tenancy.access import EVERYWHERE, Caller
from orchestrator.core.tenancy.audit import REFUSED
from orchestrator.services.acting import act_for
from orchestrator.store.audit import came_from

log = logging.getLogger(__name__)

STRANGER: Final = "unknown"
"""Whoever has not shown yet who it is."""
_READS: Final = frozenset({"GET", "HEAD"})
_DENIED: Final = frozenset({401, 403})
_SHOWN: Final = 200


class RecordRefusals:
    """ASGI middleware. Of the request it keeps method and path, never a body or a query: they may hold secrets."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        act_for(STRANGER)
        came_from(origin_of(HTTPConnection(scope)))
        scope.setdefault("state", {})  # what the routes note is to be seen here
        if scope["type"] != "http" or scope["method"] in _READS:
            try:
                await self._app(scope, receive, send)
            finally:
                settle(scope)
            return
        held = _Held(send)
        try:
            await self._app(scope, receive, held.send)
        finally:
            settle(scope)  # the record of a refusal is not the tenant's
            try:
                if held.refused and (held.status in _DENIED or _action(scope) not in WHAT_IFS):
                    await to_thread.run_sync(_record, scope, held.outcome)
            except VgpuctlError as error:  # nothing was changed: the same request can come again, and is on record then
                log.warning("%s, not on record: %s", held.outcome, error)
                await problem(error)(scope, receive, send)
            else:
                await held.release()


def _action(scope: Scope) -> str:
    """The route; the method alone where none was reached."""
    return route_of(scope) if hasattr(scope.get("route"), "path_format") else scope["method"]


def _record(scope: Scope, outcome: str) -> None:
    services: Services = scope["app"].state.services
    path = ascii(scope["path"])[1:-1]
    subject, asker = subject_of(path, scope["state"].get("aimed")), asker_of(scope["state"].get("caller"))
    services.tenancy.audit.refused(ascii(_action(scope))[1:-1], subject, outcome, asker=asker)


def asker_of(caller: Caller | None) -> str | None:
    """Whose refusals are bounded together. None: of whoever runs the pool, they are not."""
    if caller is None:
        return "strangers"
    if may_operate(caller):
        return None
    return caller.actor if caller.tenants is None else ", ".join(caller.tenants)


def subject_of(path: str, tenant: str | None) -> str:
    """The path, and the tenant that was aimed at where it does not say so itself."""
    named = tenant is not None and (tenant == EVERYWHERE or is_name(tenant))  # other words may be somebody's secret
    return f"{path[:_SHOWN]} of {tenant}" if named else path[:_SHOWN]


class _Held:
    """An answer. A refusal is held until it is written down: whoever has it can rely on the record."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._messages: list[Message] = []
        self.status = 500
        """Until something is answered: an exception that nobody expected."""

    @property
    def refused(self) -> bool:
        return self.status >= 400

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        if self.refused:
            self._messages.append(message)
        else:
            await self._send(message)

    async def release(self) -> None:
        """To the client, whatever was held."""
        for message in self._messages:
            await self._send(message)

    @property
    def outcome(self) -> str:
        """``refused: quota.exceeded``."""
        try:
            problem = json.loads(b"".join(message.get("body", b"") for message in self._messages))
        except ValueError:
            problem = None
        code = problem.get("code") if isinstance(problem, dict) else None
        return f"{REFUSED}{code or self.status}"
