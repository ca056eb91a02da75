# SPDX-License-Identifier: Apache-2.0
"""Writes the parts of the Python client that other files say already: ``python tools/client_code.py``.

``models.py`` and ``answers.json`` come from ``tools/api.json``, which ``make docs`` cuts from the API's description;
``async_*.py`` from the files without that, each call with ``await``. Nothing but the standard library is needed, as a
package is built where nothing of ours is installed (packages/hatch_build.py).
"""

from __future__ import annotations

import ast
import json
import keyword
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
GENERATED: Final = "orchestrator/client/generated"
"""Git ignores it."""
AWAITED: Final = {
    "client": "Client", "connection": "Connection", "disk_calls": "DiskCalls", "health_calls": "HealthCalls",
    "site_calls": "SiteCalls",
}  # fmt: skip
"""Modules of the client and the class of each that is written again with coroutines."""
DESCRIPTION: Final = "tools/api.json"
_HEAD: Final = '# SPDX-License-Identifier: Apache-2.0\n"""{}, written by tools/client_code.py."""\n\n'
_TYPES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_REFERENCE: Final = re.compile(r'"#/components/schemas/(\w+)"')


def write_client(root: Path = ROOT) -> None:
    """Into the tree; a file that is so already stays."""
    described = json.loads((root / DESCRIPTION).read_text(encoding="utf-8"))
    client, target = root / "orchestrator/client", root / GENERATED
    target.mkdir(exist_ok=True)
    for name, text in {
        "__init__.py": _HEAD.format("What other files of the client say already"),
        "models.py": models(described["schemas"]),
        "answers.json": json.dumps(answers(described)),
        **{f"async_{name}.py": awaited(name, (client / f"{name}.py").read_text(encoding="utf-8")) for name in AWAITED},
    }.items():
        file = target / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            made = target / f".{name}.{os.getpid()}"
            made.write_text(text, encoding="utf-8")
            made.replace(file)


def models(schemas: Mapping[str, Any]) -> str:
    """``models.py``: a TypedDict for each schema of an object. Servers that are newer may say more than these."""
    written = [text for name, schema in schemas.items() for text in _model(name, schema)]
    imports = (
        "from __future__ import annotations\n\nfrom typing import Any, Literal, NotRequired, TypeAlias, TypedDict\n"
    )
    return _HEAD.format("Bodies of the API") + "\n\n".join([imports, *written])


