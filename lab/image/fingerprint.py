# SPDX-License-Identifier: Apache-2.0
"""Names for cached results: a hash of everything that went in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

_BUILT = {".o", ".ko", ".so", ".1", ".mod", ".cmd", ".pyc", ".order", ".symvers"}


def inputs(*roots: Path) -> list[Path]:
    """Source files below ``roots`` (files themselves included), without what a build leaves beside them."""
    files: list[Path] = []
    for root in roots:
        found = [root] if root.is_file() else [path for path in root.rglob("*") if path.is_file()]
        files += [path for path in found if path.suffix not in _BUILT and "__pycache__" not in path.parts]
    return sorted(files)


def fingerprint(files: Iterable[Path], *words: str) -> str:
    """16 hex digits over names, modes and contents of ``files`` and over ``words``."""
    digest = hashlib.sha256()
    for word in words:
        digest.update(word.encode() + b"\0")
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.name}\0{path.stat().st_mode & 0o111:o}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]
