# SPDX-License-Identifier: Apache-2.0
"""Lists in pages: a bound on their length, and a cursor for the rest in the ``Link`` header (RFC 8288).

A cursor is the key of the last object that was answered. It says where to go on in what the caller
may see anyway, so a forged one reveals nothing, and objects that come and go do not shift the pages.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel

from orchestrator.api.schemas.base import MAX_NAME
from orchestrator.core.errors import InvalidInput
from orchestrator.core.foreign_json import parse_json, unstorable

DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 10_000
MAX_CURSOR: Final = 1024
TOTAL: Final = "x-total-count"
"""The header that says how many objects all pages have."""
_SEQUENCE: Final = re.compile("[1-9][0-9]{0,17}", re.ASCII)

Key = tuple[str, ...]
Item = TypeVar("Item")
Answer = TypeVar("Answer", bound=BaseModel)


def encode_cursor(key: Key) -> str:
    """Text for a URL."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def decode_cursor(text: str, parts: int | None) -> Key:
    """``parts`` None: as many as it has. :raises InvalidInput: ``request.cursor``"""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        key = parse_json(base64.b64decode(padded, altchars=b"-_", validate=True))
    except ValueError:
        key = None
    if (
        not isinstance(key, list)
        or unstorable(key) is not None
        or (parts is not None and len(key) != parts)
        or not all(isinstance(part, str) for part in key)
    ):
        raise _forged()
    return tuple(key)


def sequence_of(part: str) -> int:
    """The number that a cursor's part is. :raises InvalidInput: ``request.cursor``"""
    if _SEQUENCE.fullmatch(part) is None:
        raise _forged()
    return int(part)


def counted_of(part: str) -> int:
    """The number, 0 too, that a cursor's part is. :raises InvalidInput: ``request.cursor``"""
    return 0 if part == "0" else sequence_of(part)


def moment_of(part: str) -> float:
    """Seconds since 1970 that a cursor's part is. :raises InvalidInput: ``request.cursor``"""
    try:
        return float(part)
    except ValueError:
        raise _forged() from None


def _forged() -> InvalidInput:
    return InvalidInput("request.cursor", "the cursor is none of ours", hint="take it from the answer's Link header")


class Paging:
    """What a request says about its page, and the place to say where the next one is."""

    def __init__(
        self, request: Request, response: Response, limit: int, after: str | None, sort: str | None = None
    ) -> None:
        self._request = request
        self._response = response
        self.limit = limit
        self.sort = sort
        self._after = after

    def after(self, parts: int | None) -> Key | None:
        """The decoded cursor. :raises InvalidInput: ``request.cursor``"""
        return None if self._after is None else decode_cursor(self._after, parts)

    def cut(self, items: Iterable[Item], key: Callable[[Item], Key]) -> list[Item]:
        """This page of all items, by key."""
        ordered = sorted(items, key=key)
        after = self.after(len(key(ordered[0])) if ordered else None)
        rest = [item for item in ordered if after is None or key(item) > after]
        return self.page(rest, key)

    def arranged(
        self, items: Iterable[Item], key: Callable[[Item], Key], members: Mapping[str, Callable[[Item], Any]]
    ) -> list[Item]:
        """This page of all items, by the one of ``members`` that the request names, then by key.

        :raises InvalidInput: ``request.sort``"""
        if self.sort is None:
            return self.cut(items, key)
        member = members[self.sort_name(members)]
        keyed = sorted(((_sortable(member(item)), *key(item)), at, item) for at, item in enumerate(items))
        if backwards := self.sort.startswith("-"):
            keyed.reverse()
        after = self.after(len(keyed[0][0]) if keyed else None)
        rest = [row for row in keyed if after is None or (row[0] < after if backwards else row[0] > after)]
        return [item for _, _, item in self.page(rest, lambda row: row[0], lambda: len(keyed))]

    def answers(
        self, of: type[Answer], items: Iterable[Item], key: Callable[[Item], Key], answer: Callable[[Item], Answer]
    ) -> list[Answer]:
        """This page of a list that is short, by any member of its answers. :raises InvalidInput: ``request.sort``"""
        if self.sort is None:
            return [answer(item) for item in self.cut(items, key)]
        pairs = [(key(item), answer(item)) for item in items]
        members = {name: lambda pair, name=name: getattr(pair[1], name) for name in of.model_fields}
        return [answered for _, answered in self.arranged(pairs, lambda pair: pair[0], members)]

    def sort_name(self, names: Iterable[str]) -> str:
        """The member that is sorted by, of these. :raises InvalidInput: ``request.sort``"""
        name = (self.sort or "").removeprefix("-")
        if name not in names:
            hint = f"one of {', '.join(names)}; -NAME: the other way round"
            raise InvalidInput("request.sort", f"nothing here is sorted by {name[:40]!a}", hint=hint)
        return name

    def first(self, ordered: list[Item]) -> list[Item]:
        """The only page of a list whose order changes all the time. :raises InvalidInput: ``request.cursor``"""
        if self._after is not None:
            raise _forged()
        if len(ordered) > self.limit:
            self._response.headers[TOTAL] = str(len(ordered))
        return ordered[: self.limit]

    def page(
        self, items: list[Item], key: Callable[[Item], Key], how_many: Callable[[], int] | None = None
    ) -> list[Item]:
        """The first ``limit`` of items that begin where this page begins, and a link when there are more. ``how_many``:
        are on all pages together; it is asked, and told in a header, when there are more."""
        shown = items[: self.limit]
        if len(items) > self.limit:
            if how_many is not None:
                self._response.headers[TOTAL] = str(how_many())
            others = [(name, value) for name, value in self._request.query_params.multi_items() if name != "after"]
            query = urlencode([*others, ("after", encode_cursor(key(shown[-1])))])
            self._response.headers["link"] = f'<{self._request.url.path}?{query}>; rel="next"'
        return shown

    def answer(self, page: Iterable[bytes]) -> Response:
        """The page of objects that are JSON already: FastAPI would make and check a model of every one."""
        return Response(b"[%b]" % b",".join(page), media_type="application/json", headers=self._response.headers)


async def _paging(
    request: Request,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="At most so many")] = DEFAULT_LIMIT,
    after: Annotated[str | None, Query(max_length=MAX_CURSOR, description="Cursor from a Link header")] = None,
) -> Paging:
    return Paging(request, response, limit, after)


_Sort = Annotated[str | None, Query(max_length=MAX_NAME, description="By this member, -MEMBER: the other way round")]


async def _sorted_paging(
    paging: Annotated[Paging, Depends(_paging)],
    sort: _Sort = None,
) -> Paging:
    paging.sort = sort
    return paging


async def _sorted(request: Request, response: Response, sort: _Sort = None) -> Paging:
    return Paging(request, response, MAX_LIMIT, None, sort)


def _sortable(value: object) -> str:
    """A text in whose order such values are; what there is not stands first."""
    if isinstance(value, (int, float)):
        return f"{value:030.6f}"
    if isinstance(value, datetime):
        return _sortable(value.timestamp())
    return "" if value is None else str(value).casefold()


PagingOf = Annotated[Paging, Depends(_paging)]
SortedPagingOf = Annotated[Paging, Depends(_sorted_paging)]
SortedOf = Annotated[Paging, Depends(_sorted)]
"""Of a list of one page."""
