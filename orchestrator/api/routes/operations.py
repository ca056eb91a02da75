# SPDX-License-Identifier: Apache-2.0
"""/v1/operations"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import StreamingResponse

from orchestrator.api.auth import ASK_AGAIN_S, Asked, CallerOf, just_read
from orchestrator.api.http_answers import ALIVE, EventStream, event_stream_answers
from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.schemas.operations import OperationAnswer
from orchestrator.api.services import ServicesOf, TenantFilter
from orchestrator.api.visibility import watches_pool
from orchestrator.api.waiting import WaitingOf
from orchestrator.core.errors import Denied
from orchestrator.core.operation import FINISHED, UNSETTLED, OperationState, Watched, check_kind
from orchestrator.core.tenancy.access import Caller
from orchestrator.store.records import OperationFilter

router = APIRouter(prefix="/operations", tags=["operations"])

MAX_WAIT_S: Final = 60.0
MAX_STREAM_S: Final = 3600.0
ALIVE_S: Final = 15.0
"""How often a stream of events says that it is still there."""
MAX_REVISION: Final = 2**62

_Poll = Callable[[int], Awaitable[Watched | None]]
"""The operation when it is beyond this revision; as it is after a while; None when the reader is to go."""
IdInPath = Annotated[str, Path(description="Id of the operation")]
Subject = Annotated[
    str | None, Query(max_length=127, description="Only about this: an id, a host, tenant/name of a VM, gone ones too")
]


async def _filter(
    active: Annotated[bool, Query(description="Only those that have not ended, or are stuck")] = False,
    state: Annotated[OperationState | None, Query(description="Only those in this state")] = None,
    kind: Annotated[str | None, Query(max_length=40, description="Only of this kind, like create_vm")] = None,
    subject: Subject = None,
    beginning: Annotated[str | None, Query(max_length=36, description="How the id begins")] = None,
) -> OperationFilter:
    """:raises InvalidInput: ``operation.kind_unknown``"""
    states = UNSETTLED if active else None
    if state is not None:
        states = (state,) if states is None or state in states else ()
    kind = None if kind is None else check_kind(kind)
    return OperationFilter(states=states, kind=kind, subject=subject, beginning=beginning)


_SORTED_BY: Final = ("created_at", "kind", "state", "subject_name")


@router.get("")
def list_all(
    services: ServicesOf,
    caller: CallerOf,
    paging: SortedPagingOf,
    only: Annotated[OperationFilter, Depends(_filter)],
    tenant: TenantFilter = None,
) -> list[OperationAnswer]:
    """List operations, newest first."""
    only["tenants"] = caller.visible(tenant)
    after = paging.after(1)
    before = None if after is None else after[0]
    if paging.sort is not None:
        paging.sort_name(_SORTED_BY)
    operations = services.operations.list(limit=paging.limit + 1, before=before, sort=paging.sort, **only)
    page = paging.page(
        list(operations), lambda operation: (operation.id,), lambda: services.operations.how_many(**only)
    )
    watching = watches_pool(caller)
    return [OperationAnswer.of(operation, watching=watching) for operation in page]


@router.get("/{operation_id}")
async def get(
    operation_id: IdInPath,
    request: Request,
    caller: CallerOf,
    waiting: WaitingOf,
    wait: Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="Seconds to wait for a change")] = 0,
    since: Annotated[int, Query(ge=-1, le=MAX_REVISION, description="Revision that is known already")] = -1,
) -> OperationAnswer:
    """Get an operation. One operation, as soon as it differs from revision ``since`` or is finished, at the latest
    after ``wait``."""
    first, polled = just_read(request), Asked(request)
    watched = await waiting.until_changed(
        first, since=since, timeout_s=wait, request=request, tenant=_whose_wait(caller, first)
    )
    if not await polled.again():
        raise Denied(
            "token.refused", "you may no longer see this operation", hint="ask for a new token, or log in again"
        )
    return OperationAnswer.of(watched.operation, watched.revision, watching=watches_pool(caller))


@router.get(
    "/{operation_id}/events",
    response_class=StreamingResponse,
    responses=event_stream_answers("Events until it is finished"),
)
async def stream(
    operation_id: IdInPath,
    request: Request,
    caller: CallerOf,
    waiting: WaitingOf,
    wait: Annotated[float, Query(ge=0, le=MAX_STREAM_S, description="Seconds after which the stream ends")] = 600,
    last_event_id: Annotated[int, Header(ge=-1, le=MAX_REVISION, description="Revision that is known already")] = -1,
) -> EventStream:
    """Stream an operation's changes. Server-sent events, one for each change: the operation as JSON under its
    revision."""
    deadline = time.monotonic() + wait
    first = just_read(request)
    tenant = _whose_wait(caller, first)
    waiting.check_room(tenant)
    polled = Asked(request)

    async def poll(since: int) -> Watched | None:
        end = min(deadline, time.monotonic() + ALIVE_S)
        with waiting.watching(operation_id, tenant=tenant) as watcher:
            while not watcher.leaving and time.monotonic() < deadline:
                watched = await watcher.until_changed(since, min(end - time.monotonic(), ASK_AGAIN_S))
                if not await polled.again():
                    return None
                if watched.revision > since or watched.operation.state in FINISHED or time.monotonic() >= end:
                    return watched
        return None

    stream = _events(first, last_event_id, poll, watching=watches_pool(caller))
    return EventStream(stream)


def _whose_wait(caller: Caller, watched: Watched) -> str | None:
    return None if watches_pool(caller) else watched.operation.tenant


@router.post("/{operation_id}/retry")
def retry(operation_id: IdInPath, services: ServicesOf) -> OperationAnswer:
    """Retry an operation. A stuck operation: go on from where it stands, or take the rest back."""
    return OperationAnswer.of(services.operations.retry(operation_id), watching=True)


@router.post("/{operation_id}/abandon")
def abandon(operation_id: IdInPath, services: ServicesOf) -> OperationAnswer:
    """Abandon an operation. A stuck operation: cleaned up by hand, release what it holds."""
    return OperationAnswer.of(services.operations.abandon(operation_id), watching=True)


@router.post("/{operation_id}/cancel")
def cancel(operation_id: IdInPath, services: ServicesOf, caller: CallerOf) -> OperationAnswer:
    """Cancel an operation. Stop after the current step and take everything back."""
    return OperationAnswer.of(services.operations.cancel(operation_id), watching=watches_pool(caller))


def _event(watched: Watched, *, watching: bool) -> str:
    """One event: its id is the revision, so that a browser that comes back says where it was."""
    data = OperationAnswer.of(watched.operation, watched.revision, watching=watching).model_dump_json()
    return f"id: {watched.revision}\nevent: operation\ndata: {data}\n\n"


async def _events(first: Watched, since: int, poll: _Poll, *, watching: bool) -> AsyncIterator[str]:
    """Every change after revision ``since``, until the operation is finished or ``poll`` ends it.
    ``watching``: the reader may know what happened on which host."""
    watched: Watched | None = first
    while watched is not None:
        finished = watched.operation.state in FINISHED
        if watched.revision > since or finished:
            since = watched.revision
            yield _event(watched, watching=watching)
        else:
            yield ALIVE
        if finished:
            return
        watched = await poll(since)
