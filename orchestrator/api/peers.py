# SPDX-License-Identifier: Apache-2.0
"""Who is at the other end of the unix socket: uvicorn's protocols, telling the application the peer's uid.

The kernel answers (SO_PEERCRED, unix(7)), so no request can claim to be somebody else.
"""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Final, cast

from starlette.requests import HTTPConnection
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from orchestrator.api.admission import peer_credentials
from orchestrator.api.deadlines import TimedHttpProtocol
from orchestrator.core.tenancy.audit import Origin

_UID_PREFIX: Final = "uid:"
_AGENT: Final = 120
_INTERFACES: Final = {"vgpuctl-cli": "cli", "vgpuctl-ansible": "ansible", "vgpuctl-python": "python"}
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
    """The same for websockets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client = _peer(transport) or self.client

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self._end_handshake()

    def connection_lost(self, exc: Exception | None) -> None:
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
    source = "unknown" if client is None else client.host if uid is None else f"unix pid {client.port}"
    return Origin(source=source, interface=_INTERFACES.get(named.partition("/")[0], "api"), user_agent=named)


def uid_of(connection: HTTPConnection) -> int | None:
    """The peer's uid; None: it is not at the other end of the unix socket."""
    host = connection.client.host if connection.client else ""
    uid = host.removeprefix(_UID_PREFIX) if host.startswith(_UID_PREFIX) else ""
    return int(uid) if _UID.fullmatch(uid) else None
