# SPDX-License-Identifier: Apache-2.0
"""/v1/vms/{name}/console-tickets and /console-sessions/{kind}: consoles of which one person writes and others watch."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Final

import anyio
from anyio import to_thread
from fastapi import APIRouter, Request, WebSocket
from starlette.types import Message
from starlette.websockets import WebSocketDisconnect

from orchestrator.api.allowance import settle, take_one
from orchestrator.api.auth import ASK_AGAIN_S, credential_of, still_may
from orchestrator.api.errors import refusal
from orchestrator.api.routes.guest_streams import (
    CHUNK,
    CLOSE_S,
    ENDED,
    NO_BYTES,
    OPENING,
    allowed,
    end,
    relay,
    stream_place,
)
from orchestrator.api.schemas.base import VmInPath, moment
from orchestrator.api.schemas.guests import AskForConsoleBody, ConsoleTicketAnswer
from orchestrator.api.services import ServicesOf, TenantOf
from orchestrator.api.use_cases import Services
from orchestrator.core.errors import Conflict, Denied, InvalidInput, NotFound, VgpuctlError
from orchestrator.core.rfb import ViewerMessages
from orchestrator.core.tenancy.access import Caller
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.core.vms.console_session import IDLE_S, LONGEST_S, ConsoleKind, ConsoleSession, is_typed
from orchestrator.services.guests.consoles import AtConsole

router = APIRouter(prefix="/vms", tags=["vms"])
streams = APIRouter(prefix="/vms", tags=["vms"])
PROTOCOL: Final = "binary"
_TICKET: Final = "ticket."
REFUSED_FOR_A_REASON: Final = 4000
"""Closed after a text message with the problem."""
MAX_TEXT: Final = 200
"""Characters of a client's text message."""
_TAKE_OVER: Final = {"take_over": True}
_GONE: Final = (WebSocketDisconnect, OSError, RuntimeError)
"""What a client that has left raises."""


