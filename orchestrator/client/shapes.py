# SPDX-License-Identifier: Apache-2.0
"""Whether a server's answer is of the shape that the API describes (``generated/answers.json``): it is another program,
and may be of another version, or no server of ours at all."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

FILE: Final = Path(__file__).with_name("generated") / "answers.json"
Shape: TypeAlias = Any
"""``"string"``, ``"Vm"``; ``["Vm"]``: a list; ``{"*": …}``: an object of any members; ``{"any": […]}``: one of them."""
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
}  # fmt: skip


@cache
def _described() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))


def shape_of(method: str, target: str) -> Shape:
    """Of a good answer to this request; None: nothing is known of it."""
    path = target.partition("?")[0].split("/")
    for template, shape in _described()["routes"].get(method, {}).items():
        parts = template.split("/")
        if len(parts) == len(path) and all(a == b or a[:1] == "{" for a, b in zip(parts, path, strict=True)):
            return shape
    return None


def misfit(value: object, shape: Shape) -> str | None:
    """Where it is another, for people; None: nowhere. Members that are not described may be there."""
    if isinstance(shape, list):
        return _misfit_of_list(value, shape[0])
    if isinstance(shape, dict):
        return _misfit_of_object(value, shape)
    kinds = _TYPES.get(shape)
    if kinds is not None:
        return None if type(value) in kinds else f"no {shape}"
    return None if shape == "any" else _misfit_of_model(value, shape)


def _misfit_of_list(value: object, item: Shape) -> str | None:
    if not isinstance(value, list):
        return "no list"
    return next((why for part in value if (why := misfit(part, item)) is not None), None)


def _misfit_of_object(value: object, shape: dict[str, Shape]) -> str | None:
    if "any" in shape:
        reasons = [misfit(value, allowed) for allowed in shape["any"]]
        return None if None in reasons else reasons[0]
    if not isinstance(value, dict):
        return "no object"
    return next((why for part in value.values() if (why := misfit(part, shape["*"])) is not None), None)


def _misfit_of_model(value: object, name: str) -> str | None:
    if not isinstance(value, dict):
        return f"no object {name}"
    for member, shape in _described()["models"][name].items():
        if member not in value:
            return f"{name} without {member}"
        why = misfit(value[member], shape)
        if why is not None:
            return f"{member} of {name}: {why}"
    return None
