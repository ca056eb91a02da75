# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.cli.tree import ENTRIES, load
from tests.architecture.tree import files

NAMED = re.compile(r"'vgpuctl ([a-z][a-z-]*)((?: [a-z][a-z-]*)*)")


def _texts() -> Iterator[tuple[str, str]]:
    """Every text of the product that is no docstring; a value inside it reads as ``X``."""
    for path in files(".py", under="orchestrator/"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
                yield str(path), "".join(str(part) for part in parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield str(path), node.value


HINTED = sorted({(path, match[0].strip("'")) for path, text in _texts() for match in NAMED.finditer(text)})


@pytest.mark.parametrize(("path", "words"), HINTED)
def test_every_command_that_a_text_tells_people_to_run_exists(path: str, words: str) -> None:
    _, first, *rest = words.split()
    assert first in ENTRIES, path
    command: Any = load(first, ENTRIES[first])
    for word in rest:
        if not hasattr(command, "commands"):
            break
        assert word in command.commands, path
        command = command.commands[word]


def test_the_hints_about_tenants_are_among_them() -> None:
    named = {words for _, words in HINTED}
    assert {"vgpuctl tenant list", "vgpuctl tenant add-member", "vgpuctl token list"} <= named
