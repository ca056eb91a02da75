# SPDX-License-Identifier: Apache-2.0
"""Serves the API: one process per state directory, ends when told or when idle for long enough. systemd is told that
it is ready, stops, and still runs its event loop (sd_notify(3))."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import uvicorn
from anyio import to_thread
from fastapi import FastAPI
from starlette.types import ASGIApp

from orchestrator.api.app import create_app
from orchestrator.api.certificate import ServedCertificate
from orchestrator.api.connection_limits import Listener
from orchestrator.api.event_feed import EventFeed
from orchestrator.api.listening import BACKLOG, GroupSocket, Tls, network_socket, unix_socket
from orchestrator.api.loopback import Loopback
from orchestrator.api.protocols import HANDSHAKE_S, PeerHttpProtocol, PeerWebSocketProtocol
from orchestrator.api.routes.server import running_operations
from orchestrator.api.services import Process
from orchestrator.api.use_cases import Services
from orchestrator.api.waiting import Waiting
from orchestrator.client.file_lock import LockTimeout, file_lock
from orchestrator.client.location import SERVE_LOCK_NAME, SOCKET_NAME
from orchestrator.core.errors import Conflict

CLOSE_LIMIT_S: Final = 5
"""How long open requests may take to end when the server stops."""
TICK_S: Final = 0.2
MAX_MESSAGE: Final = 1 << 20
"""Bytes of a websocket's message; programs of ours send 64 KiB at once."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process before operations are parked, and with a
    deadline for handshakes, which it leaves at a minute."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        loop, config = asyncio.get_running_loop(), self.config

        def protocol() -> PeerHttpProtocol:
            return PeerHttpProtocol(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        self.servers = [
            await loop.create_server(
                protocol,
                sock=listener,
                ssl=config.ssl,
                backlog=BACKLOG,
                ssl_handshake_timeout=HANDSHAKE_S if config.ssl else None,
                ssl_shutdown_timeout=HANDSHAKE_S if config.ssl else None,
            )
            for listener in sockets or []
        ]
        self.started = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def only_one(state: Path, timeout_s: float, inherited: int | None = None) -> Iterator[None]:
    """Hold the state directory. Waits for one that is just ending, parking its operations. ``inherited``: the lock's
    descriptor where the command that became this server took it.

    :raises Conflict: ``server.already_running``
    """
    with ExitStack() as held:
        try:
            held.enter_context(file_lock(state / SERVE_LOCK_NAME, timeout_s, inherited))
        except LockTimeout as error:
            raise Conflict(
                "server.already_running", f"a server runs in {state} already", hint="'vgpuctl server stop' ends it"
            ) from error
        yield


async def _end_when_done(
    servers: list[_Server], process: Process, services: Services, close: Callable[[], None]
) -> None:
    """Ask the servers to exit when the process was told to stop, or has been idle for long enough."""
    announced, alive = False, Alive()
    while not process.stopping:
        await asyncio.sleep(TICK_S)
        if not announced and all(server.started for server in servers):
            tell_service_manager("READY=1")
            announced = True
        alive.tell()
        limit = process.idle_seconds
        if limit is not None and process.activity.idle_seconds() >= limit:
            busy = await to_thread.run_sync(running_operations, services)
            process.stopping = process.stopping or not busy
    process.leaving()
    tell_service_manager("STOPPING=1")
    close()
    for server in servers:
        server.should_exit = True


def _end_streams(app: FastAPI) -> None:
    waiting: Waiting = app.state.waiting
    feed: EventFeed = app.state.event_feed
    waiting.close()
    feed.close()


def _config(app: ASGIApp, certificate: ServedCertificate | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=PeerHttpProtocol,
        ws=PeerWebSocketProtocol,
        ws_max_size=MAX_MESSAGE,
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSE_LIMIT_S,
        ssl_context_factory=(lambda *_: certificate.context) if certificate else None,
    )


async def _serve(
    unix: list[Listener], network: tuple[Tls, Listener] | None, services: Services, process: Process
) -> None:
    api = create_app(services, process)
    servers: list[_Server] = []
    later: list[asyncio.Task[None]] = []

    def begin(served: ASGIApp, listener: Listener) -> None:
        servers.append(_Server(_config(served, None)))
        later.append(asyncio.create_task(servers[-1].serve(sockets=[listener])))

    app = api if process.pages is None else process.pages(api, Loopback(begin))
    ears = [(_Server(_config(app, None)), listener) for listener in unix]
    following = []
    if network is not None:
        tls, listener = network
        process.certificate = ServedCertificate(tls)
        following.append(asyncio.ensure_future(process.certificate.follow()))
        ears.append((_Server(_config(app, process.certificate)), listener))

    def leave() -> None:
        process.stopping = True

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, leave)
    servers += [server for server, _ in ears]
    watching = _end_when_done(servers, process, services, partial(_end_streams, api))
    try:
        await asyncio.gather(watching, *(server.serve(sockets=[listener]) for server, listener in ears))
        await asyncio.gather(*later)
    finally:
        for task in following:
            task.cancel()


def serve_until_done(
    state: Path,
    services: Services,
    process: Process,
    tls: Tls | None = None,
    say: Callable[[str], object] = str,
    group: GroupSocket | None = None,
) -> None:
    """Answer until told to stop, or idle: on the state directory's socket, a group's and over TLS where they are set.

    ``say`` gets where, for people. The caller holds :func:`only_one`.

    :raises Fatal: ``serve.cannot_listen``
    """
    with ExitStack() as open_sockets:
        network = None if tls is None else (tls, open_sockets.enter_context(network_socket(tls)))
        places = [(state / SOCKET_NAME, None), *([] if group is None else [(group.path, group.gid)])]
        unix = [open_sockets.enter_context(unix_socket(path, gid)) for path, gid in places]
        for path, _ in places:
            say(str(path))
        if network is not None:
            host, port, *_ = network[1].getsockname()
            say(f"https://{f'[{host}]' if ':' in host else host}:{port}")
        asyncio.run(_serve(unix, network, services, process))


PATIENCE_S: Final = 1.0
"""A service manager that does not read must not stop the event loop."""


def tell_service_manager(message: str) -> None:
    """``READY=1``, ``WATCHDOG=1`` and ``STOPPING=1``; nothing without a service manager."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where.startswith(("/", "@")):
        return
    address = "\0" + where[1:] if where.startswith("@") else where
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.settimeout(PATIENCE_S)
        ear.sendto(message.encode(), address)


class Alive:
    """Told by the event loop, so that a loop that has stopped is noticed: who is not told for ``WatchdogSec`` ends the
    process and starts another one."""

    def __init__(self) -> None:
        usec = os.environ.get("WATCHDOG_USEC", "")
        ours = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._every_s = int(usec) / 3e6 if ours and usec.isascii() and usec.isdigit() else None
        self._next = time.monotonic()

    def tell(self) -> None:
        """Three times in the time that the service manager waits, however often this is called."""
        if self._every_s is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every_s
            tell_service_manager("WATCHDOG=1")
