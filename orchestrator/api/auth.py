# SPDX-License-Identifier: Apache-2.0
"""Before a route is run: who is there, and may they? The only place that asks; routes get a :class:`Caller`."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final

from anyio import CapacityLimiter, to_thread
from fastapi import Depends
from starlette.datastructures import State
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.api.errors import refusal
from orchestrator.api.http_requests import PREFIX, has_body
from orchestrator.api.limits import HEALTH_THREADS
from orchestrator.api.permissions import RULES, WATCHING, Rule
from orchestrator.api.protocols import uid_of
from orchestrator.api.use_cases import Services
from orchestrator.core.errors import Bug, Denied, NotFound, VgpuctlError
from orchestrator.core.operation import Watched, unknown_operation
from orchestrator.core.tenancy.access import EVERYWHERE, Caller, Role, denied, unknown_tenant
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.services.acting import act_for

_SCHEME = "bearer "
ASK_AGAIN_S: Final = 2.0
"""How often it is asked whether who opened a stream still may: a token that ends, a login that is over, a member who is
one no longer close it. Who fetches again what a page shows is known by the same answer."""
MAX_LATELY: Final = 4096
PROVIDER_S: Final = 15.0
"""How long a login waits for the provider's keys."""
_SENDER: Final = "sender"
"""In the request's state: who was asked for already, for the route's own question."""


class LatelyKnown:
    """Who showed which token in the last :data:`ASK_AGAIN_S`. Lives on the event loop."""

    def __init__(self) -> None:
        self._callers: dict[str, tuple[Caller, float]] = {}

    def get(self, token: str) -> Caller | None:
        """None: it is to be asked."""
        caller, at = self._callers.get(token, (None, 0.0))
        return caller if time.monotonic() - at < ASK_AGAIN_S else None

    def put(self, token: str, caller: Caller, at: float) -> None:
        """``at``: before it was asked, of :func:`time.monotonic`."""
        if len(self._callers) >= MAX_LATELY:
            self._callers.clear()
        self._callers[token] = caller, at

    def forget(self, token: str) -> None:
        self._callers.pop(token, None)


class KnowTheSender:
    """ASGI middleware: who sends a body to the versioned API says who it is before a byte of it is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(f"{PREFIX}/") and has_body(scope):
            connection = Request(scope)
            try:
                caller = await identified(connection, scope["app"].state)
            except VgpuctlError as error:
                await refusal(error, None)(scope, receive, send)
                return
            act_for(caller.actor, of_pool=bool(caller.everywhere))
            scope["state"] |= {_SENDER: caller, "caller": caller}
        await self._app(scope, receive, send)


async def authorize(connection: HTTPConnection) -> Caller:
    """The caller, when the table (api/permissions.py) allows the route to it; the audit learns the name.

    :raises Denied: ``peer.denied``, ``token.refused``, ``access.denied``
    :raises NotFound: ``tenant.unknown``, ``operation.unknown``: not there, or not the caller's to know of
    """
    services: Services = connection.app.state.services
    caller = connection.scope["state"].pop(_SENDER, None) or await identified(connection, connection.app.state)
    act_for(caller.actor, of_pool=bool(caller.everywhere))
    connection.state.caller = caller
    rule = RULES.get(route_of(connection.scope))
    if rule is None:
        raise Bug("access.no_rule", "nobody has said who may use this route")
    await _check(rule, caller, connection, services)
    return caller


async def still_may(connection: HTTPConnection) -> bool:
    """For what goes on for long after it was opened. A database that is away for a moment says nothing of anybody."""
    try:
        await authorize(connection)
    except (Denied, NotFound):
        return False
    except VgpuctlError:
        return True
    return True


class Asked:
    """When it was asked last whether a client may; it just was."""

    def __init__(self, connection: HTTPConnection) -> None:
        self._connection = connection
        self._at = time.monotonic()

    async def again(self) -> bool:
        """Whether it still may; asked when that is :data:`ASK_AGAIN_S` ago."""
        if time.monotonic() - self._at < ASK_AGAIN_S:
            return True
        self._at = time.monotonic()
        return await still_may(self._connection)


async def authorize_watching(connection: HTTPConnection) -> None:
    """For what is told of the whole pool outside the versioned API. Raises as :func:`authorize` does."""
    caller = await identified(connection, connection.app.state, HEALTH_THREADS)
    _need(WATCHING, caller.everywhere)


def route_of(scope: Scope) -> str:
    """``GET /v1/vms/{name}``: the key of the table."""
    method = scope.get("method", "WEBSOCKET")
    path = scope["route"].path_format
    return f"{method} {PREFIX}{path.removeprefix(PREFIX)}"


CallerOf = Annotated[Caller, Depends(authorize)]


async def identified(connection: HTTPConnection, app: State, threads: CapacityLimiter | None = None) -> Caller:
    """A token says more than a uid: whoever shows one acts with its rights, even root. ``app``: the application's
    state. ``threads``: of which the database is asked; None: of those that serve requests.

    :raises Denied: ``token.refused``, ``token.missing``, ``peer.denied``, ``login.too_weak``
    :raises Retryable: ``login.unreachable``, and as the database is away
    """
    services: Services = app.services
    access = services.tenancy.access
    if (token := _shown_token(connection)) is not None:
        if (awaited := access.awaited(token)) is not None:  # waits here and holds no thread
            await asyncio.wait([asyncio.wrap_future(awaited)], timeout=PROVIDER_S)
        at = time.monotonic()
        try:
            caller = await to_thread.run_sync(access.of_token, token, limiter=threads)
        except Denied:
            app.lately_known.forget(token)
            raise
        app.lately_known.put(token, caller, at)
        return caller
    uid = uid_of(connection)
    if uid is None:
        raise Denied("token.missing", "this needs a token", hint="Authorization: Bearer vgpuctl_...")
    act_for(f"uid:{uid}")
    owner = access.of_owner(uid)
    return owner if owner is not None else await to_thread.run_sync(access.of_uid, uid, limiter=threads)


async def identified_lately(connection: HTTPConnection, app: State) -> Caller:
    """As :func:`identified`, or as that was answered less than :data:`ASK_AGAIN_S` ago: for what is read again and
    again, and for no change. Raises the same."""
    token = _shown_token(connection)
    known = None if token is None else app.lately_known.get(token)
    return known or await identified(connection, app)


def _shown_token(connection: HTTPConnection) -> str | None:
    """:raises Denied: ``token.refused``: it is of another scheme"""
    given = connection.headers.get("authorization")
    if given is None:
        return None
    if not given.lower().startswith(_SCHEME):
        raise Denied("token.refused", "only bearer tokens are taken", hint="Authorization: Bearer vgpuctl_...")
    return given[len(_SCHEME) :].strip()


def credential_of(connection: HTTPConnection) -> str:
    """By what whoever was authorized is known: the token's text, or the uid."""
    given = connection.headers.get("authorization")
    return f"uid:{uid_of(connection)}" if given is None else given[len(_SCHEME) :].strip()


