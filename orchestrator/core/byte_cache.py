# SPDX-License-Identifier: Apache-2.0
"""Values that can be made again, kept up to so many bytes: what hosts or tenants write decides how large each is."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class ByteCache(Generic[V]):
    """Those that nobody asked for go first. Many threads may use one: where two meet, a few bytes are counted wrong
    until the next half is full, and whoever keeps what changes under its key compares what it gets.

    Two halves: what is asked for is in the newer one or moves there, and a full newer one takes the place of the older
    one. So a question costs a look-up or two, and nothing is sorted.
    """

    def __init__(self, max_bytes: int) -> None:
        self._half = max_bytes // 2
        self._newer: dict[Hashable, tuple[V, int]] = {}
        self._older: dict[Hashable, tuple[V, int]] = {}
        self._bytes = 0

    def get(self, key: Hashable) -> V | None:
        """None: it has to be made."""
        kept = self._newer.get(key)
        return self._moved(key) if kept is None else kept[0]

    def put(self, key: Hashable, value: V, size: int) -> None:
        """In place of what was kept by that key. ``size``: about how many bytes both take; what is larger than half of
        all is not kept."""
        self.drop(key)
        if size > self._half:
            return
        if self._bytes + size > self._half:
            self._older, self._newer, self._bytes = self._newer, {}, 0
        self._newer[key] = value, size
        self._bytes += size

    def drop(self, key: Hashable) -> None:
        """Gone already is fine."""
        self._bytes -= self._newer.pop(key, (None, 0))[1]
        self._older.pop(key, None)

    def _moved(self, key: Hashable) -> V | None:
        kept = self._older.get(key)
        if kept is None:
            return None
        self.put(key, *kept)
        return kept[0]

    @property
    def size(self) -> int:
        """Bytes of all that is kept, as they were told."""
        return self._bytes + sum(size for _, size in list(self._older.values()))
