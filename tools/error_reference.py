# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/errors.md from the code: ``python -m tools.error_reference``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orchestrator.core.errors import FAMILIES
from tools.tree import ROOT, files, nodes

PAGE = Path("docs/reference/errors.md")
CODE = re.compile(r"[a-z]+\.[a-z][a-z_]+")
FAMILY = {cls.__name__: cls for cls in FAMILIES.values()}
_NOT_CODES = re.compile(
    r"(orchestrator|gpus|hosts|images|operations|vms|networks|claims|steps|secrets|meta|pynvml|[a-z]+)"
    r"\.(py|txt|cfg|yaml|yml|json|lock|log|sqlite|sock|db|iso|service|xml|csv|html|css|js|svg)$"
    r"|^(orchestrator|gpus|hosts|vms|images|operations|networks|claims|steps|secrets|os|sys|sqlalchemy|cloud|http"
    r"|balloon|block|cpu|net|rd|vcpu|wr|hw|service|vgpuctl)\.|^(error\.type|host\.name)$"
)
_HEAD = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
# Error codes

Written by `make docs` from the code; `…` stands for what is filled in. A code keeps its meaning between versions;
its text may change. The family fixes exit code and HTTP status:

| family | exit code | HTTP | means |
|---|---|---|---|
"""
_PLACES = "\n## {noun}\n\n| code | family | text |\n|---|---|---|\n"


@dataclass(frozen=True)
class Mention:
    """One place where a code stands, with the family and text beside it where there are any."""

    code: str
    family: str
    text: str


@cache
def mentions() -> tuple[Mention, ...]:
    sources = (path for path in files(".py", under="orchestrator/") if "/migrations/" not in path.as_posix())
    return tuple(mention for path in sources for mention in _in_module(nodes(path)))


def _in_module(module: tuple[ast.AST, ...]) -> Iterator[Mention]:
    seen: set[int] = set()
    for node in module:
        parts = _parts(node)
        for place, part in enumerate(parts):
            if _is_code(part) and isinstance(part, ast.Constant) and id(part) not in seen:
                seen.add(id(part))
                yield Mention(str(part.value), _family(node, parts), _text(parts[place + 1 :]))
    for node in module:
        if _is_code(node) and isinstance(node, ast.Constant) and id(node) not in seen:
            yield Mention(str(node.value), "", "")


def _parts(node: ast.AST) -> list[ast.expr]:
    """What stands beside each other: a call's arguments, a tuple's elements, a mapping's keys and values."""
    if isinstance(node, ast.Call):
        return [*node.args, *(keyword.value for keyword in node.keywords)]
    if isinstance(node, ast.Tuple):
        return list(node.elts)
    return []


def _is_code(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and CODE.fullmatch(node.value) is not None
        and _NOT_CODES.search(node.value) is None
    )


def _family(node: ast.AST, parts: list[ast.expr]) -> str:
    names = [node.func] if isinstance(node, ast.Call) else []
    for name in (*names, *parts):
        called = name.id if isinstance(name, ast.Name) else name.attr if isinstance(name, ast.Attribute) else ""
        if called in FAMILY:
            return called
    return ""


def _text(parts: list[ast.expr]) -> str:
    for part in parts:
        if isinstance(part, ast.JoinedStr):
            return "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in part.values)
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            return part.value
    return ""


def codes() -> set[str]:
    return {mention.code for mention in mentions()}


def page() -> str:
    rows: dict[str, Mention] = {}
    for mention in mentions():
        known = rows.get(mention.code)
        rows[mention.code] = Mention(
            mention.code,
            (known.family if known else "") or mention.family,
            (known.text if known else "") or mention.text,
        )
    out = _HEAD
    for name, cls in FAMILY.items():
        means = (cls.__doc__ or "").splitlines()[0]
        out += f"| {name} | {cls.exit_code} | {cls.http_status} | {means} |\n"
    noun = ""
    for code in sorted(rows):
        if code.split(".")[0] != noun:
            noun = code.split(".")[0]
            out += _PLACES.format(noun=noun)
        row = rows[code]
        out += f"| `{code}` | {row.family or '—'} | {row.text.replace('|', '/').replace(chr(10), ' ') or '—'} |\n"
    return out


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(), encoding="utf-8")
