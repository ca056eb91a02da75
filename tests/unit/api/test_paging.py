# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi import Request, Response
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.api.paging import Paging, decode_cursor, encode_cursor
from orchestrator.core.errors import InvalidInput

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))  # what names may hold at all
KEYS = st.tuples(TEXTS, TEXTS)


def _paging(limit: int, after: str | None) -> tuple[Paging, Response]:
    response = Response()
    scope = {"type": "http", "path": "/v1/things", "query_string": b"colour=red", "headers": [], "method": "GET"}
    return Paging(Request(scope), response, limit, after), response


def _next_cursor(response: Response) -> str | None:
    link = response.headers.get("link")
    if link is None:
        return None
    assert link.endswith('; rel="next"')
    query = parse_qs(urlsplit(link[1:].partition(">")[0]).query)
    assert query["colour"] == ["red"]
    return query["after"][0]


@given(st.lists(KEYS, unique=True), st.integers(min_value=1, max_value=7))
def test_the_pages_together_are_the_whole_list_in_order(items: list[tuple[str, str]], limit: int) -> None:
    seen: list[tuple[str, str]] = []
    cursor = None
    while True:
        paging, response = _paging(limit, cursor)
        page = paging.cut(items, lambda item: item)
        assert len(page) <= limit
        seen += page
        cursor = _next_cursor(response)
        if cursor is None:
            break
    assert seen == sorted(items)


@given(st.lists(KEYS, min_size=2, unique=True), st.data())
def test_what_goes_between_two_pages_shifts_nothing(items: list[tuple[str, str]], data: st.DataObject) -> None:
    paging, response = _paging(1, None)
    first = paging.cut(items, lambda item: item)
    gone = data.draw(st.sampled_from(items))
    left = [item for item in items if item != gone]
    paging, _ = _paging(len(items), _next_cursor(response))
    assert first + paging.cut(left, lambda item: item) == sorted({*first, *left})


@given(KEYS)
def test_a_cursor_says_the_key_it_was_made_of(key: tuple[str, str]) -> None:
    assert decode_cursor(encode_cursor(key), 2) == key


@pytest.mark.parametrize(
    "forged",
    [
        "",
        "x",
        "*",
        "ä",
        "bnVsbA",
        "W10",
        "WyJhIl0",
        "WzEsMl0",
        "eyJhIjoxfQ",
        encode_cursor(("a", "b", "c")),
        "W1tb" * 200,
    ],
)
def test_a_forged_cursor_is_refused(forged: str) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        decode_cursor(forged, 2)
