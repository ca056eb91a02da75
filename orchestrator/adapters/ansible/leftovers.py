# SPDX-License-Identifier: Apache-2.0
"""Ends what a killed ansible-playbook leaves behind: its workers have sessions of their own, ssh likewise."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

ROUNDS: Final = 20
"""A process may start another just before it is ended; a round that finds none is the last."""


def end_all(home: Path, processes: Path = Path("/proc")) -> None:
    """Kill every process whose environment names ``home``: a run's scratch directory, which no other process has."""
    mark = b"HOME=" + os.fsencode(home)
    for _ in range(ROUNDS):
        found = [int(entry.name) for entry in processes.iterdir() if entry.name.isdigit()]
        if not sum(_end(pid, processes / str(pid) / "environ", mark) for pid in found if pid != os.getpid()):
            return


def _end(pid: int, environment: Path, mark: bytes) -> bool:
    """The descriptor is opened before the environment is read, so that a reused number is never hit."""
    with suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if mark in environment.read_bytes().split(b"\0"):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False
