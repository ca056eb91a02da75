# SPDX-License-Identifier: Apache-2.0
"""Clients that wait for an operation: half of them by long polls, half on the stream of its events."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

POLL: Final = "GET /v1/operations/{id}?wait=60&since={since} HTTP/1.1\r\nhost: vgpuctl\r\n\r\n"
STREAM: Final = "GET /v1/operations/{id}/events HTTP/1.1\r\nhost: vgpuctl\r\nlast-event-id: {since}\r\n\r\n"


@contextmanager
def waiting_clients(number: int, path: Path, operation: str, since: int) -> Iterator[None]:
    """In a process of their own, all connected before the block begins."""
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    process = spawn.Process(target=_wait, args=(number, path, operation, since, ready), daemon=True)
    process.start()
    try:
        assert ready.wait(120), "the clients could not connect"
        yield
    finally:
        process.terminate()
        process.join()


def _wait(number: int, path: Path, operation: str, since: int, ready: Event) -> None:
    asyncio.run(_all(number, path, operation, since, ready))


async def _all(number: int, path: Path, operation: str, since: int, ready: Event) -> None:
    connections = [await asyncio.open_unix_connection(sock=_connected(path)) for _ in range(number)]
    requests = [form.format(id=operation, since=since).encode() for form in (POLL, STREAM)]
    tasks = [
        asyncio.create_task(_one(reader, writer, requests[place % 2]))
        for place, (reader, writer) in enumerate(connections)
    ]
    await asyncio.sleep(2)  # so that the server has taken them all
    ready.set()
    await asyncio.gather(*tasks)


def _connected(path: Path) -> socket.socket:
    """asyncio takes the EAGAIN of a Unix socket whose queue is full for a connection under way; this waits."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect(str(path))
    return made


async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Ask again whenever something was answered at last; a stream goes on by itself."""
    while True:
        writer.write(request)
        await writer.drain()
        while await reader.read(65536):
            if request.startswith(b"GET") and b"?wait" in request:
                break