def aimed_at(connection: HTTPConnection, tenant: str | None) -> None:
    """Whose things the request is about, for the record of its refusal."""
    connection.state.aimed = tenant


async def _check(rule: Rule, caller: Caller, connection: HTTPConnection, services: Services) -> None:
    named = connection.query_params.get("tenant")
    aimed_at(connection, named)
    match rule.scope:
        case "pool":
            _need(rule, caller.everywhere)
        case "anybody":
            _need(rule, frozenset(grant.role for grant in caller.grants))
        case "list":
            caller.visible(named)
            if named is not None and caller.everywhere:  # a name with a typo is no empty list
                await to_thread.run_sync(services.tenancy.tenants.get, named)
        case "query":
            aimed_at(connection, DEFAULT_TENANT if named is None else named)
            _need_in(rule, caller, connection.state.aimed)
        case "path":
            _need_in(rule, caller, connection.path_params["tenant"])
        case "body":
            aimed_at(connection, await _tenant_in_body(connection))
            _need_in(rule, caller, connection.state.aimed)
        case "operation":
            await _check_operation(rule, caller, connection, services)


async def _check_operation(rule: Rule, caller: Caller, connection: HTTPConnection, services: Services) -> None:
    operation_id = connection.path_params["operation_id"]
    connection.state.watched = await to_thread.run_sync(services.operations.watched, operation_id)
    operation = connection.state.watched.operation
    aimed_at(connection, operation.tenant)
    roles = caller.roles_in(EVERYWHERE if operation.tenant is None else operation.tenant)
    if not roles:
        raise unknown_operation(operation_id)
    _need(rule, roles)


def just_read(connection: HTTPConnection) -> Watched:
    """The operation that the path names, as it was when the caller's rights were checked."""
    watched: Watched = connection.state.watched
    return watched


def _need_in(rule: Rule, caller: Caller, tenant: str) -> None:
    roles = caller.roles_in(tenant)
    if not roles:
        raise unknown_tenant(tenant)
    _need(rule, roles)


def _need(rule: Rule, roles: frozenset[Role]) -> None:
    if not rule.roles & roles:
        raise denied(rule.roles)


async def _tenant_in_body(connection: HTTPConnection) -> str:
    """What the route will read as the tenant; a body that is none of the API's is refused by the route itself."""
    if not isinstance(connection, Request):
        return DEFAULT_TENANT
    try:
        body = await connection.json()
    except (ValueError, RecursionError):
        return DEFAULT_TENANT
    tenant = body.get("tenant", DEFAULT_TENANT) if isinstance(body, dict) else DEFAULT_TENANT
    return tenant if isinstance(tenant, str) else DEFAULT_TENANT
