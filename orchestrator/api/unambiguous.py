# SPDX-License-Identifier: Apache-2.0
"""A request that says the same thing twice is refused: which of the two is meant, every reader decides otherwise.
So is a text with a character that not every database keeps."""

from __future__ import annotations

import json

from fastapi import Request
from starlette.requests import HTTPConnection

from orchestrator.api.http_rules import takes_file
from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.foreign_json import unstorable


async def say_it_once(request: Request) -> None:
    """A dependency of all routes.

    :raises InvalidInput: ``request.said_twice``: a parameter of the query, or a field of the body;
        ``request.text_invalid``
    """
    _once([name for name, _ in request.query_params.multi_items()], "parameter")
    body = b"" if takes_file(request.scope) else await request.body()
    if body:
        try:
            said = json.loads(body, object_pairs_hook=_object)
        except (ValueError, RecursionError):
            return  # no JSON: the route refuses it
        check_text(said, "body")


async def storable_target(connection: HTTPConnection) -> None:
    """A dependency of all routes, before any other: they ask the database about names of path and query.

    :raises NotFound: ``request.no_such_path``; :raises InvalidInput: ``request.text_invalid``
    """
    if unstorable(connection.scope["path"]) is not None:
        raise NotFound(
            "request.no_such_path", "nothing has a name with NUL in it", hint="the OpenAPI page lists all paths"
        )
    check_text([part for pair in connection.query_params.multi_items() for part in pair], "query")


def check_text(said: object, where: str) -> None:
    """:raises InvalidInput: ``request.text_invalid``"""
    text = unstorable(said)
    if text is not None:
        raise InvalidInput(
            "request.text_invalid",
            f"the {where} has a text with NUL or half a character: {text[:40]!a}",
            hint="leave that character out",
        )


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    _once([name for name, _ in pairs], "field")
    return dict(pairs)


def _once(names: list[str], what: str) -> None:
    seen = set[str]()
    for name in names:
        if name in seen:
            raise InvalidInput("request.said_twice", f"the {what} {name[:40]!a} is there twice", hint="give it once")
        seen.add(name)
