# SPDX-License-Identifier: Apache-2.0
"""The files under judgement: what git tracks or would track."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def project_files() -> tuple[Path, ...]:
    """Every file of the work tree that is not ignored, relative to the root, sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    names = sorted(set(filter(None, listed.stdout.split("\0"))))
    return tuple(path for path in map(Path, names) if (ROOT / path).is_file())


def files(*suffixes: str, under: str = "") -> list[Path]:
    return [path for path in project_files() if path.suffix in suffixes and path.as_posix().startswith(under)]


@cache
def text(path: Path) -> str:
    """The file's text; what is not UTF-8 is not ours to judge and reads as empty."""
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path), filename=str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Of the whole file, as :func:`ast.walk` finds them."""
    return tuple(ast.walk(tree(path)))


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and dotted name of every absolute import in the file, lazy ones included."""
    found: list[tuple[int, str]] = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.append((node.lineno, node.module))
    return tuple(found)
