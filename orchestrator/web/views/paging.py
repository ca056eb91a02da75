# SPDX-License-Identifier: Apache-2.0
"""Lists in pages: the filter, the size and the cursor stand in the page's own address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from orchestrator.web.api_calls import ApiCalls, Problem, Refused


@dataclass(frozen=True)
class ListPage:
    """``rows``: as the API answers; ``filters``: what the address says of each; ``following`` and ``first``: addresses
    of the next and the first page, None on these; ``total``: of all pages, None: not known; ``refused``: what the API
    says against the filter, and then there are no rows."""

    rows: Any
    filters: dict[str, str]
    following: str | None = None
    first: str | None = None
    total: int | None = None
    refused: Problem | None = None

    @property
    def status(self) -> int:
        """Of the answer with it."""
        return 200 if self.refused is None else int(self.refused["status"])


async def list_page(
    request: Request,
    path: str,
    filters: Iterable[str],
    *,
    limit: int | None,
    member: str | None = None,
    fixed: Mapping[str, str] = {},
) -> ListPage:
    """The page that the address asks for; ``limit`` None: the API has one page. ``member``: of the answer that is the
    list. ``fixed``: parameters that the address does not choose."""
    api: ApiCalls = request.state.api
    given = request.query_params
    chosen = {name: given.get(name, "") for name in filters}
    cursor = given.get("after") or None
    try:
        answer = await api.page(path, {**chosen, **fixed, "after": cursor, "limit": limit})
    except Refused as refused:
        return ListPage([], chosen, refused=refused.problem)
    rows = answer.data if member is None else answer.data[member]
    query = {name: value for name, value in chosen.items() if value}
    following = None if answer.after is None else _address(request, {**query, "after": answer.after})
    first = None if cursor is None else _address(request, query)
    total = len(rows) if answer.after is None and cursor is None else answer.total
    return ListPage(rows, chosen, following, first, total)


def _address(request: Request, query: dict[str, str]) -> str:
    return request.url.path + (f"?{urlencode(query)}" if query else "")
