# SPDX-License-Identifier: Apache-2.0
"""/v1/events"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Final

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from orchestrator.api.auth import ASK_AGAIN_S, Asked
from orchestrator.api.event_feed import Batch, EventFeed, EventFeedOf
from orchestrator.api.http_answers import ALIVE, EventStream, event_stream_answers
from orchestrator.api.schemas.events import GapAnswer
from orchestrator.api.services import TenantFilter
from orchestrator.api.visibility import watches_pool
from orchestrator.core.event import EventFilter, GapReason, Noun
from orchestrator.core.tenancy.access import Caller

router = APIRouter(prefix="/events", tags=["events"])

MAX_STREAM_S: Final = 3600.0
MAX_LAST: Final = 1000
ALIVE_S: Final = 15.0
"""How often a stream says that it is still there."""
_ID: Final = 40


@dataclass(frozen=True)
class _Start:
    """Where a reader begins."""

    after: int | None
    """The number of the last event that it knows; None: with what happens from now on."""
    last: int
    """Or with so many that have happened already."""


async def _wanted(
    noun: Annotated[list[Noun] | None, Query(description="Only about these; may be given several times")] = None,
    name: Annotated[
        str | None, Query(max_length=255, description="Only about what is called so, or has this id")
    ] = None,
) -> EventFilter:
    return EventFilter(nouns=frozenset(noun or ()), name=name)


async def _start(
    feed: EventFeedOf,
    after: Annotated[str | None, Query(max_length=_ID, description="Begin after the event with this id")] = None,
    last: Annotated[int, Query(ge=0, le=MAX_LAST, description="Begin with so many that have happened already")] = 0,
    last_event_id: Annotated[str | None, Header(max_length=_ID, description="As after, which goes before it")] = None,
) -> _Start:
    """:raises InvalidInput: ``event.id_invalid``"""
    event_id = after if after is not None else last_event_id
    return _Start(after=None if not event_id else feed.service.ids.number(event_id), last=last)


@router.get(
    "",
    response_class=StreamingResponse,
    responses=event_stream_answers("Each with data as Event, or as Gap"),
)
async def stream(
    request: Request,
    feed: EventFeedOf,
    wanted: Annotated[EventFilter, Depends(_wanted)],
    start: Annotated[_Start, Depends(_start)],
    tenant: TenantFilter = None,
    wait: Annotated[float, Query(ge=0, le=MAX_STREAM_S, description="Seconds after which the stream ends")] = 3600,
) -> EventStream:
    """Stream what happens. Server-sent events in the order in which things happened, of what the caller may know of;
    an event gap where some could not be told."""
    caller: Caller = request.state.caller
    with ExitStack() as counted:
        counted.enter_context(feed.stream(caller))
        await feed.ready()
        reader = _Reader(feed, request, Asked(request), tenant, wanted, time.monotonic() + wait)
        return _CountedStream(reader.texts(start), counted.pop_all())


class _CountedStream(EventStream):
    """Counted until it ends, however little of it was sent."""

    def __init__(self, texts: AsyncIterator[str], counted: ExitStack) -> None:
        super().__init__(texts)
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._counted:
            await super().__call__(scope, receive, send)


@dataclass
class _Reader:
    """Somebody who watches."""

    feed: EventFeed
    request: Request
    rights: Asked
    tenant: str | None
    """Only what is this tenant's."""
    wanted: EventFilter
    deadline: float

    async def texts(self, start: _Start) -> AsyncIterator[str]:
        """All that the reader is sent."""
        position = self.feed.end if start.after is None else start.after
        if start.after is None and start.last:
            yield "".join(await self._last(position, start.last))
        if position > self.feed.end and position > await to_thread.run_sync(self.feed.service.given):
            yield self._gap("forgotten")
            position = self.feed.end
        yield self._position(position)
        async for text in self._after(position):
            yield text

    async def _after(self, position: int) -> AsyncIterator[str]:
        """Until the time is over, the reader may no more, is too slow, or the process leaves."""
        alive, follows = time.monotonic() + ALIVE_S, False
        while await self.rights.again() and not self.feed.closed:
            lags = self.feed.lags(position)
            if lags and follows:
                yield self._gap("slow")
                return
            batch = await self._older(position) if lags else self._batch(position)
            follows = follows or not lags
            if batch.is_gap:
                yield self._gap("forgotten")
            if batch.texts or (batch.position > position and time.monotonic() >= alive):
                yield "".join(batch.texts) or self._position(batch.position)
                alive = time.monotonic() + ALIVE_S
            position = batch.position
            if self.feed.end > position:
                continue
            if time.monotonic() >= self.deadline:
                return
            await self.feed.changed(position, min(ASK_AGAIN_S, self.deadline - time.monotonic()))
            if time.monotonic() >= alive:
                yield ALIVE
                alive = time.monotonic() + ALIVE_S

    def _batch(self, position: int) -> Batch:
        only, watching = self._may_know()
        return self.feed.batch(position, only, watching=watching)

    async def _older(self, position: int) -> Batch:
        only, watching = self._may_know()
        return await self.feed.older(position, only, watching=watching)

    async def _last(self, until: int, most: int) -> list[str]:
        only, watching = self._may_know()
        return await self.feed.last(until, most, only, watching=watching)

    def _may_know(self) -> tuple[EventFilter, bool]:
        """As the rights are that were checked last."""
        caller: Caller = self.request.state.caller
        tenants = caller.visible(self.tenant)
        only = EventFilter(
            tenants=None if tenants is None else frozenset(tenants), nouns=self.wanted.nouns, name=self.wanted.name
        )
        return only, watches_pool(caller)

    def _position(self, position: int) -> str:
        """No event, but readers know from then on where they are."""
        return f"id: {self.feed.service.ids.of(position)}\n\n"

    def _gap(self, reason: GapReason) -> str:
        return f"event: gap\ndata: {GapAnswer(reason=reason).model_dump_json()}\n\n"
