# SPDX-License-Identifier: Apache-2.0
"""The places of an agent's sessions: who has one, how long nothing came from it, and who gives way to a newcomer.

A controller's machine may lose its power and sshd's relay still hold our socket open, so nothing but silence says that
the other end is gone.
"""

from __future__ import annotations

import io
import select
import socket
import threading
import time
from typing import Final

from orchestrator.core.errors import Retryable

MAX_SESSIONS: Final = 128
CHANNEL_SILENT_S: Final = 900.0
"""A channel without a request, or an image without a byte, ends after so long. Controllers use none again that was
unused for most of it (adapters/agent_link/conversation.py)."""
KEEPALIVE_S: Final = 15.0
"""How often a watching controller that can answer is asked whether it is there."""
KEEPALIVES_MISSED: Final = 4
STREAM_SILENT_S: Final = 3600.0
"""A console may be quiet for long: it ends when its controller was not heard on any session for so long."""
FULL_TOLD_S: Final = 600.0


class Place:
    """One session's. ``controller``: its name, "" of one too old to tell. ``stream``: a person may miss it."""

    def __init__(self, connection: socket.socket, *, controller: str, stream: bool) -> None:
        self.controller = controller
        self.stream = stream
        self.working = False
        """An answer is under way: it is not ended meanwhile."""
        self.heard = time.monotonic()
        self._connection = connection

    def end(self) -> None:
        """Wakes its thread, which sees the end of the stream."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended by itself


class HeardReader:
    """Reads what a controller sends, and notes when."""

    def __init__(self, reader: io.BufferedReader, place: Place) -> None:
        self._reader = reader
        self._place = place

    def read(self, size: int, /) -> bytes:
        return self._noted(self._reader.read(size))

    def read1(self, size: int, /) -> bytes:
        return self._noted(self._reader.read1(size))

    def _noted(self, data: bytes) -> bytes:
        self._place.heard = time.monotonic()
        return data


class Sessions:
    """Safe for threads."""

    def __init__(self, most: int = MAX_SESSIONS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._places: set[Place] = set()
        self._full_at: float | None = None

    def enter(self, new: Place) -> None:
        """When all places are taken, the session of the same controller that was silent longest gives way, streams
        last.

        :raises Retryable: ``agent.sessions_full``"""
        with self._lock:
            self._end_silent_streams(new)
            if len(self._places) >= self._most:
                self._full_at = time.monotonic()
                self._make_way(new)
            self._places.add(new)

    def leave(self, place: Place) -> None:
        with self._lock:
            self._places.discard(place)

    def full(self) -> bool:
        """Whether all places are taken, or were a short while ago when somebody came."""
        with self._lock:
            lately = self._full_at is not None and time.monotonic() - self._full_at < FULL_TOLD_S
            return lately or len(self._places) >= self._most

    def _make_way(self, new: Place) -> None:
        own = (place for place in self._places if place.controller == new.controller and not place.working)
        silent = min(own, key=lambda place: (place.stream, place.heard), default=None)
        if silent is None:
            raise sessions_full(f"all {self._most} places are taken")
        self._end(silent)

    def _end_silent_streams(self, new: Place) -> None:
        heard = {new.controller: new.heard}
        for place in self._places:
            heard[place.controller] = max(place.heard, heard.get(place.controller, place.heard))
        limit = time.monotonic() - STREAM_SILENT_S
        for place in [place for place in self._places if place.stream and heard[place.controller] < limit]:
            self._end(place)

    def _end(self, place: Place) -> None:
        self._places.discard(place)
        place.end()


def readable(connection: socket.socket) -> bool:
    """Now: bytes have come, or its end. Of a process with many open files too, which select.select does not take."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def sessions_full(details: str) -> Retryable:
    """What a newcomer is told before its connection is closed."""
    return Retryable(
        "agent.sessions_full",
        "the agent has as many sessions as it takes, and none of this controller can end",
        hint="try again; on the host 'systemctl restart vgpuctl-agent' ends all of them, and no VM stops",
        details=details,
    )
