# SPDX-License-Identifier: Apache-2.0
"""Kernel modules of an unpacked Debian root, with what they depend on, in loading order."""

from __future__ import annotations

import lzma
from collections.abc import Iterable
from pathlib import Path

from lab.errors import LabError


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1].split(".ko", maxsplit=1)[0].replace("-", "_")


def load_order(dependencies: str, builtin: str, wanted: Iterable[str]) -> list[str]:
    """Paths of ``wanted`` and all they need, each after its needs; names built into the kernel are left out.

    ``dependencies`` and ``builtin`` are the texts of modules.dep and modules.builtin. Raises LabError for a name
    in neither.
    """
    needs = {}
    paths = {}
    for line in dependencies.splitlines():
        path, _, rest = line.partition(":")
        paths[_name(path)] = path
        needs[path] = rest.split()
    inside = {_name(line) for line in builtin.splitlines()}
    order: list[str] = []
    for name in (word.replace("-", "_") for word in wanted):
        if name in paths:
            # modules.dep lists every need, the innermost last
            order += [path for path in (*reversed(needs[paths[name]]), paths[name]) if path not in order]
        elif name not in inside:
            raise LabError(f"the kernel has no module {name}")
    return order


def modules(root: Path, version: str, wanted: Iterable[str]) -> list[tuple[str, bytes]]:
    """``(file name, uncompressed module)`` in loading order."""
    directory = root / "usr/lib/modules" / version
    order = load_order((directory / "modules.dep").read_text(), (directory / "modules.builtin").read_text(), wanted)
    found = []
    for path in order:
        content = (directory / path).read_bytes()
        found.append((f"{_name(path)}.ko", lzma.decompress(content) if path.endswith(".xz") else content))
    return found
