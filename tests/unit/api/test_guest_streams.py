# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import threading

import pytest
from starlette.types import Message
from starlette.websockets import WebSocket

from orchestrator.api.routes.guest_streams import MOVING, NO_BYTES, join
from orchestrator.sim import guests
from orchestrator.sim.guests import Consoles, Echo

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


def _typed(console: Echo, size: int) -> None:
    """So much, by somebody who reads at once what comes back."""
    while size:
        sent = console.send(bytes(min(size, 1 << 16)))
        size -= sent
        while sent:
            sent -= len(console.receive(sent))


def _read(console: Echo, size: int, begin: threading.Event) -> int:
    got = 0
    begin.wait()
    while got < size and (data := console.receive(1 << 16)):
        got += len(data)
    return got


def test_who_is_a_moment_behind_at_a_simulated_console_stays_and_who_reads_nothing_loses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consoles, begin, size = Consoles(), threading.Event(), 4 << 20
    typing, reading = (consoles.open("vm", "") for _ in range(2))
    threading.Timer(0.3, begin.set).start()
    typed = threading.Thread(target=_typed, args=(typing, size))
    typed.start()
    assert _read(reading, size, begin) == size
    typed.join()
    monkeypatch.setattr(guests, "SLOW_S", 0.05)
    _typed(typing, size)
    assert _read(reading, size, begin) < size
    for console in (typing, reading):
        console.close()
