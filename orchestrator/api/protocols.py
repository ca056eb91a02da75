# SPDX-License-Identifier: Apache-2.0
"""uvicorn's protocols, with deadlines for slow clients and with the peer's uid on unix sockets.

uvicorn itself ends connections on which nothing follows an answer (``timeout_keep_alive``). What is here is for all
others: until a request's head is there, until its body is there, until an answer is read. The kernel says who is at
the other end of a unix socket (SO_PEERCRED, unix(7)), so no request can claim to be somebody else.
"""

from __future__ import annotations

import asyncio
import re
import socket
from typing import ClassVar, Final, Literal, cast

from starlette.requests import HTTPConnection
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from orchestrator.api.connection_limits import peer_credentials
from orchestrator.core.tenancy.audit import Origin

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
        self._set_timers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_timers()

    def on_response_complete(self) -> None:
        self._in_parts = False  # what still comes of a file that was refused is thrown away, but not for long
        super().on_response_complete()
        self._set_timers()
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

    def _set_timers(self) -> None:
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
        self._set_timers()

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


_UID_PREFIX: Final = "uid:"
_AGENT: Final = 120
_INTERFACES: Final = {f"vgpuctl-{name}": name for name in ("cli", "ansible", "python", "web")}
_UID: Final = re.compile("0|[1-9][0-9]{0,9}", re.ASCII)


def _peer(transport: asyncio.BaseTransport) -> tuple[str, int] | None:
    """``("uid:<uid>", pid)`` in the place where ASGI has a client's address."""
    connected = transport.get_extra_info("socket")
    if connected is None or connected.family != socket.AF_UNIX:
        return None
    pid, uid, _ = peer_credentials(connected)
    return f"{_UID_PREFIX}{uid}", pid


class PeerHttpProtocol(TimedHttpProtocol):
    """HTTP on a unix socket; ``scope["client"]`` is the peer's uid and pid."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # the base narrows the type, asyncio does not
        super().connection_made(cast(asyncio.Transport, transport))
        self.client = _peer(transport) or self.client


class PeerWebSocketProtocol(WebSocketsSansIOProtocol):
    """The same for websockets: a client that takes nothing of what it is sent loses its connection."""

    READ_WITHIN_S: ClassVar = TimedHttpProtocol.READ_WITHIN_S
    _reading: asyncio.TimerHandle | None = None
    _over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client = _peer(transport) or self.client

    def pause_writing(self) -> None:
        super().pause_writing()
        self._time_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._over:
            _stop(self._reading)
            self._reading = None

    def handle_ping(self) -> None:
        """Answers that nobody reads would be kept."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def handle_cont(self, event: Frame) -> None:
        """A piece with nothing in it counts for no bound."""
        if event.data or event.fin:
            super().handle_cont(event)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """A transport that closes sends first what it still has."""
        super().on_task_complete(task)
        self._over = True
        if not self.disconnected:
            self._time_reading()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()

    def _time_reading(self) -> None:
        self._reading = self._reading or self.loop.call_later(self.READ_WITHIN_S, self.transport.abort)

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self._end_handshake()

    def connection_lost(self, exc: Exception | None) -> None:
        _stop(self._reading)
        super().connection_lost(exc)
        self._end_handshake()

    def _end_handshake(self) -> None:
        """A refusal ends it too, and a client that has left: uvicorn would log each as an error of the application."""
        self.handshake_complete = True


def origin_of(connection: HTTPConnection) -> Origin:
    """From where and with what a request came; what the client says of itself is cut and printable."""
    named = ascii(connection.headers.get("user-agent", ""))[1:-1][:_AGENT]
    client = connection.client
    uid = uid_of(connection)
    source = "unknown" if client is None else client.host if uid is None else _local_source(client.port)
    return Origin(source=source, interface=_INTERFACES.get(named.partition("/")[0], "api"), user_agent=named)


def _local_source(pid: int) -> str:
    """0: a page of a user whom the kernel vouched for when it was opened."""
    return f"unix pid {pid}" if pid else "loopback"


def uid_of(connection: HTTPConnection) -> int | None:
    """The peer's uid; None: it is not at the other end of the unix socket."""
    host = connection.client.host if connection.client else ""
    uid = host.removeprefix(_UID_PREFIX) if host.startswith(_UID_PREFIX) else ""
    return int(uid) if _UID.fullmatch(uid) else None
