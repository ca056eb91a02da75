# SPDX-License-Identifier: Apache-2.0
"""What connection.py does, for asyncio: over as many connections as there are requests under way."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestrator.client.connection import (
    CALL_TIMEOUT_S,
    Pages,
    Request,
    decoded,
    lost_answer,
    pause_s,
    request_of,
    request_of_file,
    unreachable,
)
from orchestrator.client.content import Content
from orchestrator.client.http import (
    CHECKED_WITHIN_S,
    CONTINUE,
    BrokenAnswer,
    HttpAnswer,
    UnixHttp,
    head_of_file,
    headers_to,
    read_head,
    written,
)
from orchestrator.client.location import SocketAddress
from orchestrator.core.errors import Retryable, Unknown, VgpuctlError

if TYPE_CHECKING:
    from orchestrator.client.contexts import ClientContext

_MAX_HEAD: Final = 64 * 1024
Ends = tuple[StreamReader, StreamWriter]


@dataclass(frozen=True)
class Opener:
    """How connections to one server are made. ``place``: for people; ``host``: for the header of that name."""

    place: str
    host: str
    way_out: str
    open: Callable[[], Awaitable[Ends]]


def unix_opener(path: Path) -> Opener:
    """To a server on this machine."""

    async def connected() -> Ends:
        with SocketAddress(path) as address:
            return await asyncio.open_unix_connection(address, limit=_MAX_HEAD)

    return Opener(str(path), "localhost", UnixHttp.way_out, connected)


def tls_opener(context: ClientContext) -> Opener:
    """To a server elsewhere; its certificate is always checked, its name too."""
    import ssl

    from orchestrator.client.tls_http import CONNECT_LIMIT_S, TlsHttp, not_trusted, trust_of

    (host, port), trust = context.address(), trust_of(context)

    async def connected() -> Ends:
        opening = asyncio.open_connection(host, port, ssl=trust, server_hostname=host, limit=_MAX_HEAD)
        try:
            return await asyncio.wait_for(opening, CONNECT_LIMIT_S)
        except ssl.SSLCertVerificationError as error:
            raise not_trusted(str(context.url), error) from error

    return Opener(str(context.url), f"{host}:{port}", TlsHttp.way_out, connected)


class AsyncConnection:
    """To one server. ``retries``: as of :class:`orchestrator.client.connection.Connection`."""

    def __init__(self, opener: Opener, headers: Mapping[str, str], retries: int) -> None:
        self._opener = opener
        self._headers = headers_to(opener.host, headers)
        self._retries = retries
        self._idle: list[Ends] = []

    async def close(self) -> None:
        """Requests that are under way end by themselves."""
        while self._idle:
            self._idle.pop()[1].close()

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
        *,
        keyed: bool = False,
    ) -> Any:
        """As :meth:`orchestrator.client.connection.Connection.call`."""
        request = request_of(method, path, body, query, keyed=keyed and self._retries > 0)
        return decoded(await self._exchange(request), request)

    async def pages(
        self, path: str, query: Mapping[str, object], *, at_most: int | None = None, member: str | None = None
    ) -> list[Any]:
        """As :meth:`orchestrator.client.connection.Connection.pages`."""
        pages = Pages(path, query, at_most, member)
        following: Request | None = pages.first()
        while following is not None:
            following = pages.add(await self._exchange(following))
        return pages.found[:at_most]

    async def digest_of(self, content: Content) -> str:
        """As :meth:`orchestrator.client.connection.Connection.digest_of`; the loop goes on meanwhile."""
        return await asyncio.to_thread(content.digest)

    async def upload(self, path: str, content: Content, query: Mapping[str, object]) -> Any:
        """As :meth:`orchestrator.client.connection.Connection.upload`."""
        request = request_of_file(path, content, query)
        return decoded(await self._exchange(request), request)

    async def _exchange(self, request: Request) -> HttpAnswer:
        first: VgpuctlError | None = None
        for turn in count():
            try:
                return await self._sent(request)
            except (Retryable, Unknown) as error:
                first = first or error
                if turn == request.repeats(self._retries):
                    raise first from error
            await asyncio.sleep(pause_s(turn))
        raise AssertionError

    async def _rested(self) -> Ends | None:
        """One that the server has not closed meanwhile, as servers do with those that rest."""
        await asyncio.sleep(0)  # the loop hears of what was closed while the program did something else
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    async def _sent(self, request: Request) -> HttpAnswer:
        try:
            ends = await self._rested() or await self._opener.open()
        except OSError as error:
            raise unreachable(self._opener.place, self._opener.way_out, error) from error
        reader, writer = ends
        try:
            if request.content is not None:
                answer = await self._upload(ends, request, request.content)
                writer.close()  # what of the file is still on its way would be taken for the next request
                return answer
            writer.write(written(request.method, request.target, self._headers, request.data, request.key))
            answer = await asyncio.wait_for(_read_answer(reader), CALL_TIMEOUT_S)
        except OSError as error:
            writer.close()
            raise lost_answer(error) from error
        except BaseException:  # cancelled: what comes on it later would be taken for the next answer
            writer.close()
            raise
        self._idle.append(ends)
        return answer

    async def _upload(self, ends: Ends, request: Request, content: Content) -> HttpAnswer:
        """When the server asks for it and until it answers."""
        reader, writer = ends
        writer.write(head_of_file(request.method, request.target, self._headers, content.size))
        first = await asyncio.wait_for(_read_answer(reader), CALL_TIMEOUT_S)
        if first.status != CONTINUE:
            return first
        answer = asyncio.ensure_future(_read_answer(reader))
        try:
            parts = content.parts()
            while not answer.done() and (part := await asyncio.to_thread(next, parts, b"")):
                writer.write(part)
                await writer.drain()
            return await asyncio.wait_for(answer, CHECKED_WITHIN_S)
        finally:
            answer.cancel()


async def _read_answer(reader: StreamReader) -> HttpAnswer:
    try:
        status, headers, length = read_head(BytesIO(await reader.readuntil(b"\r\n\r\n")))
        return HttpAnswer(status, headers, await reader.readexactly(length))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise BrokenAnswer("the connection was closed inside an answer, or its head is too long") from error
