# SPDX-License-Identifier: Apache-2.0
"""What systemd is told of this process: that it is ready, stops, and still runs its event loop (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import Final

PATIENCE_S: Final = 1.0
"""A service manager that does not read must not stop the event loop."""


def tell_service_manager(message: str) -> None:
    """``READY=1``, ``WATCHDOG=1`` and ``STOPPING=1``; nothing without a service manager."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where.startswith(("/", "@")):
        return
    address = "\0" + where[1:] if where.startswith("@") else where
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.settimeout(PATIENCE_S)
        ear.sendto(message.encode(), address)


class Alive:
    """Told by the event loop, so that a loop that has stopped is noticed: who is not told for ``WatchdogSec`` ends the
    process and starts another one."""

    def __init__(self) -> None:
        usec = os.environ.get("WATCHDOG_USEC", "")
        ours = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._every_s = int(usec) / 3e6 if ours and usec.isascii() and usec.isdigit() else None
        self._next = time.monotonic()

    def tell(self) -> None:
        """Three times in the time that the service manager waits, however often this is called."""
        if self._every_s is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every_s
            tell_service_manager("WATCHDOG=1")
