# SPDX-License-Identifier: Apache-2.0
"""Which test asserts which fault, read from the marks without importing a test."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.tree import ROOT, files, tree

CATALOGUE = Path("tests/faults/catalogue.csv")


@dataclass(frozen=True)
class Fault:
    """``why_not``: why no test asserts it; empty when one does."""

    id: str
    group: str
    fault: str
    why_not: str


def catalogue() -> tuple[Fault, ...]:
    with (ROOT / CATALOGUE).open(encoding="utf-8", newline="") as file:
        return tuple(Fault(**row) for row in csv.DictReader(file))


def marked() -> dict[str, tuple[str, ...]]:
    """Fault → tests as ``path::name``, in order of path and line."""
    found: dict[str, list[str]] = {}
    for path in files(".py", under="tests/"):
        for test, fault in _marks(tree(path)):
            found.setdefault(fault, []).append(f"{path.as_posix()}::{test}")
    return {fault: tuple(tests) for fault, tests in found.items()}


def _marks(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.fault":
                    yield from ((node.name, str(ast.literal_eval(argument))) for argument in decorator.args)
