# SPDX-License-Identifier: Apache-2.0
"""A connection that says nothing, says it too slowly or does not read its answer ends: uvicorn waits for ever.

uvicorn itself ends connections on which nothing follows an answer (``timeout_keep_alive``). What is here is for all
others: until a request's head is there, until its body is there, until an answer is read.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final, Literal, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

HANDSHAKE_S: Final = 10.0
IN_PARTS: Final = "vgpuctl.in_parts"
"""Extension of the ASGI scope: a route that calls its ``begin`` times the body itself, part by part."""

Awaited = Literal["head", "body"]
"""What the client still has to send."""


class TimedHttpProtocol(H11Protocol):
    """HTTP of a connection that ends when its client keeps us waiting. The clock of a head or a body is not set back by
    a part of it: a byte a second is silence."""

    SENT_WITHIN_S: ClassVar[dict[Awaited, float]] = {"head": 15.0, "body": 60.0}
    """A body is at most 1 MiB (api/limits.py), or is timed by who takes it (api/file_bodies.py)."""
    READ_WITHIN_S: ClassVar = 60.0
    """So long nothing, or less than there is room for, was taken of an answer."""

    _awaited: Awaited | None = None
    _in_parts = False
    _sending: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # the base narrows the type, asyncio does not
        super().connection_made(cast(asyncio.Transport, transport))
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        self._in_parts = False  # what still comes of a file that was refused is thrown away, but not for long
        super().on_response_complete()
        self._look()
        self._close_though_unread()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._close_though_unread()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self._reading or self._end_after(self.READ_WITHIN_S)

    def resume_writing(self) -> None:
        super().resume_writing()
        _stop(self._reading)
        self._reading = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _look(self) -> None:
        """What is awaited now; a new wait begins where it was something else before."""
        if self.scope is not None:  # of a request whose application begins when this has returned
            self.scope.setdefault("extensions", {})[IN_PARTS] = {"begin": self._time_in_parts}
        awaited = self._now_awaited()
        if awaited != self._awaited:
            self._awaited = awaited
            _stop(self._sending)
            if awaited is not None and not self.transport.is_closing():
                self._sending = self._end_after(self.SENT_WITHIN_S[awaited])

    def _now_awaited(self) -> Awaited | None:
        if self.transport.get_protocol() is not self:  # a websocket: api/routes/guest_streams.py bounds it
            return None
        state = str(self.conn.their_state)  # as h11 names them
        if state == "SEND_BODY":
            return None if self._in_parts else "body"
        self._in_parts = False
        return "head" if state == "IDLE" and self.timeout_keep_alive_task is None else None

    def _time_in_parts(self) -> None:
        self._in_parts = str(self.conn.their_state) == "SEND_BODY"
        self._look()

    def _close_though_unread(self) -> None:
        """A transport that closes sends first what it still has."""
        if self.transport.is_closing() and self._reading is None:
            self._reading = self._end_after(self.READ_WITHIN_S)

    def _end_after(self, seconds: float) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, self.transport.abort)

    def _stop(self) -> None:
        _stop(self._sending)
        _stop(self._reading)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
