# SPDX-License-Identifier: Apache-2.0
"""Which field of a form was probably meant by a name that is none."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from orchestrator.core.names import closest


def nearest_field(form: type[BaseModel], place: Sequence[str | int]) -> str | None:
    """``place``: of a mistake, as pydantic tells it. None: no field there is spelt alike."""
    kinds: list[object] = [form]
    for part in place[:-1]:
        # a name that is no field is that of one form of several, which pydantic puts between
        kinds = [inner for kind in kinds for inner in _inside(kind, part)] or kinds
    known = [name for kind in kinds if _is_form(kind) for name in _fields(kind)]
    return next(iter(closest(str(place[-1]), known)), None)


def _inside(kind: Any, part: str | int) -> Iterator[object]:
    if _is_form(kind):
        if part in (fields := _fields(kind)):
            yield from _alternatives(fields[str(part)])
    elif get_args(kind) and (isinstance(part, int) or get_origin(kind) is dict):
        yield from _alternatives(next(argument for argument in reversed(get_args(kind)) if argument is not Ellipsis))


def _alternatives(kind: Any) -> Iterator[object]:
    if get_origin(kind) is Annotated:
        yield from _alternatives(get_args(kind)[0])
    elif get_origin(kind) in {Union, types.UnionType}:
        yield from (inner for argument in get_args(kind) for inner in _alternatives(argument))
    else:
        yield kind


def _is_form(kind: Any) -> bool:
    return isinstance(kind, type) and get_origin(kind) is None and issubclass(kind, BaseModel)


def _fields(form: Any) -> dict[str, object]:
    return {field.alias or name: field.annotation for name, field in form.model_fields.items()}
