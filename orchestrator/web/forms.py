# SPDX-License-Identifier: Apache-2.0
"""What a browser's form says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from orchestrator.core.errors import InvalidInput, VgpuctlError
from orchestrator.web.api_calls import Refused

MAX_FORM_BYTES: Final = 192 * 1024
"""Keys and user data are the longest there is."""
MAX_FIELDS: Final = 100
_TYPE: Final = "application/x-www-form-urlencoded"


async def form_of(request: Request) -> Mapping[str, str]:
    """Its fields by name, without spaces around; each is there once.

    :raises Refused: ``form.invalid``, ``form.too_large``
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _TYPE:
        raise _invalid("the form is of another type than browsers send")
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MAX_FORM_BYTES:
                raise Refused.of(
                    InvalidInput("form.too_large", f"the form has over {MAX_FORM_BYTES} bytes", hint="send less"), 413
                )
    except ClientDisconnect as error:
        raise _invalid("the form did not come whole") from error
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError as error:
        raise _invalid("the form cannot be read") from error
    if len(dict(fields)) != len(fields):
        raise _invalid("a field of the form is there twice")
    return {name: value.strip() for name, value in fields}


def whole_number(form: Mapping[str, str], name: str) -> int | None:
    """None: left out. :raises Refused: ``form.invalid``"""
    text = form.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise _invalid(f"{name.replace('_', ' ')} is no whole number", "write digits alone, for example 4")
    return int(text)


def typed(parse: Callable[[str], int], text: str) -> int | None:
    """As the command line reads it; None: left out. :raises Refused: its own refusal of it"""
    try:
        return parse(text) if text else None
    except VgpuctlError as error:
        raise Refused.of(error) from error


def _invalid(why: str, hint: str = "open the page again and send its form") -> Refused:
    return Refused.of(InvalidInput("form.invalid", why, hint=hint))