def _model(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if "properties" not in schema:
        yield f"{name}: TypeAlias = {_type(schema)!r}\n"
        return
    needed = schema.get("required", ())
    types = {key: _type(one) for key, one in schema["properties"].items()}
    types = {key: text if key in needed else f"NotRequired[{text}]" for key, text in types.items()}
    if any(keyword.iskeyword(key) or not key.isidentifier() for key in types):
        yield f"{name} = TypedDict({name!r}, {types})\n{_said(schema)}\n"
        return
    lines = [f"    {key}: {text}\n    {_said(schema['properties'][key])}\n" for key, text in types.items()]
    yield f"class {name}(TypedDict):\n    {_said(schema)}\n\n{''.join(lines)}"


def _said(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema.get("description", ""), ensure_ascii=False)


def _type(schema: Mapping[str, Any]) -> str:
    """As annotations write it."""
    if "$ref" in schema:
        return _name(schema)
    if "enum" in schema or "const" in schema:
        return f"Literal[{', '.join(map(repr, schema.get('enum', [schema.get('const')])))}]"
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(map(_type, several)))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list[{_type(schema.get('items', {}))}]"
    if kind == "object":
        values = next(iter(schema.get("patternProperties", {}).values()), _of_members(schema))
        return f"dict[{_type(schema.get('propertyNames', {'type': 'string'}))}, {_type(values)}]"
    return _TYPES.get(kind, "Any")


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _of_members(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    more = schema.get("additionalProperties", {})
    return more if isinstance(more, dict) else {}


def answers(described: Mapping[str, Any]) -> dict[str, Any]:
    """``answers.json``: of which shape each answer is, as orchestrator/client/shapes.py reads it."""
    schemas, routes = described["schemas"], described["routes"]
    shapes = {verb: {path: _shape(one, schemas) for path, one in paths.items()} for verb, paths in routes.items()}
    models: dict[str, Any] = {}
    left = {"Problem", *_REFERENCE.findall(json.dumps(routes))}
    while left:
        schema = schemas[name := left.pop()]
        needed = {key: schema["properties"][key] for key in schema.get("required", ())}
        models[name] = {key: _shape(one, schemas) for key, one in needed.items()}
        left |= {one for one in _REFERENCE.findall(json.dumps(needed)) if "properties" in schemas[one]} - models.keys()
    models["Server"] = {"version": "string"}  # servers of all versions are asked for theirs
    return {"routes": shapes, "models": dict(sorted(models.items()))}


def _shape(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    if "$ref" in schema:
        target = schemas[_name(schema)]
        return _name(schema) if "properties" in target else _shape(target, schemas)
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return {"any": [_shape(one, schemas) for one in several]}
    kind = schema.get("type", "any")
    if kind == "array":
        return [_shape(schema.get("items", {}), schemas)]
    return {"*": _shape(_of_members(schema), schemas)} if kind == "object" else kind


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


_IMPORT: Final = "from orchestrator.client."
_RENAMED: Final = {
    f"{_IMPORT}connection import Connection": f"{_IMPORT}generated.async_connection import AsyncConnection",
    f"{_IMPORT}http import Http,": f"{_IMPORT}async_http import AsyncHttp\n{_IMPORT}http import",
    f"{_IMPORT}health_calls import HealthCalls": f"{_IMPORT}generated.async_health_calls import AsyncHealthCalls",
    "site_calls import SiteCalls": "generated.async_site_calls import AsyncSiteCalls",
    "import Body, DiskCalls": f"import Body\n{_IMPORT}generated.async_disk_calls import AsyncDiskCalls",
    "Iterator": "AsyncIterator",
    "class Client(HealthCalls)": "class AsyncClient(AsyncHealthCalls)",
    "class HealthCalls(SiteCalls)": "class AsyncHealthCalls(AsyncSiteCalls)",
    "class Connection": "class AsyncConnection",
    "class SiteCalls(DiskCalls)": "class AsyncSiteCalls(AsyncDiskCalls)",
    "class DiskCalls": "class AsyncDiskCalls",
    ":class:`Client": ":class:`AsyncClient",
    ":meth:`Client": ":meth:`AsyncClient",
    "connection: Connection": "connection: AsyncConnection",
    "http: Http": "http: AsyncHttp",
    "time.sleep(": "await asyncio.sleep(",
    "content.digest()": "await asyncio.to_thread(content.digest)",
}
"""Texts of the file → what they become, in this order."""


def awaited(module: str, text: str) -> str:
    """The class of a module of the client with coroutines for methods; all else of it is imported."""
    tree = ast.parse(text)
    (written,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == AWAITED[module])
    used = {node.id for node in ast.walk(written) if isinstance(node, ast.Name)}
    imported = sorted(used & {name for node in tree.body if node is not written for name in _defined(node)})
    _Async().visit(written)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.If)]
    tree.body = [*imports, written]
    text = ast.unparse(ast.fix_missing_locations(tree))
    for before, after in _RENAMED.items():
        text = text.replace(before, after)
    future, _, rest = text.partition("\n")
    more = f"from orchestrator.client.{module} import {', '.join(imported)}\n" if imported else ""
    said = f"Calls of the API as coroutines: {module}.py with each call awaited"
    return f"{_HEAD.format(said)}{future}\nimport asyncio\n{more}{rest}\n"


def _defined(node: ast.stmt) -> list[str]:
    """Names that a statement of a module gives, imports aside."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


if __name__ == "__main__":
    write_client()
    (ROOT / GENERATED / "models.py").touch()  # make goes by its time
