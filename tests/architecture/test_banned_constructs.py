# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools.tree import files, nodes, project_files, text

# Put together so that this file does not contain what it looks for.
UNFINISHED = re.compile("|".join([r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", r"\bXX" + r"X\b", "NotImplemented" + "Error"]))
SILENCERS = re.compile("|".join(["type:" + r"\s*ignore", "pragma:" + r"\s*no cover"]))
SKIPS = {"skip", "skipif", "xfail", "importorskip"}


def _lines_matching(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path}:{number}"
        for path in paths
        for number, line in enumerate(text(path).splitlines(), start=1)
        if pattern.search(line)
    ]


def _sources() -> list[Path]:
    ours = (path for path in project_files() if "vendor" not in path.parts)
    return [path for path in ours if path.suffix not in {".csv", ".txt", ".md", ".json"}]


def test_nothing_is_left_unfinished() -> None:
    assert _lines_matching(UNFINISHED, _sources()) == []


def test_no_checker_is_silenced() -> None:
    assert _lines_matching(SILENCERS, files(".py")) == []


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {kind.id if isinstance(kind, ast.Name) else None for kind in caught if not isinstance(kind, ast.Attribute)}
    return bool(names & {None, "Exception"}) or ("BaseException" in names and not _hands_it_on(handler))


def _hands_it_on(handler: ast.ExceptHandler) -> bool:
    """Clean-up before a ``raise``, and errors carried to another thread, may catch everything."""
    inside = [node for statement in handler.body for node in ast.walk(statement)]
    return any(
        isinstance(node, ast.Raise) or (isinstance(node, ast.Name) and handler.name and node.id == handler.name)
        for node in inside
    )


def test_every_handler_names_what_it_catches() -> None:
    broad = [
        f"{path}:{node.lineno}"
        for path in files(".py")
        for node in nodes(path)
        if isinstance(node, ast.ExceptHandler) and _catches_everything(node)
    ]
    assert broad == []


def test_no_test_is_skipped() -> None:
    skipped = [
        f"{path}:{node.lineno}"
        for path in files(".py", under="tests/")
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in SKIPS and "pytest" in ast.unparse(node)
    ]
    assert skipped == []


@pytest.mark.parametrize("argument", ["shell", "check_hostname", "verify"])
def test_no_call_turns_a_safety_off(argument: str) -> None:
    unsafe = {"shell": True, "check_hostname": False, "verify": False}[argument]
    calls = [
        f"{path}:{node.lineno}"
        for path in files(".py", under="orchestrator/")
        for node in nodes(path)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == argument and isinstance(keyword.value, ast.Constant) and keyword.value.value is unsafe
    ]
    assert calls == []
