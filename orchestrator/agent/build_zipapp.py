# SPDX-License-Identifier: Apache-2.0
"""Makes the one file that is put on hosts: our code and pynvml, as they are installed here.

The same inputs give the same bytes, and the file's version is a digest of them. Runs on the controller.

One at a time: ``ast.parse`` in several threads at once may end in a SystemError, "AST constructor recursion depth
mismatch" (seen with CPython 3.11.7; its issue 106905), and whoever writes the file must not meet another one.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.resources
import io
import os
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orchestrator.agent.version import BUILD_FILE

_DISTRIBUTION, _MODULE = "nvidia-ml-py", "pynvml.py"

_MAIN = """\
import sys
from orchestrator.agent.entry import start
sys.exit(start())
"""
_SHEBANG = b"#!/usr/bin/python3\n"
_STAMP = (2020, 1, 1, 0, 0, 0)
_alone = threading.Lock()


@dataclass(frozen=True)
class Built:
    """An agent as one file. ``version``: what it reports; ``sha256``: of its bytes, as they were made and not as they
    were read from a disk."""

    version: str
    sha256: str


def build_agent(path: Path) -> Built:
    """Write the agent to ``path`` unless just that is there already.

    :raises RuntimeError: a dependency is not installed here
    """
    with _alone:
        files = dict(sorted(_inputs()))
        version = _version_of(files)
        content = _content({**files, f"orchestrator/agent/{BUILD_FILE}": version.encode()}, version)
        if not path.is_file() or path.read_bytes() != content:
            _write(path, content)
    return Built(version, hashlib.sha256(content).hexdigest())


@cache
def own_agent() -> str:
    """The version that an agent reports which this process would build; read once.

    :raises RuntimeError: a dependency is not installed here
    """
    with _alone:
        return _version_of(dict(sorted(_inputs())))


def _version_of(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    release = importlib.metadata.version("vgpuctl").partition("+")[0]
    return f"{release}+{digest.hexdigest()[:12]}"


def _content(files: Mapping[str, bytes], version: str) -> bytes:
    buffer = io.BytesIO(_SHEBANG)
    buffer.seek(0, io.SEEK_END)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = version.encode()
        for name in sorted(files):
            archive.writestr(_entry(name), files[name])
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part-{os.getpid()}")
    part.write_bytes(content)
    part.chmod(0o755)
    part.replace(path)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _STAMP)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _inputs() -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", _MAIN.encode()
    root = Path(str(importlib.resources.files("orchestrator")))
    for part in ("__init__.py", "core", "agent"):
        for file in sorted([root / part] if part.endswith(".py") else (root / part).rglob("*.py")):
            if not file.name.startswith("build_"):
                yield f"orchestrator/{file.relative_to(root).as_posix()}", file.read_bytes()
    readers = [file.read_text(encoding="utf-8") for file in sorted((root / "agent/nvml").glob("*.py"))]
    yield _MODULE, subset(_pynvml(), used_attributes(readers, "pynvml"), kept_prefix="NVML_ERROR").encode()


def _pynvml() -> str:
    """NVIDIA's binding: one module, which names its licence (BSD) at its top."""
    try:
        module = Path(str(importlib.metadata.distribution(_DISTRIBUTION).locate_file(_MODULE)))
        return module.read_text(encoding="utf-8")
    except (importlib.metadata.PackageNotFoundError, OSError) as error:
        raise RuntimeError(f"{_DISTRIBUTION} is not installed, so the agent cannot be built") from error


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
