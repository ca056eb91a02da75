# SPDX-License-Identifier: Apache-2.0
"""What the first host worked out of the image, given to all later ones: what QEMU can do, AppArmor's compiled profiles.

Files of libvirt's and AppArmor's own caches. Both check them (program times, kernel, processor; the kernel's features)
and work them out again when they differ.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

from lab.image.base import Base

_CACHES = "/var/cache/libvirt/qemu/capabilities/*.xml /var/cache/apparmor/*/* /var/cache/apparmor/*/.features"
_READ = f'for file in {_CACHES}; do echo "$file $(base64 -w0 "$file")"; done'


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
    for line in ask(_READ).splitlines():
        name, content = line.split()
        file = part / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(content))
        file.chmod(0o600)
    part.rename(tree)


def _tree(base: Base, accelerator: str) -> Path:
    return base.directory / f"capabilities-{accelerator}"
