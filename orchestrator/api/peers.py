# SPDX-License-Identifier: Apache-2.0
"""Who is at the other end of the unix socket: uvicorn's protocols, telling the application the peer's uid.

The kernel answers (SO_PEERCRED, unix(7)), so no request can claim to be somebody else.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Final, cast

from starlette.requests import HTTPConnection
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from orchestrator.core.errors import Denied

_UCRED: Final = struct.Struct("3i")
_UID_PREFIX: Final = "uid:"


def _peer(transport: asyncio.BaseTransport) -> tuple[str, int] | None:
    """``("uid:<uid>", pid)`` in the place where ASGI has a client's address."""
    connected = transport.get_extra_info("socket")
    if connected is None or connected.family != socket.AF_UNIX:
        return None
    pid, uid, _ = _UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return f"{_UID_PREFIX}{uid}", pid


class PeerHttpProtocol(H11Protocol):
    """HTTP on a unix socket; ``scope["client"]`` is the peer's uid and pid."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # the base narrows the type, asyncio does not
        super().connection_made(cast(asyncio.Transport, transport))
        self.client = _peer(transport) or self.client


class PeerWebSocketProtocol(WebSocketsSansIOProtocol):
    """The same for websockets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client = _peer(transport) or self.client


def require_admin(connection: HTTPConnection) -> None:
    """Root and the server's owner may do everything; nobody else may do anything.

    :raises Denied: ``peer.denied``
    """
    host = connection.client.host if connection.client else ""
    uid = host.removeprefix(_UID_PREFIX) if host.startswith(_UID_PREFIX) else None
    if uid not in {"0", str(os.geteuid())}:
        raise Denied(
            "peer.denied",
            "this server obeys its owner and root only",
            hint="run the command as the user who runs the server",
        )
