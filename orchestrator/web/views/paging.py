# SPDX-License-Identifier: Apache-2.0
"""Lists in pages: the filter, the size and the cursor stand in the page's own address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from orchestrator.web.api_calls import ApiCalls, Problem, Refused


@dataclass(frozen=True)
class ListPage:
    """``rows``: as the API answers; ``filters`` and ``sort``: what the address says; ``following`` and ``first``:
    addresses of the next and the first page, None on these; ``total``: of all pages, None: not known; ``refused``: what
    the API says against the filter or the order, and then there are no rows; ``usual``: filters that are set where the
    address sets none."""

    rows: Any
    filters: dict[str, str]
    following: str | None = None
    first: str | None = None
    total: int | None = None
    refused: Problem | None = None
    sort: str = ""
    usual: Mapping[str, str] = field(default_factory=dict)
    data: Any = None
    """The whole answer; None where it was refused."""

    @property
    def filtered(self) -> bool:
        return any(value not in {"", self.usual.get(name)} for name, value in self.filters.items())

    def sorted_by(self, member: str) -> str:
        """The address of this list by that member, the other way round where it is sorted so."""
        query = {name: value for name, value in self.filters.items() if value}
        return "?" + urlencode({**query, "sort": f"-{member}" if self.sort == member else member})

    def order(self, member: str) -> str:
        """As ``aria-sort`` names it."""
        return {member: "ascending", f"-{member}": "descending"}.get(self.sort, "none")

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
    usual: Mapping[str, str] = {},
) -> ListPage:
    """The page that the address asks for; ``limit`` None: the API has one page. ``member``: of the answer that is the
    list. ``usual``: parameters where the address chooses no others, which it does of ``filters`` alone."""
    api: ApiCalls = request.state.api
    given = request.query_params
    chosen = {name: given.get(name) or usual.get(name, "") for name in filters}
    cursor, sort = given.get("after") or None, given.get("sort", "")
    try:
        answer = await api.page(path, {**usual, **chosen, "sort": sort, "after": cursor, "limit": limit})
    except Refused as refused:
        return ListPage([], chosen, refused=refused.problem, sort=sort, usual=usual)
    rows = answer.data if member is None else answer.data[member]
    query = {name: value for name, value in {**chosen, "sort": sort}.items() if value}
    following = None if answer.after is None else _address(request, {**query, "after": answer.after})
    first = None if cursor is None else _address(request, query)
    total = len(rows) if answer.after is None and cursor is None else answer.total
    return ListPage(rows, chosen, following, first, total, sort=sort, usual=usual, data=answer.data)


def _address(request: Request, query: dict[str, str]) -> str:
    return request.url.path + (f"?{urlencode(query)}" if query else "")
