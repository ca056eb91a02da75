# SPDX-License-Identifier: Apache-2.0
"""What ovn-controller has logged of packets since it was read last."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.core.readings.flows import LoggedFlows, flow_of, folded

_MAX_BYTES: Final = 1024 * 1024
"""Of the newest that are read at once; what is before them is counted alone."""
_PACKET: Final = b"|acl_log("
"""In each line that tells of one."""


class FlowLog:
    """Used by one thread. ``path``: of its log file, which need not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: BinaryIO | None = None
        self._began = False
        self._rest = b""
        self._unread = 0

    def read(self) -> LoggedFlows:
        """Of the first call nothing: what was logged before is not read."""
        self._unread = 0
        lines = b"".join(self._read()).decode(errors="replace").splitlines()
        return folded(filter(None, map(flow_of, lines)), self._unread)

    def _read(self) -> Iterator[bytes]:
        """Whole lines; of a file that was renamed (logrotate) those that came before it was, too."""
        if self._open is not None:
            yield self._newest(self._open)
        try:
            is_now = self._path.stat().st_ino
            if self._open is not None and os.fstat(self._open.fileno()).st_ino == is_now:
                return
            following = self._path.open("rb")
        except OSError:
            self._began = True  # all of what comes is new
            return
        if self._open is not None:
            self._open.close()
        self._open, self._rest = following, b""
        if self._began:
            yield self._newest(following)
        else:
            following.seek(0, os.SEEK_END)
            self._began = True

    def _newest(self, file: BinaryIO) -> bytes:
        size, at = os.fstat(file.fileno()).st_size, file.tell()
        if size < at:  # it was emptied in its place
            at, self._rest = file.seek(0), b""
        if size - at > _MAX_BYTES:
            while (unread := size - _MAX_BYTES - file.tell()) > 0:
                self._unread += file.read(min(unread, _MAX_BYTES)).count(_PACKET)
            self._rest = b""
        whole, newline, self._rest = (self._rest + file.read(_MAX_BYTES)).rpartition(b"\n")
        self._rest = self._rest[-_MAX_BYTES:]
        return whole + newline
