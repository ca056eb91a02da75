# SPDX-License-Identifier: Apache-2.0
"""Ends what a killed ansible-playbook leaves behind: its workers have sessions of their own, ssh likewise."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

ROUNDS: Final = 20
"""A process may start another just before it is ended; a round that finds none is the last."""
BETWEEN_ROUNDS_S: Final = 0.01
DEATH_MS: Final = 1000
"""How long an ended process is waited for: only one that hangs inside the kernel needs it."""


def end_all(home: Path, processes: Path = Path("/proc")) -> None:
    """Kill every process whose environment names ``home``: a run's scratch directory, which no other process has."""
    mark = b"HOME=" + os.fsencode(home)
    for _ in range(ROUNDS):
        directories = [processes / entry.name for entry in processes.iterdir() if entry.name.isdigit()]
        if not sum(_end(process, mark) for process in directories if int(process.name) != os.getpid()):
            return
        time.sleep(BETWEEN_ROUNDS_S)


def _end(process: Path, mark: bytes) -> bool:
    """Whether another round has to look again.

    The descriptor is opened before the environment is read, so that a reused number is never hit. A process that is
    just becoming another program shows no environment for a moment, though it has an executable (kernel threads and
    dead processes have none).
    """
    with suppress(OSError):
        descriptor = os.pidfd_open(int(process.name))
        try:
            environment = (process / "environ").read_bytes()
            if mark in environment.split(b"\0"):
                _kill(descriptor)
                return True
            return not environment and bool((process / "exe").readlink())
        finally:
            os.close(descriptor)
    return False


def _kill(descriptor: int) -> None:
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    death = select.poll()
    death.register(descriptor, select.POLLIN)
    death.poll(DEATH_MS)
