# SPDX-License-Identifier: Apache-2.0
"""Before a change of a tenant is made: may it make one more? After it: how many records it has left."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from starlette.requests import HTTPConnection
from starlette.types import Scope

from orchestrator.api.auth import CallerOf, route_of
from orchestrator.api.permissions import RULES, WHAT_IFS, may_operate
from orchestrator.api.use_cases import Services
from orchestrator.core.tenancy.access import Caller
from orchestrator.store.audit import recorded

_ON_RECORD: Final = frozenset({"GET /v1/vms/{name}/console/log"})
_TAKEN: Final = "taken_of"
"""In the request's state: the tenant of whose allowance one was taken."""
_SETTLED: Final = "records_settled"
"""The same: how many of the request's records were counted already."""


async def within_allowance(request: Request, caller: CallerOf) -> None:
    """A dependency of all routes. :raises Retryable: ``server.too_many_changes``"""
    route = route_of(request.scope)
    if route in _ON_RECORD or (request.method != "GET" and route not in WHAT_IFS):
        take_one(request, caller)


def take_one(connection: HTTPConnection, caller: Caller) -> None:
    """For what will be on record. Whoever runs the pool has no bound.

    :raises Retryable: ``server.too_many_changes``"""
    of_path = RULES[route_of(connection.scope)].scope == "path"
    tenant = connection.path_params["tenant"] if of_path else connection.state.aimed
    if tenant is None or may_operate(caller):
        return
    services: Services = connection.app.state.services
    services.tenancy.allowance.take(tenant, services.tenancy.audit.clock.now())
    connection.scope["state"][_TAKEN] = tenant


def settle(scope: Scope) -> None:
    """When it has ended; once more changes nothing. What is open for long takes and settles several times."""
    state = scope["state"]
    tenant = state.pop(_TAKEN, None)
    if tenant is not None:
        services: Services = scope["app"].state.services
        new, state[_SETTLED] = recorded() - state.get(_SETTLED, 0), recorded()
        services.tenancy.allowance.settle(tenant, new, services.tenancy.audit.clock.now())
