# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tools.tree import files, nodes

REFUSALS = {"InvalidInput", "NotFound", "Conflict", "Denied", "QuotaExceeded", "NoCapacity", "Fatal", "Stuck"}
INSIDE_OPERATIONS = ("orchestrator/agent/", "orchestrator/sim/")
"""What happens on a host is told with its operation, whose way out is the hint."""


def _refusals(module: Iterable[ast.AST]) -> Iterator[ast.Call]:
    for node in module:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REFUSALS:
            yield node


def test_every_refusal_says_what_to_do() -> None:
    silent = [
        f"{path}:{call.lineno}"
        for path in files(".py", under="orchestrator/")
        if not path.as_posix().startswith(INSIDE_OPERATIONS)
        for call in _refusals(nodes(path))
        if not any(keyword.arg in {"hint", None} for keyword in call.keywords)
    ]
    assert silent == []


def test_refusals_are_found() -> None:
    module = ast.parse('raise NotFound("vm.unknown", "there is no VM a")')
    assert len(list(_refusals(ast.walk(module)))) == 1
