# SPDX-License-Identifier: Apache-2.0
"""One thread that reads the host while anybody watches, and the newest frame for all who do.

A watcher that is slow misses frames: none is kept for it, so that any number of watchers cost one frame.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from orchestrator.core.contained import Contained
from orchestrator.core.protocol import encode_frame
from orchestrator.core.readings.frame import PERIOD_S, READINGS_BYTES, HostFrame, frame_to_dict

_END_S: Final = 5.0
log = logging.getLogger(__name__)


class Readings:
    """Safe for threads. ``sample``: reads the host; called by this object's thread alone."""

    def __init__(self, sample: Callable[[], HostFrame | None], period_s: float = PERIOD_S) -> None:
        """None of ``sample``: nothing could be read just now, as the host is being changed."""
        self._sample = sample
        self._period_s = period_s
        self._changed = threading.Condition()
        self._watchers = 0
        self._ended = False
        self._number = 0
        self._newest = b""
        self._due = 0.0
        self._thread = threading.Thread(target=self._run, name="readings", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """A reading that hangs is left to itself."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join(_END_S)

    @contextmanager
    def watched(self) -> Iterator[Watch]:
        """The host is read for as long as this is held; the first frame comes at once."""
        with self._changed:
            self._watchers += 1
            self._changed.notify_all()
        try:
            yield Watch(self)
        finally:
            with self._changed:
                self._watchers -= 1

    def newer_than(self, number: int) -> tuple[int, bytes] | None:
        """The newest frame with its number, as a message ready to be sent; None: there is none that is newer, or the
        newest is too old to be told."""
        with self._changed:
            if self._number <= number or time.monotonic() > self._due + self._period_s:
                return None
            return self._number, self._newest

    def _run(self) -> None:
        while self._wait_until_due():
            frame: HostFrame | None = None
            with Contained(_log_broken):
                frame = self._sample()
            message = b"" if frame is None else encode_frame({"readings": frame_to_dict(frame)})
            if len(message) > READINGS_BYTES:
                log.error("a frame of readings has %d bytes: it is not sent", len(message))
                message = b""
            with self._changed:
                self._due = time.monotonic() + self._period_s
                if message:
                    self._number, self._newest = self._number + 1, message

    def _wait_until_due(self) -> bool:
        """Whether to go on."""
        with self._changed:
            while not self._ended:
                if not self._watchers:
                    self._changed.wait()
                elif (left := self._due - time.monotonic()) > 0:
                    self._changed.wait(left)
                else:
                    return True
        return False


class Watch:
    """One watcher's: used by its thread alone."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._number = 0

    def newer(self) -> bytes | None:
        """A frame that this watcher has not had yet, as a message ready to be sent."""
        newest = self._readings.newer_than(self._number)
        if newest is None:
            return None
        self._number, message = newest
        return message


def _log_broken(error: Exception) -> None:
    """The next reading may be well again."""
    log.error("reading the host broke", exc_info=error)
