# SPDX-License-Identifier: Apache-2.0
"""A unix socket whose every connection has a thread, for what stands where simulated hosts are asked for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class Listening:
    """On ``path`` until it is closed or the process ends."""

    def __init__(self, path: Path, serve: Callable[[socket.socket], None]) -> None:
        """``serve``: is given each connection, and closes it."""
        self._serve = serve
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
