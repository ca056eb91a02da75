# SPDX-License-Identifier: Apache-2.0
"""Processes of ours, told apart from strangers that got the same pid later."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    pid: int
    started: int
    """Start time in clock ticks since boot (proc(5), field 22)."""

    def alive(self) -> bool:
        return _started(self.pid) == self.started

    def end(self, grace_s: float = 10.0) -> None:
        """SIGTERM, then SIGKILL after the grace; returns when the process is gone."""
        deadline = time.monotonic() + grace_s
        number = signal.SIGTERM
        while self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return
            if time.monotonic() > deadline:
                number = signal.SIGKILL
            time.sleep(0.1)


def _started(pid: int) -> int | None:
    """None for a process that is gone or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def identify(pid: int) -> Process:
    started = _started(pid)
    return Process(pid, -1 if started is None else started)
