# SPDX-License-Identifier: Apache-2.0
"""Answers of a bad host to ``observe``, made from a good one: every field of every kind gets every bad value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import Any

from tests.hostile.bad_agent import Answer, answering, framed, refusing

DEEP = 100_000

BAD_TEXTS = {
    "a lone surrogate": "\ud800",
    "a NUL": "a\0b",
    "a megabyte": "x" * 1_000_000,
    "a terminal's code": "\x1b[2J\x1b]0;owned\x07",
    "lines": "a\nhost: ready\r\n",
    "text that turns round": "\u202egnp.exe",
    "markup": "<script>alert(1)</script>'\";--",
    "a path": "../../../../etc/shadow",
    "a template": "{{ lookup('pipe','id') }} ${jndi:ldap://a/b} %s%n",
}
BAD_NUMBERS: dict[str, object] = {
    "beyond int64": 2**63,
    "far beyond": 10**4000,
    "below": -(2**63) - 1,
    "negative": -1,
    "a fraction": 1.5,
    "truth": True,
}
WRONG: dict[str, object] = {"nothing": None, "a list": [[]], "an object": {"a": {}}, "text": "7", "a number": 7}

WHOLE: dict[str, bytes] = {
    "nested lists": b"[" * DEEP + b"]" * DEEP,
    "nested objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "nested lists that never end": b"[" * DEEP,
    "NaN": b"NaN",
    "infinity": b"1e999",
    "a number of 5,000 digits": b"9" * 5000,
    "bytes that are no UTF-8": b'"\xff\xfe"',
    "UTF-16": '{"id":1}'.encode("utf-16"),
    "an empty body": b"",
    "a list": b"[1,2]",
    "a surrogate in a name": b'{"\\udc00":1}',
    "a NUL in a name": b'{"\\u0000":1}',
}


def whole() -> Iterator[tuple[str, Answer]]:
    """Frames that are bad before anything is known of their fields."""
    for name, text in WHOLE.items():
        yield name, partial(_as_it_stands, framed(text))
        yield f"{name} as result", answering(text.decode("utf-8", "surrogateescape"))
        yield f"{name} as error", refusing(text.decode("utf-8", "surrogateescape"))
        message = f'{{"code":{text.decode("utf-8", "replace")},"family":"world_fatal","message":"m"}}'
        yield f"{name} as an error's code", refusing(message)
    yield "a length without a body", lambda _number: b"\x00\x00\x00\x05"
    yield "half a length", lambda _number: b"\x00\x00"
    yield "four gigabytes", lambda _number: b"\xff\xff\xff\xff" + b"x" * 64
    yield "64 MiB", lambda _number: framed(b" " * 64 * 1024 * 1024)
    yield "nothing at all", lambda _number: b""
    yield "the answer to another question", lambda number: framed(f'{{"id":{number + 1},"result":{{}}}}'.encode())
    yield "the number as text", lambda number: framed(f'{{"id":"{number}","result":{{}}}}'.encode())
    yield "result and error", lambda number: framed(f'{{"id":{number},"result":{{}},"error":{{}}}}'.encode())


def _as_it_stands(answer: bytes, _number: int) -> bytes:
    return answer


def errors() -> Iterator[tuple[str, Answer]]:
    """Errors with every field bad."""
    good = {"family": "world_fatal", "code": "host.failed", "message": "m", "hint": "h", "details": "d", "reasons": []}
    for field in good:
        for name, value in (BAD_TEXTS | WRONG | BAD_NUMBERS).items():
            yield f"error with {name} as {field}", refusing(json.dumps({**good, field: value}))
    for family in ("bug", "stuck", "denied", "not_found", "invalid_input", "no_such_family"):
        yield f"error of family {family}", refusing(json.dumps({**good, "family": family}))
    many = [{"code": "a.b", "message": "m" * 1000, "subjects": ["s" * 1000] * 100, "count": 2**62}] * 100
    yield "error with many reasons", refusing(json.dumps({**good, "reasons": many}))


def snapshots(good: dict[str, Any]) -> Iterator[tuple[str, Answer]]:
    """The good snapshot with one value changed, everywhere; ``good``: as JSON."""
    for place in _places(good):
        old = _at(good, place)
        values = BAD_TEXTS if isinstance(old, str) else BAD_NUMBERS if isinstance(old, int) else {}
        for name, value in (values | WRONG).items():
            yield f"{'.'.join(map(str, place))}: {name}", answering(json.dumps(_with(good, place, value)))
        if isinstance(old, list) and old:
            yield f"{'.'.join(map(str, place))}: twice", answering(json.dumps(_with(good, place, old * 2)))
        yield f"{'.'.join(map(str, place))}: left out", answering(json.dumps(_without(good, place)))


def _places(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value[:1]))
    for name, below in items:
        yield (*above, name)
        yield from _places(below, (*above, name))


def _at(document: Any, place: tuple[str | int, ...]) -> Any:
    for name in place:
        document = document[name]
    return document


def _with(good: dict[str, Any], place: tuple[str | int, ...], value: object) -> dict[str, Any]:
    changed = deepcopy(good)
    _at(changed, place[:-1])[place[-1]] = value
    return changed


def _without(good: dict[str, Any], place: tuple[str | int, ...]) -> dict[str, Any]:
    changed = deepcopy(good)
    del _at(changed, place[:-1])[place[-1]]
    return changed
