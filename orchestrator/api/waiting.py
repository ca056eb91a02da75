# SPDX-License-Identifier: Apache-2.0
"""Clients that wait for an operation to change hold an event each and no thread, however many they are.

A commit of this process wakes them and says what it wrote, or the operation is read once for all of them. What another
controller commits is seen by one question a second, asked while anybody waits, for all operations that are waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final

from anyio import to_thread
from fastapi import Depends
from starlette.requests import HTTPConnection, Request

from orchestrator.core.contained import Contained
from orchestrator.core.errors import Retryable
from orchestrator.core.operation import FINISHED, Watched
from orchestrator.services.operations import OperationService

MAX_WAITS_OF_TENANT: Final = 256
"""Each has a descriptor, and a turn of the event loop at each change. Who watches the pool is not counted."""
ELSEWHERE_S: Final = 1.0
"""How late what another controller has done may be noticed."""


def _nothing() -> None:
    pass


@dataclass
class _Watch:
    """One operation that somebody waits for."""

    latest: Watched | None = None
    """As it was read last for those who wait."""
    watchers: set[WaitingClient] = field(default_factory=set)
    leave: Callable[[], None] = _nothing
    reading: bool = False
    changed: bool = False
    """Since it was read."""

    def read(self, watched: Watched) -> Watched:
        """The newest that was read."""
        if self.latest is None or self.latest.revision < watched.revision:
            self.latest = watched
        return self.latest

    def wake(self) -> None:
        for watcher in self.watchers:
            watcher.woken.set()


class WaitingClient:
    """One client that waits."""

    def __init__(self, watch: _Watch, read: Callable[[], Awaitable[Watched]], first: Watched | None) -> None:
        self._watch = watch
        self._read = read
        self._known = None if first is None else watch.read(first)
        self.woken = asyncio.Event()
        self.leaving = False

    async def until_changed(self, since: int, timeout_s: float) -> Watched:
        """As :meth:`Waiting.until_changed`. Read at the first time only, unless somebody just has: later changes are
        told."""
        deadline = time.monotonic() + timeout_s
        if self._known is None:
            self._known = self._watch.read(await self._read())
        while not (_over(self._known, since) or self.leaving or time.monotonic() >= deadline):
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self.woken.wait()
            self.woken.clear()
            self._known = self._watch.read(self._known)
        return self._known

    def leave(self) -> None:
        self.leaving = True
        self.woken.set()


class Waiting:
    """Everybody who waits. Lives on the event loop."""

    def __init__(self, operations: OperationService) -> None:
        self._operations = operations
        self.watches: dict[str, _Watch] = {}
        """Operations that somebody waits for, by id."""
        self._of_tenant: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking = False
        self._closed = False

    async def until_changed(
        self, first: Watched, *, since: int, timeout_s: float, request: Request, tenant: str | None = None
    ) -> Watched:
        """The operation, which has just been read as ``first``, as soon as its revision is above ``since`` or it is
        finished; as it is after ``timeout_s``, when ``request``'s client has gone, and when the process leaves.
        ``tenant``: whose wait it is; None: of somebody who watches the pool.

        :raises NotFound: ``operation.unknown``; :raises Retryable: ``server.waits_busy``
        """
        if timeout_s <= 0 or _over(first, since):
            return first
        self.check_room(tenant)
        with self.watching(first.operation.id, first, tenant) as watcher, _noticing(request, watcher):
            return await watcher.until_changed(since, timeout_s)

    def check_room(self, tenant: str | None) -> None:
        """That one more may wait.

        :raises Retryable: ``server.waits_busy``
        """
        if tenant is not None and self._of_tenant[tenant] >= MAX_WAITS_OF_TENANT:
            raise Retryable(
                "server.waits_busy",
                f"{MAX_WAITS_OF_TENANT} requests of the tenant wait for operations already",
                hint="let one of them end, or ask without waiting",
            )

    async def read(self, operation_id: str) -> Watched:
        """The operation as it is now.

        :raises NotFound: ``operation.unknown``
        """
        return await to_thread.run_sync(self._operations.watched, operation_id)

    @contextmanager
    def watching(
        self, operation_id: str, first: Watched | None = None, tenant: str | None = None
    ) -> Iterator[WaitingClient]:
        """For somebody who waits for one change after the other. ``first``: the operation, if it has just been read."""
        watch = self.watches.get(operation_id) or self._begin(operation_id)
        watcher = WaitingClient(watch, partial(self.read, operation_id), first)
        watcher.leaving = self._closed
        watch.watchers.add(watcher)
        counted: Counter[str] = Counter() if tenant is None else Counter({tenant: 1})
        self._of_tenant += counted
        try:
            yield watcher
        finally:
            self._of_tenant -= counted
            watch.watchers.discard(watcher)
            if not watch.watchers:
                watch.leave()
                self.watches.pop(operation_id, None)

    def close(self) -> None:
        """The process leaves: whoever waits is answered now, and nobody waits any more."""
        self._closed = True
        for watch in self.watches.values():
            for watcher in watch.watchers:
                watcher.leave()

    def _begin(self, operation_id: str) -> _Watch:
        loop = asyncio.get_running_loop()
        watch = self.watches[operation_id] = _Watch()

        def told(as_it_is: Watched | None) -> None:
            with suppress(RuntimeError):  # the loop has ended before the operations have
                loop.call_soon_threadsafe(self._told, operation_id, as_it_is)

        watch.leave = self._operations.listen(operation_id, told)
        if not self._asking:
            self._asking = True
            self._start(self._ask_elsewhere())
        return watch

    def _told(self, operation_id: str, as_it_is: Watched | None = None) -> None:
        """``as_it_is``: None when it has to be read."""
        watch = self.watches.get(operation_id)
        if watch is None:
            return
        if as_it_is is not None:
            watch.read(as_it_is)
            watch.wake()
            return
        watch.changed = True
        if not watch.reading:
            watch.reading = True
            self._start(self._read_for_all(operation_id, watch))

    async def _read_for_all(self, operation_id: str, watch: _Watch) -> None:
        """A database that is away for a moment is asked again by the next change, or by the question to others."""
        with Contained(lambda _: None):
            while watch.changed and watch.watchers:
                watch.changed = False
                watch.read(await self.read(operation_id))
                watch.wake()
        watch.reading = False

    async def _ask_elsewhere(self) -> None:
        while self.watches:
            await asyncio.sleep(ELSEWHERE_S)
            with Contained(lambda _: None):
                now = await to_thread.run_sync(self._operations.revisions, tuple(self.watches))
                for operation_id, revision in now.items():
                    if self._knows_older(operation_id, revision):
                        self._told(operation_id)
        self._asking = False

    def _knows_older(self, operation_id: str, revision: int) -> bool:
        watch = self.watches.get(operation_id)
        return watch is not None and watch.latest is not None and watch.latest.revision < revision

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop itself keeps no hold of it
        task.add_done_callback(self._tasks.discard)


def _over(watched: Watched, since: int) -> bool:
    return watched.revision > since or watched.operation.state in FINISHED


@contextmanager
def _noticing(request: Request, watcher: WaitingClient) -> Iterator[None]:
    """The watcher leaves when the request's client has closed its connection."""

    async def notice() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        watcher.leave()

    noticing = asyncio.ensure_future(notice())
    try:
        yield
    finally:
        noticing.cancel()


async def _waiting(connection: HTTPConnection) -> Waiting:
    waiting: Waiting = connection.app.state.waiting
    return waiting


WaitingOf = Annotated[Waiting, Depends(_waiting)]
