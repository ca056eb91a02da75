# SPDX-License-Identifier: Apache-2.0
"""What libvirt found out about the image's QEMU: asked once by the first host, given to all later ones.

libvirt's own cache files; it checks them against program times, kernel and processor and asks again when they differ.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

from lab.image.base import Base

_DIRECTORY = "/var/cache/libvirt/qemu/capabilities"
_READ = f'cd {_DIRECTORY} && for file in *.xml; do echo "$file $(base64 -w0 "$file")"; done'


def known(base: Base, accelerator: str) -> list[Path]:
    """Trees to lay over a host's root; none before the first host has answered."""
    tree = _tree(base, accelerator)
    return [tree] if tree.exists() else []


def remember(base: Base, accelerator: str, ask: Callable[[str], str]) -> None:
    """Reads the cache of a host that is ready. ``ask`` runs a shell command there and gives its output."""
    tree = _tree(base, accelerator)
    if tree.exists():
        return
    part = tree.with_suffix(".part")
    directory = part / _DIRECTORY.lstrip("/")
    directory.mkdir(parents=True, exist_ok=True)
    for line in ask(_READ).splitlines():
        name, content = line.split()
        file = directory / Path(name).name
        file.write_bytes(base64.b64decode(content))
        file.chmod(0o600)
    part.rename(tree)


def _tree(base: Base, accelerator: str) -> Path:
    return base.directory / f"capabilities-{accelerator}"