@router.post("/{name}/console-tickets", status_code=201)
def give_ticket(
    name: VmInPath, body: AskForConsoleBody, request: Request, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> ConsoleTicketAnswer:
    """Ask for a ticket for a VM's console. It is good once, for 30 s, with the credential of this request."""
    ticket, until = services.consoles.give(tenant, name, body.kind, credential_of(request), body.origin)
    return ConsoleTicketAnswer(ticket=ticket, expires_at=moment(until))


@streams.websocket("/{name}/console-sessions/{kind}")
async def open_session(
    socket: WebSocket, name: str, kind: str, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> None:
    """A console with a ticket."""

    async def serve(caller: Caller) -> None:
        use = partial(services.consoles.use, _ticket_of(socket), tenant, name, _known(kind), credential_of(socket))
        with stream_place(tenant):
            session = await to_thread.run_sync(use, socket.headers.get("origin"))
            attended = AttendedConsole(socket, services, tenant, session, caller)
            _attended.add(attended)
            try:
                await attended.serve()
            finally:
                _attended.remove(attended)
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(services.consoles.leave, session, attended.why)
                    settle(socket.scope)
                    await attended.tell_others()

    await allowed(socket, services, tenant, serve)


def _known(kind: str) -> ConsoleKind:
    """:raises NotFound: ``request.no_such_path``"""
    if kind == "serial":
        return "serial"
    if kind == "graphical":
        return "graphical"
    raise NotFound("request.no_such_path", "there is no such kind of console", hint="serial or graphical")


def _ticket_of(socket: WebSocket) -> str:
    """:raises Denied: ``console.ticket_missing``"""
    offered: list[str] = socket.scope["subprotocols"]
    tickets = [protocol.removeprefix(_TICKET) for protocol in offered if protocol.startswith(_TICKET)]
    if PROTOCOL not in offered or len(tickets) != 1:
        raise Denied(
            "console.ticket_missing",
            "this console is opened with a ticket",
            hint=f"ask for one, and name the subprotocols {PROTOCOL} and {_TICKET}TICKET",
        )
    return tickets[0]


@dataclass(eq=False)
class AttendedConsole:
    """One session. Everything here runs on the event loop."""

    socket: WebSocket
    services: Services
    tenant: str
    session: ConsoleSession
    caller: Caller
    why: str = "closed"
    """With which code it ended; ``closed``: by one of its ends."""
    _writes: bool = False
    _shown: AtConsole | None = None
    _messages: ViewerMessages = field(default_factory=ViewerMessages)
    _reporting: anyio.Lock = field(default_factory=anyio.Lock)
    _began: float = field(default_factory=time.monotonic)
    _typed_at: float = field(default_factory=time.monotonic)

    async def serve(self) -> None:
        """Until an end closes it, or it may not go on. Its client gets the problem that refuses it."""
        await self.socket.accept(PROTOCOL)
        try:
            stream = await to_thread.run_sync(self.services.consoles.open, self.tenant, self.session, limiter=OPENING)
            try:
                await self._report()  # not before: who hears it is connected
                await self.tell_others()
                await relay(self.socket, stream, self._watch, self._taken)
            finally:
                stream.close()  # not before nobody waits for it any more: its descriptor may be another's then
        except VgpuctlError as error:
            await self._refuse(error)
        except _GONE:
            return

    async def _watch(self) -> None:
        """Asks again and again whether it may go on."""
        while True:
            await anyio.sleep(ASK_AGAIN_S)
            if not await still_may(self.socket):
                self.why = "no_longer_allowed"
                await end(self.socket, ENDED, "who opened it may no longer")
                return
            try:
                self._check_time()
                await self._report()
            except (Conflict, NotFound, Denied) as error:
                await self._refuse(error)
                return
            except _GONE:
                return
            except VgpuctlError:
                continue  # a database that is away for a moment says nothing of anybody

    def _check_time(self) -> None:
        """:raises Conflict: ``console.idle``, ``console.too_long``"""
        now = time.monotonic()
        if now - self._typed_at > IDLE_S:
            raise Conflict("console.idle", f"nothing was typed for {IDLE_S / 60:.0f} minutes", hint="open it again")
        if now - self._began > LONGEST_S:
            raise Conflict("console.too_long", f"it was open for {LONGEST_S / 3600:.0f} hours", hint="open it again")

    async def _report(self) -> None:
        """Whoever reads nothing holds up neither the questions of whether it may go on nor anybody else: it is told
        later."""
        async with self._reporting:  # what was asked later is known later
            at = await to_thread.run_sync(self.services.consoles.at, self.tenant, self.session)
            self._writes = at.you_write
            if at != self._shown:
                with anyio.move_on_after(CLOSE_S):
                    await self.socket.send_text(json.dumps({"at": asdict(at)}))
                    self._shown = at

    async def _taken(self, message: Message) -> bytes | None:
        """What of it reaches the guest; None: it is nothing that a client may say."""
        text, data = message.get("text"), message.get("bytes")
        if data is None:
            return await self._obey(text or "")
        if self.session.kind == "serial":
            if is_typed(data):
                self._typed_at = time.monotonic()
            return data if self._writes else b""
        typed = self._messages.typed
        passed = b""
        try:
            for at in range(0, len(data), CHUNK):
                passed += self._messages.passed(data[at : at + CHUNK], writes=self._writes)
                await anyio.sleep(0)  # others are served between two pieces
        except InvalidInput as error:
            await self._refuse(error)
            return None
        if self._messages.typed > typed:
            self._typed_at = time.monotonic()
        return passed

    async def _obey(self, text: str) -> bytes | None:
        if len(text) > MAX_TEXT or _parsed(text) != _TAKE_OVER:
            self.why = "no_such_message"
            await end(self.socket, NO_BYTES, "bytes, or a wish to take over")
            return None
        self._typed_at = time.monotonic()
        if self._writes:
            return b""
        try:
            take_one(self.socket, self.caller)
        except VgpuctlError as error:
            await self._refuse(error)
            return None
        await to_thread.run_sync(self.services.consoles.take_over, self.session)
        settle(self.socket.scope)
        await self.tell_others()
        await self._report()
        return b""

    async def tell_others(self) -> None:
        """Those that this controller serves, at once; others hear of it when they ask next."""
        async with anyio.create_task_group() as tasks:
            for other in _attended - {self}:
                if (other.session.vm, other.session.kind) == (self.session.vm, self.session.kind):
                    tasks.start_soon(other._hear)

    async def _hear(self) -> None:
        with suppress(VgpuctlError, *_GONE):
            await self._report()

    async def _refuse(self, error: VgpuctlError) -> None:
        self.why = error.code
        problem = bytes(refusal(error, self.caller).body).decode()
        with anyio.move_on_after(CLOSE_S), suppress(*_GONE):
            await self.socket.send_text(f'{{"problem": {problem}}}')
        await end(self.socket, REFUSED_FOR_A_REASON, error.code)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


_attended: Final[set[AttendedConsole]] = set()
"""Those that are open here. Lives on the event loop only."""
