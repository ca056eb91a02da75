# SPDX-License-Identifier: Apache-2.0
"""Server-sent events (WHATWG HTML, 9.2): an operation as it goes, for browsers and ``curl -N``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from orchestrator.api.schemas.operations import OperationAnswer
from orchestrator.core.operation import FINISHED, Watched

MEDIA_TYPE: Final = "text/event-stream"
ALIVE: Final = ": alive\n\n"
"""A comment: proxies drop connections on which nothing is said."""

Poll = Callable[[int], Awaitable[Watched | None]]
"""The operation when it is beyond this revision; as it is after a while; None when the reader is to go."""


def event(watched: Watched, *, watching: bool) -> str:
    """One event: its id is the revision, so that a browser that comes back says where it was."""
    data = OperationAnswer.of(watched.operation, watched.revision, watching=watching).model_dump_json()
    return f"id: {watched.revision}\nevent: operation\ndata: {data}\n\n"


async def events(first: Watched, since: int, poll: Poll, *, watching: bool) -> AsyncIterator[str]:
    """Every change after revision ``since``, until the operation is finished or ``poll`` ends it.
    ``watching``: the reader may know what happened on which host."""
    watched: Watched | None = first
    while watched is not None:
        finished = watched.operation.state in FINISHED
        if watched.revision > since or finished:
            since = watched.revision
            yield event(watched, watching=watching)
        else:
            yield ALIVE
        if finished:
            return
        watched = await poll(since)
