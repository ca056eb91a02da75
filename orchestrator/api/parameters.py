# SPDX-License-Identifier: Apache-2.0
"""A parameter that a route does not have is refused: a misspelt one would quietly ask something else."""

from __future__ import annotations

import difflib

from fastapi.dependencies.utils import get_flat_params
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.requests import HTTPConnection

from orchestrator.core.errors import InvalidInput

_SHOWN = 40


async def only_known_parameters(connection: HTTPConnection) -> None:
    """A dependency of all routes.

    :raises InvalidInput: ``request.unknown_parameter``, with what may have been meant
    """
    if not connection.query_params:
        return
    known = _parameters_of(connection.scope["route"])
    for name in connection.query_params:
        if name not in known:
            near = difflib.get_close_matches(name[:_SHOWN], known, n=1)
            others = f"one of {', '.join(known)}" if known else "it takes none"
            raise InvalidInput(
                "request.unknown_parameter",
                f"there is no parameter {name[:_SHOWN]!a} here",
                hint=f"did you mean {near[0]}?" if near else others,
            )


def _parameters_of(route: APIRoute | APIWebSocketRoute) -> list[str]:
    """Fields of a model that stands for several parameters say nothing of where they are: in the query."""
    fields = get_flat_params(route.dependant)
    query = (one for one in fields if getattr(one.field_info, "in_", ParamTypes.query) is ParamTypes.query)
    return sorted(one.alias for one in query)
