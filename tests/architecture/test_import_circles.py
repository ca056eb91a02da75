# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tools.tree import files, nodes


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {_dotted(path): set[str]() for path in files(".py", under="orchestrator/")}
    for path in files(".py", under="orchestrator/"):
        graph[_dotted(path)] = {name for name in _imported(path) if name in graph} - {_dotted(path)}
    circle: list[str] = []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []


def _dotted(path: Path) -> str:
    return path.with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


def _imported(path: Path) -> set[str]:
    """Modules that the file names, lazy imports and those for types alone included."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found
