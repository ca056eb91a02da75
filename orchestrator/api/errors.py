# SPDX-License-Identifier: Apache-2.0
"""Every error as application/problem+json (RFC 9457), with our code, hint and reasons beside the standard members."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from orchestrator.api.route_table import table_of
from orchestrator.api.visibility import refusal_for_tenant, watches_pool
from orchestrator.core.errors import (
    DATABASE_AWAY,
    Bug,
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    Reason,
    VgpuctlError,
    error_to_dict,
)
from orchestrator.core.plain_words import in_plain_words
from orchestrator.core.tenancy.access import Caller

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_SHOWN_INPUT = 60
_SHOWN_MISTAKES = 20
_FORMS = frozenset({"constrained-str", "constrained-int", "constrained-float"})
"""How pydantic calls forms of a value in a place: what nobody has sent."""
_STATUS = {
    "token.missing": 401, "token.refused": 401, "request.media_type": 415, "request.no_websocket": 426,
    **dict.fromkeys(DATABASE_AWAY, 503), "server.too_many_changes": 429,
}  # fmt: skip
"""Where HTTP has a finer one than the family's."""
_HEADERS = {
    401: {"WWW-Authenticate": 'Bearer realm="vgpuctl"'},
    426: {"Upgrade": "websocket", "Connection": "Upgrade"},
    429: {"Retry-After": "1"},
}


def problem(error: VgpuctlError, status: int | None = None, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The error as an answer; ``status`` where HTTP has a finer one than the family's."""
    data, status = error_to_dict(error), status or status_of(error)
    data.pop("of_host", None)
    content = {
        "type": f"urn:vgpuctl:error:{error.code}",
        "title": error.family.replace("_", " "),
        "status": status,
        "detail": data.pop("message"),
        "operator_details": data.pop("details"),
        **data,
    }
    return JSONResponse(content, status_code=status, headers=headers, media_type=MEDIA_TYPE)


def refusal(error: VgpuctlError, caller: Caller | None) -> JSONResponse:
    """The error as this caller may know of it; None: of whom nothing is known."""
    status = status_of(error)
    return problem(error if watches_pool(caller) else refusal_for_tenant(error), status, _HEADERS.get(status))


def status_of(error: VgpuctlError) -> int:
    """What HTTP calls it."""
    return _STATUS.get(error.code, error.http_status)


def install(app: FastAPI) -> None:
    """Answer everything that can be raised with a problem."""
    app.add_exception_handler(VgpuctlError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(RecursionError, _too_deep)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _ours(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, VgpuctlError):
        raise error
    return refusal(error, getattr(request.state, "caller", None))


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    return problem(invalid_request(error.errors()))


async def _too_deep(_: Request, __: Exception) -> JSONResponse:
    return problem(
        InvalidInput(
            "request.too_deep",
            "the request's body is nested too deeply",
            hint="the OpenAPI page says what the API takes",
        )
    )


async def _http(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    headers = error.headers
    if error.status_code == 405:  # the router knows the methods of the first route of the path only
        headers = {**(headers or {}), "Allow": table_of(request.scope).allowed(request.scope["path"]) or ""}
    return problem(_from_status(error), error.status_code, headers)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    number = uuid.uuid4().hex[:12]
    log.error("unexpected error %s in %s %s", number, request.method, request.url.path, exc_info=error)
    return problem(Bug("bug", f"unexpected error {number}", hint="the server's log has the details under this number"))


def invalid_request(mistakes: Sequence[Mapping[str, Any]]) -> InvalidInput:
    """pydantic's mistakes as one error: the first in its line, all as reasons."""
    reasons = tuple(
        Reason(code="request.invalid", message=_sentence(mistake), subjects=(_field(mistake),))
        for mistake in mistakes[:_SHOWN_MISTAKES]
    )
    first = reasons[0]
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return InvalidInput(
        "request.invalid",
        f"{first.subjects[0]}: {first.message}{more}",
        hint="/v1/openapi.json says what every request takes",
        reasons=reasons if len(reasons) > 1 else (),
    )


def _field(mistake: Mapping[str, Any]) -> str:
    if mistake["type"] == "json_invalid":
        return "body"
    named = [str(part) for part in mistake["loc"] if part not in {"body", "query", "path"}]
    where = [part for part in named if part not in _FORMS and not part.startswith("literal[")]
    name = ".".join(where) or "body"
    shown = ascii(name)[1:-1]
    return shown if len(shown) <= _SHOWN_INPUT else shown[:_SHOWN_INPUT] + "..."


def _sentence(mistake: Mapping[str, Any]) -> str:
    message = in_plain_words(mistake["type"], str(mistake["msg"]), mistake.get("ctx", {}))
    if mistake["type"] == "json_invalid":
        message = f"it is not JSON at character {mistake['loc'][-1]}: {mistake.get('ctx', {}).get('error', message)}"
    return ascii(message[:1].lower() + message[1:])[1:-1]


def _from_status(error: HTTPException) -> VgpuctlError:
    text = str(error.detail).lower()
    if error.status_code == 404:
        return NotFound("request.no_such_path", "the API has no such path", hint="the OpenAPI page lists all paths")
    if error.status_code == 405:
        return InvalidInput(
            "request.method", "the API does not have this method here", hint="the OpenAPI page says what the API takes"
        )
    if error.status_code in {401, 403}:
        return Denied("request.denied", text, hint="ask an admin for the role it takes")
    if error.status_code == 409:
        return Conflict("request.conflict", text, hint="look at what is there now, then ask again")
    if error.status_code == 413:
        return InvalidInput("request.too_large", text, hint="send less at once")
    if error.status_code < 500:
        return InvalidInput("request.invalid", text, hint="the OpenAPI page says what the API takes")
    return Bug("bug", text)
