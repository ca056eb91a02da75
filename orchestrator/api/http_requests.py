# SPDX-License-Identifier: Apache-2.0
"""What HTTP and this API ask of every request: JSON bodies, known parameters, nothing twice, storable texts."""

from __future__ import annotations

import difflib
import json
import re
from typing import Any, Final, get_args, get_origin

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Scope

from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.foreign_json import unstorable

PREFIX: Final = "/v1"
"""All routes of the versioned API are included below it; a route of HTTP itself knows only the rest of its path."""
FILE_TYPE: Final = "application/octet-stream"
_FILE: Final = re.compile(r"/v1/(?:(?:tenants/[^/]+/)?images|driver-bundles)/[^/]+/content")
_BODIES: Final = frozenset({"POST", "PUT", "PATCH"})


def takes_file(scope: Scope) -> bool:
    """Whether the request's body is a file (api/file_bodies.py); known before its route is."""
    return scope["type"] == "http" and scope["method"] == "PUT" and _FILE.fullmatch(scope["path"]) is not None


def has_body(scope: Scope) -> bool:
    """Whether the request announces one."""
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


async def no_conditional_changes(request: Request) -> None:
    """What nobody compares is not obeyed as if it held.

    :raises InvalidInput: ``request.precondition``
    """
    if request.method != "GET" and "if-match" in request.headers:
        raise InvalidInput(
            "request.precondition",
            "If-Match is not compared with anything here",
            hint="read the object again and send the change without it",
        )


async def json_bodies_only(request: Request) -> None:
    """:raises InvalidInput: ``request.media_type``"""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    wanted = FILE_TYPE if takes_file(request.scope) else "application/json"
    if request.method in _BODIES and has_body(request.scope) and kind != wanted:
        what = "JSON" if wanted == "application/json" else "a file's bytes here"
        raise InvalidInput(
            "request.media_type",
            f"the body is {ascii(kind)[1:-1][:60] or 'of no named type'}, the API takes {what}",
            hint=f"send it with Content-Type: {wanted}",
        )


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
    query = (
        parameter for parameter in fields if getattr(parameter.field_info, "in_", ParamTypes.query) is ParamTypes.query
    )
    return sorted(parameter.alias for parameter in query)


async def no_repeated_names(request: Request) -> None:
    """A dependency of all routes.

    :raises InvalidInput: ``request.said_twice``: a parameter of the query, or a field of the body;
        ``request.text_invalid``
    """
    _once([name for name, _ in request.query_params.multi_items() if name not in _lists_of(request)], "parameter")
    body = b"" if takes_file(request.scope) else await request.body()
    if body:
        try:
            parsed = json.loads(body, object_pairs_hook=_object)
        except (ValueError, RecursionError):
            return  # no JSON: the route refuses it
        check_text(parsed, "body")


async def storable_target(connection: HTTPConnection) -> None:
    """A dependency of all routes, before any other: they ask the database about names of path and query.

    :raises NotFound: ``request.no_such_path``; :raises InvalidInput: ``request.text_invalid``
    """
    if unstorable(connection.scope["path"]) is not None:
        raise NotFound(
            "request.no_such_path", "nothing has a name with NUL in it", hint="the OpenAPI page lists all paths"
        )
    check_text([part for pair in connection.query_params.multi_items() for part in pair], "query")


def check_text(value: object, where: str) -> None:
    """:raises InvalidInput: ``request.text_invalid``"""
    text = unstorable(value)
    if text is not None:
        raise InvalidInput(
            "request.text_invalid",
            f"the {where} has a text with NUL or half a character: {text[:40]!a}",
            hint="leave that character out",
        )


def _lists_of(request: Request) -> frozenset[str]:
    """Parameters of which several values may be given, where the query has any at all."""
    if not request.query_params:
        return frozenset()
    parameters = get_flat_params(request.scope["route"].dependant)
    return frozenset(parameter.alias for parameter in parameters if _is_list(parameter.field_info.annotation))


def _is_list(kind: Any) -> bool:
    return any(get_origin(choice) is list for choice in (kind, *get_args(kind)))


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    _once([name for name, _ in pairs], "field")
    return dict(pairs)


def _once(names: list[str], what: str) -> None:
    seen = set[str]()
    for name in names:
        if name in seen:
            raise InvalidInput("request.said_twice", f"the {what} {name[:40]!a} is there twice", hint="give it once")
        seen.add(name)
