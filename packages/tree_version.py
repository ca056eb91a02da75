# SPDX-License-Identifier: Apache-2.0
"""What a package is called and what it says of itself: the version comes from git when it is built.

``v0.2.0`` is tagged: 0.2.0. Three commits later: 0.2.0.post3+g286a810a. Without tags a package is on its way to the
first release and has the time of its commit (UTC), which a shallow clone knows too: 0.1.0.dev20261123001032+g286a810a.
Without git nothing tells newer from older: 0.1.0.dev0+nogit.d5e2f81c0. A tree with changes adds a digest of its files.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
_SOURCES = ("orchestrator", "vgpuctl", "playbooks", "vgpu_profiles")
_WRITTEN = frozenset({"__pycache__", "generated"})
"""Directories of what follows from other files."""
_DESCRIBED = re.compile(r"v(?P<tag>[0-9]+(?:\.[0-9]+)*)-(?P<more>[0-9]+)-g(?P<commit>[0-9a-f]+)")


def tree_version(tree: Path = TREE) -> str:
    """As PEP 440 writes versions."""
    release = _release(tree)
    commit = _git(tree, "rev-parse", "--short=8", "HEAD")
    if commit is None:
        return f"{release}.dev0+nogit.d{_digest(tree)}"
    changed = _git(tree, "status", "--porcelain", "--untracked-files=no")
    local = f"g{commit}" + (f".d{_digest(tree)}" if changed else "")
    described = _DESCRIBED.fullmatch(_git(tree, "describe", "--tags", "--long", "--match", "v[0-9]*") or "")
    if described is None:
        return f"{release}.dev{_committed(tree)}+{local}"
    tag, more = described["tag"], described["more"]
    return tag if more == "0" and not changed else f"{tag}.post{more}+{local}"


def debian_version(version: str) -> str:
    """The same as Debian sorts versions: what is on its way to a release comes before it."""
    return version.replace(".dev", "~dev")


def _committed(tree: Path) -> str:
    """When, in UTC, as digits that grow."""
    seconds = int(_git(tree, "log", "-1", "--format=%ct") or "0")
    return f"{datetime.fromtimestamp(seconds, UTC):%Y%m%d%H%M%S}"


def _release(tree: Path) -> str:
    text = (tree / "orchestrator/client/version.py").read_text(encoding="utf-8")
    found = re.search(r'^RELEASE: Final = "([0-9.]+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError("orchestrator/client/version.py has no RELEASE")
    return found[1]


def _git(tree: Path, *words: str) -> str | None:
    """None: it fails, or the tree is not git's own (an unpacked one may lie inside another repository)."""
    if not (tree / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", "-C", tree, *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _digest(tree: Path) -> str:
    digest = hashlib.sha256()
    for part in _SOURCES:
        for file in sorted((tree / part).rglob("*")):
            if file.is_file() and not _WRITTEN.intersection(file.parts):
                digest.update(f"{file.relative_to(tree)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:8]


if __name__ == "__main__":
    sys.stdout.write(debian_version(sys.argv[1]))
