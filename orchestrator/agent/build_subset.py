# SPDX-License-Identifier: Apache-2.0
"""Cuts a module down to what is used of it, line by line as it was written. Runs on the controller.

pynvml is larger than the whole agent, and a host compiles it anew at every start of the agent out of its zip file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator


def used_attributes(sources: Iterable[str], module: str) -> set[str]:
    """Names that the sources take from ``module`` as ``module.name``."""
    return {
        node.attr
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module
    }


def subset(source: str, roots: Iterable[str], *, kept_prefix: str) -> str:
    """The module with the definitions that ``roots`` need, names that start with ``kept_prefix``, and the comments
    at its top. ``kept_prefix``: for names that the module looks up by their text."""
    tree = ast.parse(source)
    defined: dict[str, list[ast.stmt]] = {}
    kept: set[ast.stmt] = set()
    for statement in tree.body:
        names = list(_names(statement))
        for name in names:
            defined.setdefault(name, []).append(statement)
        if not names or any(name.startswith(kept_prefix) for name in names):
            kept.add(statement)
    waiting = [statement for root in roots for statement in defined.get(root, [])] + list(kept)
    kept.clear()
    while waiting:
        statement = waiting.pop()
        if statement not in kept:
            kept.add(statement)
            waiting.extend(needed for name in _used(statement) for needed in defined.get(name, []))
    lines = source.splitlines(keepends=True)
    head = lines[: tree.body[0].lineno - 1]
    return "".join(head + [line for statement in tree.body if statement in kept for line in _lines(statement, lines)])


def _names(statement: ast.stmt) -> Iterator[str]:
    """What a statement defines and nothing else; empty for one that has to stay."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, ast.Assign) and all(isinstance(target, ast.Name) for target in statement.targets):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def _used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _lines(statement: ast.stmt, lines: list[str]) -> list[str]:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    return lines[first - 1 : statement.end_lineno]
