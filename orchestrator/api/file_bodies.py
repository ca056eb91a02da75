# SPDX-License-Identifier: Apache-2.0
"""Bodies that are files: read as they come by threads of their own, which no other request waits for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter, from_thread, to_thread
from fastapi import Request
from starlette.types import Message, Receive

from orchestrator.api.http_requests import FILE_TYPE
from orchestrator.api.protocols import IN_PARTS
from orchestrator.api.services import Process
from orchestrator.core.errors import InvalidInput, Retryable

T = TypeVar("T")

OCTETS: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {FILE_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
}
"""For the description of a route that takes one."""

MAX_AT_ONCE: Final = 8
FILE_THREADS: Final = CapacityLimiter(MAX_AT_ONCE)
"""For requests that copy, download or check a whole file: that takes minutes, and they may not have the threads that
serve everybody."""
SPARED: Final = 4
"""Of them, for the site's own files."""
MAX_OF_TENANT: Final = 2
"""Of the others: who sends slowly has a thread for long."""
_taking: Counter[str] = Counter()
"""Files by tenant. Lives on the event loop only."""
PART_BYTES: Final = 256 * 1024
PART_S: Final = 60.0
"""How long so much may take. Who sends less has fallen silent."""
UPLOAD_S: Final = 24 * 3600.0
"""How long all of a file may take."""
_TICK_S: Final = 1.0


async def with_files(work: Callable[[], T], *, tenant: str | None = None) -> T:
    """Run what works on whole files. ``tenant``: whose file it is; None: the site's.

    :raises Retryable: ``server.files_busy``
    """
    with _place(tenant):
        return await to_thread.run_sync(work, limiter=FILE_THREADS)


@contextmanager
def _place(tenant: str | None) -> Iterator[None]:
    """:raises Retryable: ``server.files_busy``"""
    spare = 0 if tenant is None else SPARED
    if FILE_THREADS.available_tokens < 1 + spare:
        raise _busy(f"{MAX_AT_ONCE - spare} files")
    if tenant is not None and _taking[tenant] >= MAX_OF_TENANT:
        raise _busy(f"{MAX_OF_TENANT} files of tenant {tenant}")
    taken: Counter[str] = Counter() if tenant is None else Counter({tenant: 1})
    _taking.update(taken)
    try:
        yield
    finally:
        _taking.subtract(taken)
        if tenant is not None and not _taking[tenant]:
            del _taking[tenant]


def _busy(what: str) -> Retryable:
    return Retryable(
        "server.files_busy",
        f"the server is taking {what} already",
        hint="wait until one of them is there, then run it again",
    )


async def take_file(
    request: Request, process: Process, take: Callable[[Iterator[bytes], int], T], *, tenant: str | None = None
) -> T:
    """What ``take`` makes of the body: its parts, to be read in the thread that it runs in, and its length in bytes.
    ``tenant``: as in :func:`with_files`.

    Nothing is asked of a client that waits for ``100 Continue`` before the first part is read.

    :raises InvalidInput: ``file.length_missing``, ``file.cut``, ``file.too_slow``
    :raises Retryable: ``server.files_busy``, ``file.not_taken`` when the server ends
    """
    announced = request.headers.get("content-length", "")
    if not announced.isdigit():
        raise InvalidInput("file.length_missing", "a file is sent with its length", hint="Content-Length: BYTES")
    timed = request.scope.get("extensions", {}).get(IN_PARTS)
    if timed is not None:
        timed["begin"]()
    arriving = _Arriving(request.receive, process)
    return await with_files(lambda: take(arriving.parts(), int(announced)), tenant=tenant)


class _Arriving:
    """A body as a worker thread reads it; whatever waits does so on the event loop."""

    def __init__(self, receive: Receive, process: Process) -> None:
        self._receive = receive
        self._process = process
        self._end = asyncio.get_running_loop().time() + UPLOAD_S
        self._more = True

    def parts(self) -> Iterator[bytes]:
        """Until the body's end."""
        while part := from_thread.run(self._part):
            yield part

    async def _part(self) -> bytes:
        part = bytearray()
        try:
            async with asyncio.timeout_at(min(asyncio.get_running_loop().time() + PART_S, self._end)):
                while self._more and len(part) < PART_BYTES:
                    message = await self._message()
                    part += message.get("body", b"")
                    self._more = message.get("more_body", False)
        except TimeoutError as error:
            raise InvalidInput(
                "file.too_slow", "the file came too slowly, or stopped coming", hint="send it again from nearer by"
            ) from error
        return bytes(part)

    async def _message(self) -> Message:
        """The next one that is no end of the connection, unless the process ends before."""
        receiving = asyncio.ensure_future(self._receive())
        try:
            while not receiving.done():
                if self._process.stopping:
                    raise Retryable("file.not_taken", "the server ends now", hint="send the file again when it is back")
                await asyncio.wait({receiving}, timeout=_TICK_S)
        finally:
            receiving.cancel()
        message = receiving.result()
        if message["type"] == "http.disconnect":
            raise InvalidInput("file.cut", "the connection ended inside the file", hint="send it again")
        return message
