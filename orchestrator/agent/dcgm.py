# SPDX-License-Identifier: Apache-2.0
"""Which DCGM a host has, as its own ``dcgmi`` says."""

from __future__ import annotations

import re

from orchestrator.agent.paths import Paths
from orchestrator.agent.process import ChildHangs, ChildTalksTooMuch, run

_LIMIT_S = 10.0
_MAX_OUTPUT = 16 * 1024
_VERSION = re.compile(r"version: *([0-9]{1,3}(?:\.[0-9]{1,4}){1,3})\b")


class Dcgm:
    """Asked again when the program is another one."""

    def __init__(self, paths: Paths) -> None:
        self._program = paths.root / "usr/bin/dcgmi"
        self._known: tuple[tuple[int, int], str | None] | None = None

    def version(self) -> str | None:
        """None: the host has none, or it does not say."""
        try:
            about = self._program.stat()
            key = (about.st_mtime_ns, about.st_ino)
            if self._known is None or self._known[0] != key:
                said = run([str(self._program), "--version"], limit_s=_LIMIT_S, most_bytes=_MAX_OUTPUT)
                found = _VERSION.search(said.output)
                self._known = (key, None if found is None else found[1])
        except (OSError, ChildHangs, ChildTalksTooMuch):
            return None
        return self._known[1]
