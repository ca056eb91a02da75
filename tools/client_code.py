# SPDX-License-Identifier: Apache-2.0
"""Parts of the Python client that are written by a program: ``python -m tools.client_code``.

``models.py`` and ``answers.json`` are written from the API's description; ``async_*.py`` from the files without
that, each call with ``await``.
A test compares both with what would be written now.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from orchestrator.api.app import create_app
from orchestrator.api.limits import Activity
from orchestrator.api.services import Process
from orchestrator.client.shapes import PROBLEM
from tests.fakes.services import InMemory
from tools.tree import ROOT

CLIENT: Final = ROOT / "orchestrator/client"
_LICENCE: Final = "# SPDX-License-Identifier: Apache-2.0\n"
_OPTIONS: Final = (
    "--input-file-type=openapi",
    "--output-model-type=typing.TypedDict",
    "--target-python-version=3.11",
    "--disable-timestamp",
    "--use-schema-description",
    "--use-field-description",
    "--use-standard-collections",
    "--use-union-operator",
    "--enum-field-as-literal=all",
)
_MODELS_SAY: Final = '"""Bodies of the API, written from its description by ``make docs``."""\n'
_ASYNC_SAY: Final = "Calls of the API as coroutines, written from {} by ``make docs``."


@cache
def description() -> dict[str, Any]:
    """The API's OpenAPI document, without the build that it is of."""
    document = create_app(
        InMemory().as_services(), Process(started_at=0, idle_seconds=None, activity=Activity())
    ).openapi()
    return {**document, "info": {**document["info"], "version": "0"}}


def description_of(name: str) -> dict[str, Any]:
    """A schema."""
    found: dict[str, Any] = description()["components"]["schemas"][name]
    return found


def models() -> str:
    """``models.py``: a TypedDict for each schema. Servers that are newer may say more than these."""
    with TemporaryDirectory() as directory:
        source, target = Path(directory) / "openapi.json", Path(directory) / "models.py"
        source.write_text(json.dumps(description()))
        program = [sys.executable, "-m", "datamodel_code_generator", "--input", str(source), "--output", str(target)]
        subprocess.run([*program, *_OPTIONS], check=True, capture_output=True, timeout=300)
        lines = [
            line for line in target.read_text().splitlines() if not line.startswith(("#", "from typing_extensions"))
        ]
    text = re.sub(r",\s*closed=True", "", "\n".join(lines))  # not before Python 3.15
    text = text.replace("from typing import ", "from typing import TypedDict, ", 1)
    return _formatted(f"{_LICENCE}{_MODELS_SAY}{text}\n")


def answers() -> str:
    """``answers.json``: of which shape each answer is (orchestrator/client/shapes.py), a line for each."""
    document = description()
    routes: dict[str, dict[str, Any]] = {}
    for path, operations in sorted(document["paths"].items(), key=lambda pair: pair[0].count("{")):
        for verb, operation in operations.items():
            told = operation["responses"].items()
            good: dict[str, Any] = next((answer for status, answer in told if status.startswith("2")), {})
            schema = good.get("content", {}).get("application/json", {}).get("schema")
            if schema and (shape := _shape(schema)) != "null":
                routes.setdefault(verb.upper(), {})[path] = shape
    schemas = document["components"]["schemas"]
    models: dict[str, Any] = {}
    left = {*re.findall(r'"([A-Z]\w+)"', json.dumps([list(one.values()) for one in routes.values()])), PROBLEM}
    while left:
        name = left.pop()
        required, members = schemas[name].get("required", ()), schemas[name]["properties"]
        models[name] = {key: _shape(one) for key, one in members.items() if key in required}
        left |= {*re.findall(r'"([A-Z]\w+)"', json.dumps(list(models[name].values())))} - models.keys()
    lines = [_json_lines(routes[method]) for method in routes]
    models["Server"] = {"version": "string"}  # servers of all versions are asked for theirs
    written = ",\n".join(f"{json.dumps(method)}: {text}" for method, text in zip(routes, lines, strict=True))
    return f'{{"routes": {{{written}}},\n"models": {_json_lines(dict(sorted(models.items())))}}}\n'


def _json_lines(members: dict[str, Any]) -> str:
    return "{" + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in members.items()) + "}"


def _shape(schema: dict[str, Any]) -> Any:
    """Of a value, as the client's shapes.py reads it."""
    if "$ref" in schema:
        target = description_of(schema["$ref"].rpartition("/")[2])
        return schema["$ref"].rpartition("/")[2] if "properties" in target else _shape(target)
    if "anyOf" in schema or "oneOf" in schema:
        return {"any": [_shape(one) for one in schema.get("anyOf") or schema["oneOf"]]}
    kind = schema.get("type", "any")
    if kind == "array":
        return [_shape(schema.get("items", {}))]
    if kind == "object":
        more = schema.get("additionalProperties", {})
        return {"*": _shape(more if isinstance(more, dict) else {})}
    return kind


class _Async(ast.NodeTransformer):
    """Methods become coroutines, and what they call on ``self`` is awaited."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name == "__init__":
            return node
        self.generic_visit(node)
        names = {"__enter__": "__aenter__", "__exit__": "__aexit__"}
        changed = ast.AsyncFunctionDef(**{key: getattr(node, key) for key in node._fields})
        changed.name = names.get(node.name, node.name)
        return ast.copy_location(changed, node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return ast.Await(node) if ast.unparse(node.func).startswith("self.") else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.YieldFrom):
            return ast.parse(f"for one in {ast.unparse(node.value.value)}:\n    yield one").body[0]
        return node


def awaited(name: str) -> str:
    """A file of the client with coroutines for methods."""
    tree = ast.parse((CLIENT / name).read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            _Async().visit(node)
    text = ast.unparse(ast.fix_missing_locations(tree))
    text = text.replace("Iterator", "AsyncIterator").replace("class Client", "class AsyncClient")
    text = text.replace("SiteCalls", "AsyncSiteCalls").replace("client.site_calls", "client.async_site_calls")
    text = text.replace(":class:`Client", ":class:`AsyncClient").replace(":meth:`Client", ":meth:`AsyncClient")
    text = text.replace("orchestrator.client.connection import Connection, ", "orchestrator.client.connection import ")
    text = text.replace("connection: Connection", "connection: AsyncConnection")
    text = text.replace(
        "if TYPE_CHECKING:\n",
        "if TYPE_CHECKING:\n    from orchestrator.client.async_connection import AsyncConnection\n",
    )
    body = text[text.index("from __future__") :]
    return _formatted(f'{_LICENCE}"""{_ASYNC_SAY.format(name)}"""\n\n{body}\n')


def _formatted(text: str) -> str:
    for words in (["check", "--fix", "--select=I,UP,F401", "--quiet"], ["format", "--quiet"]):
        program = [sys.executable, "-m", "ruff", *words, "--stdin-filename", str(CLIENT / "written.py"), "-"]
        done = subprocess.run(program, input=text, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT)
        text = done.stdout
    return text


WRITTEN: Final[Mapping[str, Callable[[], str]]] = {
    "models.py": models,
    "answers.json": answers,
    "async_client.py": partial(awaited, "client.py"),
    "async_site_calls.py": partial(awaited, "site_calls.py"),
}
"""What is written into each file of the client."""


def main() -> None:
    for name, write in WRITTEN.items():
        (CLIENT / name).write_text(write())


if __name__ == "__main__":
    main()
