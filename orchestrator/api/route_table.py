# SPDX-License-Identifier: Apache-2.0
"""Which route a request is for, known before the router is asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute
from starlette.types import Scope

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True)
class KnownRoute:
    """One path with one method."""

    method: str
    path: str
    """``/v1/vms/{name}``"""
    pattern: re.Pattern[str]


class RouteTable:
    """All HTTP routes of the application, in the order in which they are looked through."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self.routes = [
            KnownRoute(
                method=method,
                path=route.path_format or "",
                pattern=route.path_regex,
            )
            for route in iter_route_contexts(routes)
            for method in METHODS
            if method in (route.methods or ())
        ]

    def find(self, method: str, path: str) -> KnownRoute | None:
        """None: the API does not have it."""
        return next((route for route in self.routes if route.method == method and route.pattern.match(path)), None)

    def allowed(self, path: str) -> str | None:
        """``GET, HEAD``: the methods of the path; None: there is no such path."""
        known = {route.method for route in self.routes if route.pattern.match(path)}
        if not known:
            return None
        methods = [method for method in METHODS if method in known]
        return ", ".join([*methods, *(["HEAD"] if "GET" in known else [])])


def table_of(scope: Scope) -> RouteTable:
    """Of the application that the request is for."""
    table: RouteTable = scope["app"].state.routes
    return table
