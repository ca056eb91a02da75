# SPDX-License-Identifier: Apache-2.0
"""What the Python client's models are written from, cut from the API's description:
``python -m tools.api_description`` writes ``tools/api.json``.

A test compares it with what would be written now.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

from orchestrator.api.app import create_app
from orchestrator.api.limits import Activity
from orchestrator.api.services import Process
from tests.fakes.services import InMemory
from tools.client_code import DESCRIPTION, write_client
from tools.tree import ROOT

FILE: Final = ROOT / DESCRIPTION
_KEPT: Final = frozenset({
    "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items", "oneOf", "patternProperties",
    "propertyNames", "required", "type",
})  # fmt: skip
"""Of a schema, besides its properties: what models say."""


@cache
def description() -> dict[str, Any]:
    """The API's OpenAPI document, without the build that it is of."""
    document = create_app(
        InMemory().as_services(), Process(started_at=0, idle_seconds=None, activity=Activity())
    ).openapi()
    return {**document, "info": {**document["info"], "version": "0"}}


def kept() -> str:
    """``routes``: by method and path the schema of the good answer; ``schemas`` by name. A line for each and for each
    property."""
    document = description()
    routes: dict[str, dict[str, Any]] = {}
    for path, operations in sorted(document["paths"].items(), key=lambda pair: pair[0].count("{")):
        for verb, operation in operations.items():
            good: dict[str, Any] = next(
                (one for status, one in operation["responses"].items() if status.startswith("2")), {}
            )
            schema = good.get("content", {}).get("application/json", {}).get("schema")
            if schema and schema.get("type") != "null":
                routes.setdefault(verb.upper(), {})[path] = _cut(schema)
    schemas = {name: _cut(schema) for name, schema in document["components"]["schemas"].items()}
    return f'{{"routes": {_lines(routes, 2)},\n"schemas": {_lines(schemas, 3)}}}\n'


def _cut(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_cut(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    members = {key: value if key == "required" else _cut(value) for key, value in schema.items() if key in _KEPT}
    if "properties" in schema:
        members["properties"] = {key: _cut(one) for key, one in schema["properties"].items()}
    return members


def _lines(value: Any, deep: int) -> str:
    """JSON with a line for each member so deep."""
    if deep == 0 or not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_lines(one, deep - 1)}" for key, one in value.items()) + "}"


def main() -> None:
    FILE.write_text(kept(), encoding="utf-8")
    write_client()


if __name__ == "__main__":
    main()
