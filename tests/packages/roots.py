# SPDX-License-Identifier: Apache-2.0
"""Bare Debian systems, made from the archive, in which something is tried without a network."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from lab.image.mirror import find_mirror

PYTHONS: Final = {"bookworm": "3.11", "trixie": "3.13"}
"""Of each release that we are made for."""
_APART: Final = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")
_BEFORE: Final = """\
set -eu
mount -t proc proc /proc
say() { echo "::$*"; }
cd /
"""


def bare_root(release: str, place: Path, *packages: str) -> Path:
    """With these of Debian's packages and what they need."""
    root = place / "root"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", release, root, find_mirror(os.environ)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return root


def said_in(root: Path, script: str) -> list[str]:
    """What a script said there with ``say``."""
    (root / "srv/try").write_text(_BEFORE + script)
    done = subprocess.run([*_APART, "chroot", root, "sh", "/srv/try"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return [line.removeprefix("::") for line in done.stdout.splitlines() if line.startswith("::")]
