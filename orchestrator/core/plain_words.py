# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a value, in our words: those of the library that checks it mean nothing to who typed it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LINE_PATTERN: Final = (
    r"^[^\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]*$"
)
"""Of every text that people write freely, in the API and in files: a line without characters that control a terminal,
turn the direction of writing or cannot be seen. In a spelling that pydantic, Python and ECMAScript read alike."""
_UNSEEN: Final = "has a character that cannot be seen"
_WORDS: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "extra_forbidden": "there is no such field",
    "string_type": "is no text",
    "int_type": "is no whole number",
    "int_parsing": "is no whole number",
    "int_from_float": "is no whole number",
    "float_type": "is no number",
    "float_parsing": "is no number",
    "finite_number": "is no finite number",
    "bool_type": "is neither true nor false",
    "bool_parsing": "is neither true nor false",
    "list_type": "is no list",
    "tuple_type": "is no list",
    "dict_type": "is no list of KEY: VALUE",
    "mapping_type": "is no list of KEY: VALUE",
    "model_type": "is no list of KEY: VALUE",
    "model_attributes_type": "is no list of KEY: VALUE",
    "string_pattern_mismatch": "is not of the form {pattern}",
    "string_too_long": "is longer than {max_length} characters",
    "string_too_short": "is shorter than {min_length} characters",
    "too_long": "has more than {max_length} entries",
    "too_short": "has fewer than {min_length} entries",
    "greater_than_equal": "is less than {ge}",
    "greater_than": "is not more than {gt}",
    "less_than_equal": "is more than {le}",
    "less_than": "is not less than {lt}",
    "literal_error": "is not {expected}",
    "enum": "is not {expected}",
}
"""By pydantic's name of a mistake; it fills in the bounds."""
_PREFIX: Final = "value error, "


def in_plain_words(kind: str, message: str, bounds: Mapping[str, Any]) -> str:
    """What follows the name of the field. ``message``: the library's, for what has no words of ours."""
    if bounds.get("pattern") == LINE_PATTERN:
        return _UNSEEN
    if kind == "string_too_short" and bounds.get("min_length") == 1:
        return "is empty"
    if kind in _WORDS:
        whole = {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in bounds.items()
        }
        return _WORDS[kind].format_map(whole)
    return (message[:1].lower() + message[1:]).removeprefix(_PREFIX)
