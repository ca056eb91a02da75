# SPDX-License-Identifier: Apache-2.0
"""JSON that others wrote, and the texts in it."""

from __future__ import annotations

import json


def parse_json(text: str | bytes) -> object:
    """:raises ValueError: it is no JSON, or nested too deeply to be read"""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def unstorable(value: object) -> str | None:
    """The first text in it that no database keeps, names of members too: one with NUL or half a character
    (a lone surrogate). None: there is none."""
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, str):
            if "\0" in part or not _is_whole(part):
                return part
        elif isinstance(part, dict):
            left += [*part, *part.values()]
        elif isinstance(part, list):
            left += part
    return None


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
