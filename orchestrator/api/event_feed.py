# SPDX-License-Identifier: Apache-2.0
"""Everybody who watches what happens in the fleet reads one piece of memory, which one task fills from the log.

The task asks the database when a commit of this process has added to the log, and every half a second for what other
controllers have done, as long as anybody watches. A reader that has seen less than the memory holds reads the log page
by page until it has caught up. So nothing grows with readers that are slow, and nobody waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from anyio import CapacityLimiter, to_thread
from fastapi import Depends
from starlette.requests import HTTPConnection

from orchestrator.api.schemas.events import EventAnswer
from orchestrator.core.contained import Contained
from orchestrator.core.errors import Retryable
from orchestrator.core.event import EventFilter, EventIds, FleetEvent
from orchestrator.core.tenancy.access import Caller
from orchestrator.services.events import PAGE, EventPage, EventService

log = logging.getLogger(__name__)

KEPT: Final = 5000
"""Events in memory, which all who watch read."""
MAX_STREAMS_OF_TENANT: Final = 64
"""Of all who do not watch the pool and are of the same tenants. Each has a descriptor, and a turn of the event loop at
each event."""
MAX_STREAMS: Final = 1024
"""Of everybody together."""
ELSEWHERE_S: Final = 0.5
"""How late what another controller has done may be noticed."""
_READY_S: Final = 5.0
"""How long a new reader waits for what was committed just now; it comes later else."""
_PAUSE_S: Final = 0.05
"""Between two questions to the database: what is committed meanwhile is read together."""
_READERS: Final = CapacityLimiter(4)
"""Threads that read the log for those who have fallen behind the memory or ask for what was before, so that they are
nobody's burden."""


@dataclass
class _Kept:
    """An event in memory, put into text once for each kind of reader."""

    event: FleetEvent
    texts: dict[bool, str] = field(default_factory=dict)

    def text(self, ids: EventIds, *, watching: bool) -> str:
        text = self.texts.get(watching)
        if text is None:
            text = self.texts[watching] = event_text(self.event, ids, watching=watching)
        return text


@dataclass(frozen=True)
class Batch:
    """What a reader is sent next."""

    texts: list[str]
    position: int
    """The number up to which it has been told everything then."""
    is_gap: bool = False
    """Something before that is no longer kept."""


def event_text(event: FleetEvent, ids: EventIds, *, watching: bool) -> str:
    """One server-sent event. ``watching``: the reader may know what happens on which host."""
    answer = EventAnswer.of(event, ids, watching=watching)
    return f"id: {answer.id}\nevent: {answer.noun}\ndata: {answer.model_dump_json()}\n\n"


