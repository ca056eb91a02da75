# SPDX-License-Identifier: Apache-2.0
"""Which build of the program this is; command line and server compare theirs before they talk.

A package says what was written into it when it was built (packages/hatch_build.py). A source tree is looked at:
commit, and a digest of what each file's name, size and time are, so that an edited tree is another build. Reading a
package's metadata would take longer than a whole command.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

RELEASE: Final = "0.1.0"
"""What the next tag is called; a tree without tags or without git builds as this."""
BUILD_FILE: Final = "_data/build.txt"
"""In an installed package, below ``orchestrator``."""
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_HASH: Final = re.compile(r"[0-9a-f]{40,64}", re.ASCII)


def build_of(package: Path) -> str:
    """Of the package in this directory, as PEP 440 writes versions: ``0.1.0+g286a810a.s5e2f81c0``."""
    try:
        return (package / BUILD_FILE).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        commit = commit_of(package.parent)
        return f"{RELEASE}+{'nogit' if commit is None else f'g{commit[:8]}'}.s{_stamp(package)}"


def commit_of(tree: Path) -> str | None:
    """What is checked out in a tree, a linked one too, without asking git. None: it is none of git's."""
    try:
        git = tree / ".git"
        if git.is_file():
            git = tree / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return _hash(head)
        return _hash(_resolved(git, head.removeprefix("ref:").strip()))
    except (OSError, ValueError):
        return None


def _resolved(git: Path, ref: str) -> str:
    shared = git / "commondir"
    common = git / shared.read_text().strip() if shared.is_file() else git
    for place in (git / ref, common / ref):
        if place.is_file():
            return place.read_text().strip()
    packed = (common / "packed-refs").read_text().splitlines()
    return next((line.partition(" ")[0] for line in packed if line.endswith(f" {ref}")), "")


def _hash(text: str) -> str | None:
    return text if _HASH.fullmatch(text) else None


def _stamp(package: Path) -> str:
    """Eight hexadecimal digits that change with every change of a source file."""
    listing = "\n".join(sorted(_files(str(package))))
    return f"{zlib.crc32(listing.encode()):08x}"


def _files(directory: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield f"{entry.path} {status.st_size} {status.st_mtime_ns}"
            elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)


VERSION: str = build_of(_PACKAGE)
