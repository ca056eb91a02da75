# SPDX-License-Identifier: Apache-2.0
"""Serves the API on a unix socket: one process per state directory, ends when told or when idle for long enough."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import uvicorn
from anyio import to_thread

from orchestrator.api.app import create_app
from orchestrator.api.peers import PeerHttpProtocol, PeerWebSocketProtocol
from orchestrator.api.routes.server import running_operations
from orchestrator.api.services import Process, Services
from orchestrator.client.file_lock import StillHeld, file_lock
from orchestrator.client.location import SERVE_LOCK_NAME, SOCKET_NAME, SocketAddress
from orchestrator.core.errors import Conflict

CLOSE_LIMIT_S: Final = 5
"""How long open requests may take to end when the server stops."""
TICK_S: Final = 0.2
BACKLOG: Final = 256


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process before operations are parked."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._ask_to_exit)
        yield

    def _ask_to_exit(self) -> None:
        self.should_exit = True


@contextmanager
def only_one(state: Path, patience_s: float) -> Iterator[None]:
    """Hold the state directory. Waits for one that is just ending, parking its operations.

    :raises Conflict: ``server.already_running``
    """
    with ExitStack() as held:
        try:
            held.enter_context(file_lock(state / SERVE_LOCK_NAME, patience_s))
        except StillHeld as error:
            raise Conflict(
                "server.already_running", f"a server runs in {state} already", hint="'vgpuctl server stop' ends it"
            ) from error
        yield


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """A socket that only its owner (and root) can reach. The lock says that a file in the way is a leftover."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o177)
        try:
            with SocketAddress(path) as address:
                listener.bind(address)
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


async def _end_when_done(server: _Server, process: Process, services: Services) -> None:
    """Ask the server to exit when it was told to stop, or has been idle for long enough."""
    while not server.should_exit:
        await asyncio.sleep(TICK_S)
        limit = process.idle_seconds
        if limit is not None and process.activity.idle_seconds() >= limit:
            busy = await to_thread.run_sync(running_operations, services)
            process.stopping = process.stopping or not busy
        server.should_exit = server.should_exit or process.stopping
    process.stopping = True


async def _serve(listener: socket.socket, services: Services, process: Process) -> None:
    config = uvicorn.Config(
        create_app(services, process),
        http=PeerHttpProtocol,
        ws=PeerWebSocketProtocol,
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=CLOSE_LIMIT_S,
    )
    server = _Server(config)
    watcher = asyncio.create_task(_end_when_done(server, process, services))
    await server.serve(sockets=[listener])
    watcher.cancel()


def serve_until_done(state: Path, services: Services, process: Process) -> None:
    """Answer on the state directory's socket until told to stop, or idle. The caller holds :func:`only_one`."""
    with _listening(state / SOCKET_NAME) as listener:
        asyncio.run(_serve(listener, services, process))
