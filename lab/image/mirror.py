# SPDX-License-Identifier: Apache-2.0
"""Where Debian packages come from: this machine's own apt configuration, or ``LAB_MIRROR``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.errors import LabError

_URI_FIELD = re.compile(r"^URIs:\s*(\S+)", re.IGNORECASE)
_ONE_LINE = re.compile(r"^deb\s+(?:\[[^]]*\]\s*)?(\S+)\s+\S+")


def mirror_uris(text: str) -> list[str]:
    """Package archive addresses in a file of either of apt's two formats, in order."""
    found = []
    for line in text.splitlines():
        match = _URI_FIELD.match(line) or _ONE_LINE.match(line)
        if match:
            found.append(match[1])
    return found


def debian_archive(uris: Iterable[str]) -> str | None:
    """The first address that is a Debian main archive (by its last path part, as mirrors keep it)."""
    return next((uri for uri in uris if uri.rstrip("/").rsplit("/", 1)[-1] == "debian"), None)


def find_mirror(environment: Mapping[str, str], apt: Path = Path("/etc/apt")) -> str:
    """Raises LabError when neither ``LAB_MIRROR`` nor apt names a Debian archive."""
    if environment.get("LAB_MIRROR"):
        return environment["LAB_MIRROR"]
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    text = "\n".join(file.read_text() for file in files if file.suffix in {".list", ".sources"} and file.is_file())
    mirror = debian_archive(mirror_uris(text))
    if mirror is None:
        raise LabError("apt on this machine names no Debian archive", "set LAB_MIRROR to the address of one")
    return mirror
