# SPDX-License-Identifier: Apache-2.0
"""One making for all who ask for the same at once: two hundred readers of a map fetch it again at one event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

Made = TypeVar("Made")
APART_S: Final = 0.1
"""Between two makings of the same at least: who asks meanwhile gets the second."""


class Shared(Generic[Made]):
    """Nothing is kept: what somebody gets was begun after it was asked for, so it is never older than the question."""

    def __init__(self) -> None:
        self._next: dict[Hashable, asyncio.Task[Made]] = {}
        self._running: dict[Hashable, asyncio.Task[Made]] = {}
        self._begun: dict[Hashable, float] = {}
        """When the last making of each began, of :func:`time.monotonic`."""
        self._turns = asyncio.Lock()

    async def turn(self) -> None:
        """Those who ask go on one after the other, so that what else the event loop has to do waits for one of them
        alone."""
        async with self._turns:
            await asyncio.sleep(0)

    async def made(self, key: Hashable, make: Callable[[], Awaitable[Made]]) -> Made:
        """What ``make`` gives; or that of another with the same ``key``. Raises what it raises."""
        following = self._next.get(key)
        if following is None:
            following = self._next[key] = asyncio.create_task(self._make(key, make))
        return await asyncio.shield(following)

    async def _make(self, key: Hashable, make: Callable[[], Awaitable[Made]]) -> Made:
        before = self._running.get(key)
        if before is not None:
            await asyncio.wait([before])
        await asyncio.sleep(self._begun.get(key, 0.0) + APART_S - time.monotonic())
        own = self._running[key] = self._next.pop(key)
        now = time.monotonic()
        self._begun = {other: at for other, at in self._begun.items() if now - at < APART_S} | {key: now}
        try:
            return await make()
        finally:
            if self._running[key] is own:
                del self._running[key]
