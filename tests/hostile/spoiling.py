# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests with a bad text in each place where they have one."""

from __future__ import annotations

from collections.abc import Iterator


def spoilt(value: object, text: str) -> Iterator[object]:
    """The value with the text in place of each of its texts, and as the name of a member of each of its objects."""
    if isinstance(value, str):
        yield text
    elif isinstance(value, list):
        for at, part in enumerate(value):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in spoilt(part, text))
    elif isinstance(value, dict):
        yield value | {text: 1}
        for name, part in value.items():
            yield from (value | {name: other} for other in spoilt(part, text))
