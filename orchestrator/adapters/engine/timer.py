# SPDX-License-Identifier: Apache-2.0
"""Something done again and again on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from orchestrator.core.errors import WorldError

log = logging.getLogger(__name__)


class Timer:
    """Calls ``action`` every ``seconds`` from :meth:`start` until :meth:`stop`; never twice at once."""

    def __init__(self, action: Callable[[], None], seconds: float) -> None:
        self._action = action
        self._seconds = seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="timer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns at once; a running action ends by itself."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            try:
                self._action()
            except WorldError as error:  # the database is away: the next time may find it again
                log.warning("%s: %s", error.message, error.details)
