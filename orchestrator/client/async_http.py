# SPDX-License-Identifier: Apache-2.0
"""What http.py does, for asyncio: a pool of as many connections as there are requests under way."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx2

from orchestrator.client.connection import CALL_TIMEOUT_S
from orchestrator.client.http import (
    KEPT_S,
    MAX_ANSWER_BYTES,
    STREAM_SILENT_S,
    BrokenAnswer,
    Http,
    HttpAnswer,
    NotConnected,
    UnixHttp,
    request_headers,
)
from orchestrator.client.location import SocketAddress
from orchestrator.client.tls_http import CONNECT_LIMIT_S, TlsHttp, not_trusted

if TYPE_CHECKING:
    from orchestrator.client.content import Content
    from orchestrator.client.contexts import ClientContext

_TIMEOUT: Final = httpx2.Timeout(CALL_TIMEOUT_S, connect=CONNECT_LIMIT_S)
_STREAM_TIMEOUT: Final = httpx2.Timeout(STREAM_SILENT_S, connect=CONNECT_LIMIT_S)
_REFUSED: Final = 400
_UNBOUNDED: Final = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEPT_S)


class AsyncHttp:
    """``opener``: of the connections to the same server that files go over."""

    def __init__(
        self, opener: Callable[[], Http], url: str, transport: httpx2.AsyncHTTPTransport, until_closed: ExitStack
    ) -> None:
        http = opener()
        self.place = http.place
        self.way_out = http.way_out
        self._opener = opener
        self._url = url
        self._until_closed = until_closed
        headers = {"Accept-Encoding": "identity", **http.headers}
        self._client = httpx2.AsyncClient(headers=headers, transport=transport, timeout=_TIMEOUT, trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()
        self._until_closed.close()

    async def upload(self, method: str, target: str, content: Content) -> HttpAnswer:
        """As :meth:`orchestrator.client.http.Http.upload`, in a thread: httpx2 knows no ``Expect: 100-continue`` and
        sends all of a file that the server refuses."""
        http = self._opener()
        try:
            return await asyncio.to_thread(http.upload, method, target, content)
        except asyncio.CancelledError:
            http.interrupt()
            raise

    async def open_stream(self, target: str, headers: Mapping[str, str]) -> AsyncStream:
        """As :meth:`orchestrator.client.http.Http.open_stream`."""
        extensions = {"target": target.encode("ascii"), "timeout": _STREAM_TIMEOUT.as_dict()}
        request = self._client.build_request(
            "GET", self._url, headers={**headers, "Accept": "*/*"}, extensions=extensions
        )
        with self._errors():
            stream = AsyncStream(await self._client.send(request, stream=True))
            if stream.status >= _REFUSED:
                stream.problem = await _whole(stream.answer)
        return stream

    async def next_part(self, stream: AsyncStream) -> bytes:
        """As :meth:`orchestrator.client.http.Http.next_part`."""
        with self._errors():
            return await anext(stream.parts, b"")

    async def close_stream(self, stream: AsyncStream) -> None:
        """As :meth:`orchestrator.client.http.Http.close_stream`."""
        await stream.answer.aclose()

    async def request(self, method: str, target: str, body: bytes | None, key: str | None = None) -> HttpAnswer:
        """As :meth:`orchestrator.client.http.Http.request`."""
        as_it_is = {"target": target.encode("ascii")}  # a name that is ".." is no step up for the library
        headers = request_headers(body, key)
        with self._errors():
            async with self._client.stream(
                method, self._url, headers=headers, content=body, extensions=as_it_is
            ) as answer:
                return HttpAnswer(answer.status_code, dict(answer.headers), await _whole(answer))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Those of the library as this package names them."""
        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            cause = _cause(error)
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise not_trusted(self.place, cause) from error
            raise NotConnected(*cause.args) from error
        except httpx2.TimeoutException as error:
            raise TimeoutError(*error.args) from error
        except httpx2.HTTPError as error:
            raise BrokenAnswer(str(error) or type(error).__name__) from error


class AsyncStream:
    """As :class:`orchestrator.client.http.HttpStream`."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self.parts = answer.aiter_raw()
        self.status = answer.status_code
        self.problem = b""


def unix_http(path: Path, headers: Mapping[str, str]) -> AsyncHttp:
    """To a server on this machine."""
    address, until_closed = str(path), ExitStack()
    with suppress(OSError):  # the first request says that there is none
        address = until_closed.enter_context(SocketAddress(path))
    transport = httpx2.AsyncHTTPTransport(uds=address, limits=_UNBOUNDED)
    return AsyncHttp(partial(UnixHttp, path, CALL_TIMEOUT_S, headers), "http://localhost", transport, until_closed)


def tls_http(context: ClientContext) -> AsyncHttp:
    """To a server elsewhere; its certificate is always checked, its name too."""
    opener = partial(TlsHttp, context)
    transport = httpx2.AsyncHTTPTransport(verify=opener().trust, limits=_UNBOUNDED)
    return AsyncHttp(opener, str(context.url), transport, ExitStack())


async def _whole(answer: httpx2.Response) -> bytes:
    body = bytearray()
    async for part in answer.aiter_raw():
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise BrokenAnswer("the answer is too long")
    return bytes(body)


def _cause(error: BaseException) -> BaseException:
    """What the operating system or TLS says."""
    while (deeper := error.__cause__ or error.__context__) is not None:
        error = deeper
    return error
