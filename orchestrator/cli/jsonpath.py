# SPDX-License-Identifier: Apache-2.0
"""``-o jsonpath=…``: members of an answer, one value a line: ``.name``, ``.devices[0].gpu``, ``[*].host``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.core.errors import InvalidInput

_PART: Final = re.compile(r"\.(?P<member>[A-Za-z0-9_-]+)|\.?\[(?P<index>-?[0-9]{1,9}|\*)\]|\['(?P<quoted>[^']+)'\]")
_EVERY: Final = "*"

Part = str | int
"""A member's name, a number in a list, or ``*`` for all."""


def parse_path(text: str) -> tuple[Part, ...]:
    """Braces and a ``$`` around it mean nothing, as kubectl writes them; nor does a dot before ``[``, as jq does.

    :raises InvalidInput: ``cli.jsonpath``
    """
    bare = text.strip().removeprefix("{").removesuffix("}").strip().removeprefix("$")
    parts: list[Part] = []
    at = 0
    while at < len(bare):
        match = _PART.match(bare, at)
        if match is None:
            raise InvalidInput(
                "cli.jsonpath", f"{ascii(text)[:60]} is no path", hint="for example .name, .devices[0].gpu or [*].host"
            )
        index = match["index"]
        parts.append(match["member"] or match["quoted"] or (index if index == _EVERY else int(index)))
        at = match.end()
    return tuple(parts)


def values_at(data: object, parts: tuple[Part, ...]) -> Iterator[str]:
    """As text, those that are not text as JSON. A list is gone through where a member is asked for.

    :raises InvalidInput: ``cli.jsonpath``: there is no such member
    """
    if not parts:
        yield data if isinstance(data, str) else json.dumps(data)
        return
    part, rest = parts[0], parts[1:]
    if isinstance(data, list):
        if isinstance(part, int):
            if -len(data) <= part < len(data):
                yield from values_at(data[part], rest)
            return
        for item in data:
            yield from values_at(item, rest if part == _EVERY else parts)
    elif isinstance(data, Mapping) and part == _EVERY:
        for item in data.values():
            yield from values_at(item, rest)
    elif isinstance(data, Mapping) and part in data:
        yield from values_at(data[part], rest)
    elif data is not None:
        known = ", ".join(map(str, data)) if isinstance(data, Mapping) else "nothing below it"
        raise InvalidInput("cli.jsonpath", f"there is no {ascii(part)[:40]} there", hint=f"there is: {known}")
