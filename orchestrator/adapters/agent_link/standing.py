# SPDX-License-Identifier: Apache-2.0
"""An SSH transport that may stand for days: it costs nothing while nothing comes, and tells when it is lost.

The kernel asks the other side whether it is there (TCP keepalive), so that no thread has to: the heartbeat of a host.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Final

import paramiko

SILENT_AFTER_S: Final = 9
"""After so long without an answer of the other side's kernel the connection is lost."""
_POLL_S: Final = 60.0
"""paramiko's own thread reads with a tenth of a second as its limit: 27 % of a core with a thousand connections."""
_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_AFTER_S * 1000),
)


def _nobody() -> None:
    """Nobody wants to know."""


class StandingTransport(paramiko.Transport):
    """``connection``: to the host's SSH port."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._connection = connection
        self._tell_lost: Callable[[], None] = _nobody

    def stand(self, lost: Callable[[], None]) -> None:
        """Logged in; ``lost`` is called when it ends without :meth:`close`, on its own thread."""
        for level, option, value in _OPTIONS:
            self._connection.setsockopt(level, option, value)
        self._connection.settimeout(_POLL_S)
        self._tell_lost = lost

    def run(self) -> None:
        super().run()
        self._tell_lost()

    def close(self) -> None:
        self._tell_lost = _nobody
        with contextlib.suppress(OSError):  # wakes its thread, which waits for bytes
            self._connection.shutdown(socket.SHUT_RDWR)
        super().close()