class EventFeed:
    """What happens, for all who watch at this process. Lives on the event loop."""

    def __init__(self, service: EventService) -> None:
        self.service = service
        self.closed = False
        self.end = 0
        """The number up to which the memory has everything that it once had."""
        self.begin = 0
        """The number after which it still has everything."""
        self._kept: list[_Kept] = []
        self._numbers: list[int] = []
        self._streams: Counter[str] = Counter()
        self._starting = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._changed = asyncio.Event()

    @contextmanager
    def stream(self, caller: Caller) -> Iterator[None]:
        """Count one more reader. Tokens are no bound: a tenant makes as many as it wants. Nobody takes more than what
        is left to others, so that who has none yet gets one.

        :raises Retryable: ``server.streams_busy``
        """
        tenants = caller.tenants
        whose, own = (caller.actor, MAX_STREAMS) if tenants is None else (" ".join(tenants), MAX_STREAMS_OF_TENANT)
        held, free = self._streams[whose], MAX_STREAMS - self._streams.total()
        if held >= min(own, free):
            raise Retryable(
                "server.streams_busy",
                f"{held} streams of events are open already for you, and {free} are free for everybody",
                hint="end one of them: one stream can tell of several nouns"
                if held
                else "come back in a minute, or ask another controller",
            )
        self._streams[whose] += 1
        try:
            yield
        finally:
            self._streams -= Counter({whose: 1})

    async def ready(self) -> None:
        """The memory is being filled, and has what was committed before this was called. Raises what the database
        does."""
        async with self._starting:
            if self._task is None or self._task.done():
                await self._begin()
                return
        given = await to_thread.run_sync(self.service.given)
        self._news.set()
        deadline = time.monotonic() + _READY_S
        while self.end < given and time.monotonic() < deadline:
            await self.changed(self.end, deadline - time.monotonic())

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self.service.listen(lambda: _wake(loop, self._news))
        self._forget(await to_thread.run_sync(self.service.end))
        self._task = loop.create_task(self._fill())

    async def changed(self, position: int, timeout_s: float) -> None:
        """Until there is something beyond ``position``, the time is over, or the process leaves."""
        if self.end > position or self.closed:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def lags(self, position: int) -> bool:
        """Whether what comes after it is no longer in memory."""
        return position < self.begin

    def batch(self, position: int, only: EventFilter, *, watching: bool) -> Batch:
        """From memory, which has what comes after ``position``."""
        first = bisect_right(self._numbers, position)
        later = self._kept[first : first + PAGE]
        texts = [kept.text(self.service.ids, watching=watching) for kept in later if only.picks(kept.event.change)]
        return Batch(texts, later[-1].event.number if later else position)

    async def older(self, position: int, only: EventFilter, *, watching: bool) -> Batch:
        """From the log, for who has fallen behind the memory or never was within it."""
        until = self.end
        page = await to_thread.run_sync(self.service.page, position, until, only, limiter=_READERS)
        texts = [event_text(event, self.service.ids, watching=watching) for event in page.events]
        whole = len(page.events) < PAGE
        last = until if whole else page.events[-1].number
        return Batch(texts, max(last, page.pruned), is_gap=position < page.pruned)

    async def last(self, until: int, most: int, only: EventFilter, *, watching: bool) -> list[str]:
        """From the log, the last so many up to ``until``."""
        events = await to_thread.run_sync(self.service.last, until, only, most, limiter=_READERS)
        return [event_text(event, self.service.ids, watching=watching) for event in events]

    def close(self) -> None:
        """The process leaves: streams end."""
        self.closed = True
        self._tell()

    async def _fill(self) -> None:
        while self._streams.total() and not self.closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(ELSEWHERE_S):
                    await self._news.wait()
            self._news.clear()
            with Contained(lambda error: log.warning("the log of events cannot be read: %s", error)):
                self._take(await to_thread.run_sync(self.service.new, self.end))
            await asyncio.sleep(_PAUSE_S)

    def _take(self, page: EventPage) -> None:
        events = page.events
        if page.pruned > self.end:  # before anybody could read it
            self._forget(page.pruned)
        self._kept += map(_Kept, events)
        self._numbers += [event.number for event in events]
        for event in events:
            if (event.change.noun, event.change.change) == ("tenant", "removed"):
                self._disown(event)
        if (over := len(self._kept) - KEPT) > PAGE:
            self.begin = self._numbers[over - 1]
            del self._kept[:over], self._numbers[:over]
        if events:
            self.end = events[-1].number
            self._tell()
        if len(events) == PAGE:
            self._news.set()

    def _disown(self, removal: FleetEvent) -> None:
        """What is of the removed tenant is nobody's, as in the log."""
        for at, kept in enumerate(self._kept[: bisect_left(self._numbers, removal.number)]):
            change = kept.event.change
            if change.tenant == removal.change.name:
                self._kept[at] = _Kept(replace(kept.event, change=replace(change, tenant=None)))

    def _forget(self, number: int) -> None:
        """The memory begins after it."""
        self._kept.clear()
        self._numbers.clear()
        self.begin = self.end = number

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop has ended before those who write have
        loop.call_soon_threadsafe(event.set)


async def _feed(connection: HTTPConnection) -> EventFeed:
    feed: EventFeed = connection.app.state.event_feed
    return feed


EventFeedOf = Annotated[EventFeed, Depends(_feed)]
