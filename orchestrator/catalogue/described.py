# SPDX-License-Identifier: Apache-2.0
"""Models whose fields are described by the docstrings below them, or below the field of the core that they copy.

The source is read when a JSON schema is asked for, not when a model is made: reading it takes every command's time.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, ClassVar, Final, get_type_hints

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema

_NONE: Final = re.compile(r"\bNone\b")


class Described(BaseModel):
    """Its JSON schema has the docstrings of its fields."""

    copied_from: ClassVar[tuple[type, ...]] = ()
    """Classes of the core with fields of the same names, whose docstrings hold where the model has none."""

    example: ClassVar[Mapping[str, object] | None] = None
    """For readers of the API's description."""

    def __init_subclass__(
        cls, *, copies: type[Any] | None = None, without: Collection[str] = (), defaults: bool = False,
        example: Mapping[str, object] | None = None, **config: Any,
    ) -> None:  # fmt: skip
        """``copies``: a dataclass of the core whose fields the model has too, but for those of ``without`` and those
        that it writes itself; with ``defaults`` they may be left out where the core lets them be."""
        super().__init_subclass__(**config)
        cls.example = example
        if copies is None:
            return
        cls.copied_from = (copies, *cls.copied_from)
        own, types = inspect.get_annotations(cls), get_type_hints(copies)
        copied = [member for member in fields(copies) if member.name not in without]
        cls.__annotations__ = {member.name: types[member.name] for member in copied} | own
        for member in copied:
            if defaults and member.name not in own and member.default is not MISSING:
                setattr(cls, member.name, member.default)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core_schema)
        whole = handler.resolve_ref_schema(schema)
        if cls.example is not None:
            whole["examples"] = [cls.example]
        properties = whole.get("properties", {})
        docs = field_docs(cls)
        for name, info in cls.model_fields.items():
            if name in docs and (key := info.alias or name) in properties:
                properties[key].setdefault("description", docs[name])
        return schema


class StrictForm(Described):
    """What people write: ``"4"`` is not a number and a misspelt field is a mistake."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


@cache
def field_docs(cls: type[Described]) -> Mapping[str, str]:
    """Docstrings by field, without the full stop and with JSON's word for None; those of the model go before
    those of the core."""
    docs = {name: text for source in (*cls.copied_from, cls) for name, text in docs_in(source).items()}
    return {name: _NONE.sub("null", text) for name, text in docs.items()}


def docs_in(cls: type) -> Mapping[str, str]:
    """Docstrings by field of a class and of those that it is derived from."""
    return {name: text for base in reversed(cls.__mro__) for name, text in _own_docs(base).items()}


def _own_docs(cls: type) -> Mapping[str, str]:
    return _docs_of_module(cls.__module__).get(cls.__name__, {}) if cls.__module__.startswith("orchestrator.") else {}


@cache
def _docs_of_module(module: str) -> Mapping[str, Mapping[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: dict(_docs_in(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _docs_in(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement, after in zip(node.body, node.body[1:], strict=False):
        match statement, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split()).removesuffix(".")
