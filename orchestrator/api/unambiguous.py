# SPDX-License-Identifier: Apache-2.0
"""A request that says the same thing twice is refused: which of the two is meant, every reader decides otherwise."""

from __future__ import annotations

import json

from fastapi import Request

from orchestrator.api.http_rules import takes_file
from orchestrator.core.errors import InvalidInput


async def say_it_once(request: Request) -> None:
    """A dependency of all routes.

    :raises InvalidInput: ``request.said_twice``: a parameter of the query, or a field of the body
    """
    _once([name for name, _ in request.query_params.multi_items()], "parameter")
    body = b"" if takes_file(request.scope) else await request.body()
    if body:
        try:
            json.loads(body, object_pairs_hook=_object)
        except (ValueError, RecursionError):
            return  # no JSON: the route refuses it


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    _once([name for name, _ in pairs], "field")
    return dict(pairs)


def _once(names: list[str], what: str) -> None:
    if len(names) == len(set(names)):
        return
    twice = next(name for position, name in enumerate(names) if name in names[:position])
    raise InvalidInput("request.said_twice", f"the {what} {twice[:40]!a} is there twice", hint="give it once")
