# SPDX-License-Identifier: Apache-2.0
"""Many people at one page: how late each of them sees what somebody does, and how fast the API is meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from statistics import quantiles
from typing import Final
from urllib.parse import urlencode, urlsplit

from orchestrator.client.client import Client
from orchestrator.web.live import stream_of
from tests.fakes.simulated import wish

PEOPLE: Final = 200
CAUSES: Final = 10
APART_S: Final = 2.0
LAST_S: Final = 5.0
"""After the last cause: who has not seen it by then is counted with that."""
NEWEST: Final = "/web/vms?sort=-created_at"
"""What somebody makes is on its first page, however many there are."""
_LENGTH: Final = re.compile(b"\r\ncontent-length: ([0-9]+)\r\n", re.IGNORECASE)
_FORM: Final = "application/x-www-form-urlencoded"


@dataclass
class Crowd:
    """``begun``: when each VM was asked for, by name; ``seen``: how many seconds later each person saw each."""

    address: str
    cookies: Iterator[str]
    page: str
    name: str
    begun: dict[str, float] = field(default_factory=dict)
    seen: list[float] = field(default_factory=list)
    fetched: int = 0

    async def look(self) -> None:
        """One person: fetches what is live whenever the page's stream says so."""
        async with self._connected() as (stream, asking), self._connected() as fetching:
            self._ask(asking, stream_of("vm"))
            known: set[str] = set()
            async for line in stream:
                if line.strip() == b"event: news":
                    body = await self._fragment(*fetching)
                    late = {name for name in self.begun.keys() - known if f"default/{name}".encode() in body}
                    known |= late
                    self.seen += [time.monotonic() - self.begun[name] for name in late]

    async def _fragment(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Over the connection that is kept, as a browser does."""
        self._ask(writer, self.page, "HX-Request: true\r\nHX-Target: div#live\r\n")
        length = _LENGTH.search(await reader.readuntil(b"\r\n\r\n"))
        assert length is not None
        self.fetched += 1
        return gzip.decompress(await reader.readexactly(int(length[1])))

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(self.address).port, limit=2**20)
        try:
            yield reader, writer
        finally:
            writer.close()

    def _ask(self, writer: asyncio.StreamWriter, path: str, headers: str = "") -> None:
        host, cookie = urlsplit(self.address).netloc, next(self.cookies)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n{headers}\r\n".encode())


def cookie_of(address: str, form: dict[str, str], path: str) -> str:
    """Of a session that a ticket or a token begins."""
    host = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", host.port)
    headers = {"Host": host.netloc, "Content-Type": _FORM, "Origin": address, "Sec-Fetch-Site": "same-origin"}
    connection.request("POST", path, urlencode(form), headers)
    cookie = connection.getresponse().getheader("set-cookie", "")
    connection.close()
    return str(cookie).partition(";")[0]


def looking(client: Client, other: Client, people: int, tokens: int) -> dict[str, float]:
    """Seconds until somebody sees a VM that was asked for, and milliseconds of the API's answer about one, alone and
    beside all who look. ``other``: a client of the same server, for the API's answers. ``tokens``: how many they have
    together; 0: the session of the server's owner."""
    given = client.web_ticket()
    name = f"{people}-{tokens}"
    cookies = [cookie_of(given["address"], {"ticket": given["ticket"]}, "/web/ticket")]
    if tokens:
        wanted = {"tenant": "*", "role": "read-only"}
        made = [client.create_token({**wanted, "name": f"{name}-{number}"})["token"] for number in range(tokens)]
        cookies = [cookie_of(given["address"], {"token": token}, "/web/login") for token in made]
    crowd = Crowd(given["address"], cycle(cookies), NEWEST, name)
    alone = _answers(other)
    beside = asyncio.run(_watched(client, other, crowd, people))
    missed = people * len(crowd.begun) - len(crowd.seen)
    seen = quantiles([*crowd.seen, *[LAST_S] * missed], n=100) if people else [0.0] * 99
    return {
        "seen_p50_s": seen[49], "seen_p95_s": seen[94], "seen_p99_s": seen[98], "not_seen": missed,
        "fetched": crowd.fetched, "api_alone_p95_ms": alone, "api_beside_p95_ms": beside, "load": os.getloadavg()[0],
    }  # fmt: skip


async def _watched(client: Client, other: Client, crowd: Crowd, people: int) -> float:
    watching = [asyncio.create_task(crowd.look()) for _ in range(people)]
    await asyncio.sleep(APART_S)
    answers = asyncio.create_task(asyncio.to_thread(_answers, other))
    for number in range(CAUSES):
        crowd.begun[name := f"late-{crowd.name}-{number}"] = time.monotonic()
        await asyncio.to_thread(client.create_vm, wish(name, "NVIDIA L40S-12Q"))
        await asyncio.sleep(APART_S)
    await asyncio.sleep(LAST_S - APART_S)
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    return await answers


def _answers(client: Client) -> float:
    """Milliseconds: of 100 answers the 95th."""
    taken = []
    for _ in range(100):
        begin = time.monotonic()
        client.vm("vm-0", "default")
        taken.append((time.monotonic() - begin) * 1000)
        time.sleep(0.05)
    return quantiles(taken, n=100)[94]
