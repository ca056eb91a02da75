# SPDX-License-Identifier: Apache-2.0
"""Reading single kernel files. One that is not there or cannot be read is None: parts of the tree come and go."""

from __future__ import annotations

import os
from pathlib import Path

_MAX_BYTES = 256 * 1024


def text(path: Path | str) -> str | None:
    """The file's text without surrounding blanks. A path of plain text costs less, where hundreds are read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a host has hundreds of these, read at every observation
    except OSError:
        return None
    try:
        return os.read(file, _MAX_BYTES).decode(errors="replace").strip()
    except OSError:
        return None
    finally:
        os.close(file)


def number(path: Path | str) -> int | None:
    """The file's decimal or 0x number."""
    content = text(path)
    try:
        return None if content is None else int(content, 0)
    except ValueError:
        return None


def link_name(path: Path | str) -> str | None:
    """Last part of where a symbolic link points to; None when there is none."""
    return link(path).rpartition("/")[2] or None


def link(path: Path | str) -> str:
    """Where a symbolic link points to, as it stands there; empty when there is none."""
    try:
        return os.readlink(path)  # noqa: PTH115 - as above
    except OSError:
        return ""


def is_there(path: Path | str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - as above


def names(directory: Path | str) -> tuple[str, ...]:
    """Names in a directory in order; empty when there is none."""
    try:
        return tuple(sorted(os.listdir(directory)))  # noqa: PTH208 - a path object for each takes ten times as long
    except OSError:
        return ()
