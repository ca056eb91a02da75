# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tools.tree import ROOT, files, imports, nodes

SHIPPED = ("orchestrator/core/", "orchestrator/agent/")
THIRD_PARTY = {"attr", "attrs", "cattrs", "libvirt", "pynvml", "orchestrator"}
NEWER_THAN_310 = {
    "typing": {"Self", "assert_never", "assert_type", "LiteralString", "Never", "NotRequired", "Required", "Unpack",
               "TypeVarTuple", "reveal_type", "dataclass_transform", "override", "TypeAliasType"},
    "enum": {"StrEnum", "ReprEnum", "verify", "EnumType", "member", "nonmember"},
    "datetime": {"UTC"},
    "contextlib": {"chdir"},
    "asyncio": {"TaskGroup", "Runner", "timeout", "Barrier"},
    "itertools": {"batched"},
    "hashlib": {"file_digest"},
}  # fmt: skip
NEWER_MODULES = {"tomllib", "wsgiref.types"}
NEWER_BUILTINS = {"ExceptionGroup", "BaseExceptionGroup"}


def _shipped() -> list[Path]:
    return [path for path in files(".py") if path.as_posix().startswith(SHIPPED)]


def test_what_runs_on_hosts_imports_nothing_newer_than_its_python() -> None:
    newer = [
        f"{path}:{node.lineno} {node.module}.{alias.name}"
        for path in _shipped()
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in NEWER_THAN_310.get(node.module or "", set())
    ]
    newer += [f"{path}:{line} {name}" for path in _shipped() for line, name in imports(path) if name in NEWER_MODULES]
    assert newer == []


def test_what_runs_on_hosts_uses_no_newer_name() -> None:
    newer: list[str] = []
    for path in _shipped():
        for node in nodes(path):
            if isinstance(node, ast.Name) and node.id in NEWER_BUILTINS:
                newer.append(f"{path}:{node.lineno} {node.id}")
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                newer += [f"{path}:{node.lineno} {node.attr}"] * (node.attr in NEWER_THAN_310.get(node.value.id, set()))
    assert newer == []


def test_what_runs_on_hosts_has_the_syntax_of_its_python() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select=E9,F7", "--target-version=py310", *SHIPPED],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_runs_on_hosts_needs_only_what_ships_with_it() -> None:
    foreign = [
        f"{path}:{line} {name}"
        for path in _shipped()
        for line, name in imports(path)
        if (top := name.split(".")[0]) not in sys.stdlib_module_names and top not in THIRD_PARTY
    ]
    assert foreign == []
