# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

from starlette.types import Message
from starlette.websockets import WebSocket

from orchestrator.api.routes.guest_streams import MOVING, NO_BYTES, join
from orchestrator.sim.guests import Echo

CONSOLES = 100


class Browser:
    """The client's end of a websocket."""

    def __init__(self) -> None:
        self._said: asyncio.Queue[Message] = asyncio.Queue()
        self._said.put_nowait({"type": "websocket.connect"})
        self._heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed: int | None = None
        self.socket = WebSocket({"type": "websocket"}, self._said.get, self._hear)

    async def _hear(self, message: Message) -> None:
        if message["type"] == "websocket.close":
            self.closed = message["code"]
        if message["type"] == "websocket.send":
            self._heard.put_nowait(message["bytes"])

    def say(self, data: bytes) -> None:
        self._said.put_nowait({"type": "websocket.receive", "bytes": data})

    def leave(self) -> None:
        self._said.put_nowait({"type": "websocket.disconnect", "code": 1000})

    def type(self, text: str) -> None:
        self._said.put_nowait({"type": "websocket.receive", "text": text})

    async def hear(self, size: int) -> bytes:
        heard = b""
        while len(heard) < size:
            heard += await self._heard.get()
        return heard


async def _nobody_objects() -> bool:
    return True


def test_an_open_console_holds_no_thread() -> None:
    async def play() -> list[bytes]:
        browsers = [Browser() for _ in range(CONSOLES)]
        joined = [asyncio.ensure_future(join(one.socket, Echo(b"hello"), _nobody_objects)) for one in browsers]
        for one in browsers:
            assert await one.hear(5) == b"hello"
        while MOVING.borrowed_tokens:
            await asyncio.sleep(0.01)
        for one in browsers:
            one.say(b"there")
        heard = [await one.hear(5) for one in browsers]
        for one in browsers:
            one.leave()
        await asyncio.gather(*joined)
        return heard

    assert asyncio.run(play()) == [b"there"] * CONSOLES


def test_a_guest_that_takes_no_bytes_holds_no_thread_and_gets_them_all_when_it_does() -> None:
    blob = bytes(range(256)) * 8192

    async def play() -> bytes:
        browser, guest = Browser(), Echo()
        joined = asyncio.ensure_future(join(browser.socket, guest, _nobody_objects))
        browser.say(blob)
        heard = await browser.hear(len(blob))
        browser.leave()
        await joined
        return heard

    assert asyncio.run(play()) == blob


def test_text_where_bytes_go_closes_the_stream_and_says_why() -> None:
    async def play() -> int | None:
        browser = Browser()
        joined = asyncio.ensure_future(join(browser.socket, Echo(), _nobody_objects))
        browser.type("hello")
        await joined
        return browser.closed

    assert asyncio.run(play()) == NO_BYTES
