# SPDX-License-Identifier: Apache-2.0
"""Logs: one JSON object a line on standard error, from our own code and from libraries alike."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

AT_ONCE: Final = 20
WINDOW_S: Final = 10.0
MAX_PLACES: Final = 10_000


class Repeats(logging.Filter):
    """Of lines from the same place of the code, :data:`AT_ONCE` in :data:`WINDOW_S` seconds; then how many more there
    were. A stranger who makes us write a line must not be able to fill the disk."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._seen: dict[tuple[str, str, int], tuple[float, int]] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        place, now = (record.name, record.pathname, record.lineno), self._now()
        with self._lock:
            began, count = self._seen.get(place, (now, 0))
            left_out = max(0, count - AT_ONCE) if now - began >= WINDOW_S else 0
            if now - began >= WINDOW_S:
                began, count = now, 0
            if len(self._seen) > MAX_PLACES:
                self._seen.clear()
            self._seen[place] = (began, count + 1)
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} more like it were left out)", ()
        return count < AT_ONCE


def configure(level: str = "INFO") -> None:
    """Send everything that is logged to standard error. Calling it again replaces the earlier settings."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Repeats())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("paramiko").setLevel(logging.WARNING)  # it logs every connection
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # it logs its start, its end and every websocket
    logging.getLogger("alembic").setLevel(logging.WARNING)
