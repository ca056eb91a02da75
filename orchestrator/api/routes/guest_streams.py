# SPDX-License-Identifier: Apache-2.0
"""/v1/vms/{name}/console, /display and /tcp/{port}: raw bytes of a guest over a websocket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import anyio
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, WebSocket
from starlette.types import Message
from starlette.websockets import WebSocketDisconnect, WebSocketState

from orchestrator.api.allowance import settle, take_one
from orchestrator.api.auth import ASK_AGAIN_S, authorize, still_may
from orchestrator.api.errors import refusal
from orchestrator.api.http_requests import only_known_parameters, storable_target
from orchestrator.api.refusals import asker_of, subject_of
from orchestrator.api.services import ServicesOf, TenantOf
from orchestrator.api.use_cases import Services
from orchestrator.core.errors import Conflict, InvalidInput, VgpuctlError
from orchestrator.core.tenancy.access import Caller
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.ports.host import ByteStream

router = APIRouter(prefix="/vms", tags=["vms"])
CHUNK: Final = 65536
MAX_STREAMS: Final = 64
MAX_STREAMS_PER_TENANT: Final = 16
CLOSE_S: Final = 1.0
ENDED: Final = 1008
"""RFC 6455 §7.4.1: against the policy."""
NO_BYTES: Final = 1003
"""The same: a kind of data that is not taken."""
FULL_S: Final = 0.05
"""Until a guest that takes no bytes is asked again."""
_open: Counter[str] = Counter()
"""Streams by tenant. Lives on the event loop only."""
OPENING: Final = CapacityLimiter(MAX_STREAMS)
MOVING: Final = CapacityLimiter(16)
"""A thread is held while a stream is opened and while bytes are on their way, never by a stream on which nothing is
said; and none of those that answer requests."""


@router.websocket("/{name}/console")
async def console(socket: WebSocket, name: str, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> None:
    """The serial console."""
    await _serve(socket, services, tenant, lambda: services.guest_access.open_console(tenant, name))


@router.websocket("/{name}/display")
async def display(socket: WebSocket, name: str, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> None:
    """The graphical console: RFB."""
    await _serve(socket, services, tenant, lambda: services.guest_access.open_display(tenant, name))


@router.websocket("/{name}/tcp/{port}")
async def tcp(
    socket: WebSocket,
    name: str,
    port: str,
    services: ServicesOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> None:
    """A TCP port of the guest, reached from its host."""
    await _serve(socket, services, tenant, lambda: services.guest_access.open_tcp(tenant, name, _port(port)))


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise InvalidInput("port.out_of_range", f"{text[:20]!a} is not a TCP port", hint="1 to 65535")
    return int(text)


async def _serve(socket: WebSocket, services: Services, tenant: str, open_stream: Callable[[], ByteStream]) -> None:
    async def joined(_: Caller) -> None:
        with stream_place(tenant):
            stream = await to_thread.run_sync(open_stream, limiter=OPENING)
            settle(socket.scope)
            await join(socket, stream, partial(still_may, socket))

    await allowed(socket, services, tenant, joined)


async def allowed(
    socket: WebSocket, services: Services, tenant: str, serve: Callable[[Caller], Awaitable[None]]
) -> None:
    """``serve`` for whoever may; a refusal, also of its own before the websocket is open, is answered and on record."""
    try:
        await storable_target(socket)
        caller = await authorize(socket)
        await only_known_parameters(socket)
        take_one(socket, caller)
        await serve(caller)
    except WebSocketDisconnect:
        return  # its client left before it was open
    except VgpuctlError as error:
        settle(socket.scope)
        subject, outcome = subject_of(ascii(socket.url.path)[1:-1], tenant), f"refused: {error.code}"
        known = getattr(socket.state, "caller", None)
        refused = partial(services.tenancy.audit.refused, asker=asker_of(known))
        await to_thread.run_sync(refused, "WEBSOCKET", subject, outcome)
        with suppress(WebSocketDisconnect, OSError):  # its client has left
            await socket.send_denial_response(refusal(error, known))


@contextmanager
def stream_place(tenant: str) -> Iterator[None]:
    """:raises Conflict: ``stream.too_many``"""
    of_tenant = _open[tenant] >= MAX_STREAMS_PER_TENANT
    if of_tenant or _open.total() >= MAX_STREAMS:
        raise Conflict(
            "stream.too_many",
            f"{'the tenant' if of_tenant else 'this server'} has as many streams open as it may",
            hint="close a console or a connection that is no longer needed",
        )
    _open[tenant] += 1
    try:
        yield
    finally:
        _open[tenant] -= 1
        if not _open[tenant]:
            del _open[tenant]


async def join(socket: WebSocket, stream: ByteStream, may: Callable[[], Awaitable[bool]]) -> None:
    """Until one of the ends closes, or who opened it may no longer."""
    try:
        await socket.accept()
        await relay(socket, stream, partial(_while_allowed, socket, may), partial(_bytes_alone, socket))
    finally:
        stream.close()  # not before nobody waits for it any more: its descriptor may be another's then


async def relay(
    socket: WebSocket,
    stream: ByteStream,
    watch: Callable[[], Awaitable[None]],
    taken: Callable[[Message], Awaitable[bytes | None]],
) -> None:
    """Until one of the ends closes or ``watch`` returns. ``taken``: what of a client's message goes to the guest; None:
    the stream is over."""

    async def watched(both: anyio.CancelScope) -> None:
        await watch()
        both.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_to_client, socket, stream, tasks.cancel_scope)
        tasks.start_soon(watched, tasks.cancel_scope)
        await _to_guest(socket, stream, taken)
        tasks.cancel_scope.cancel()


async def _while_allowed(socket: WebSocket, may: Callable[[], Awaitable[bool]]) -> None:
    while await may():
        await anyio.sleep(ASK_AGAIN_S)
    await end(socket, ENDED, "who opened it may no longer")


async def end(socket: WebSocket, code: int, reason: str) -> None:
    """Close it, and wait no longer than that for a client that reads nothing."""
    with anyio.move_on_after(CLOSE_S), suppress(WebSocketDisconnect, OSError, RuntimeError):
        await socket.close(code, reason)


async def _bytes_alone(socket: WebSocket, message: Message) -> bytes | None:
    data: bytes | None = message.get("bytes")
    if data is None:
        await socket.close(NO_BYTES, "bytes, no text")
    return data


async def _to_guest(socket: WebSocket, stream: ByteStream, taken: Callable[[Message], Awaitable[bytes | None]]) -> None:
    try:
        while True:
            message = await socket.receive()
            if socket.client_state is WebSocketState.DISCONNECTED:
                return
            data = await taken(message)
            if data is None:
                return
            while data:
                sent = await to_thread.run_sync(stream.send, data, limiter=MOVING)
                data = data[sent:]
                if not sent:
                    await anyio.sleep(FULL_S)
    except (WebSocketDisconnect, VgpuctlError, OSError, RuntimeError):  # RuntimeError: closed by the other direction
        return


async def _to_client(socket: WebSocket, stream: ByteStream, both: anyio.CancelScope) -> None:
    """Until the guest's side ends; then the other direction ends too."""
    try:
        while data := await _received(stream):
            await socket.send_bytes(data)
        await socket.close()
    except (WebSocketDisconnect, VgpuctlError, OSError):
        pass
    both.cancel()


async def _received(stream: ByteStream) -> bytes:
    await anyio.wait_readable(stream.fileno())
    return await to_thread.run_sync(stream.receive, CHUNK, limiter=MOVING)
