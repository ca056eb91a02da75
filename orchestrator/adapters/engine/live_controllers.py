# SPDX-License-Identifier: Apache-2.0
"""Which controllers live: each raises a number of its own, and the others count how often they saw it unchanged.

No clock is compared, so neither a wrong clock nor a pause of the database makes a living controller look dead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from orchestrator.ports.store.transaction import Store

_MISSED = 3
"""A controller that was seen unchanged as many times in a row has gone."""
_BEGUN_AGAIN = 1000
"""By so much a controller's first beat raises what is left of the one before: the others see that it is another."""
_KNOWN_AFTER = 3
"""Beats after which all others know that this one lives, or have gone."""


class LiveControllers:
    """What this controller knows of all. ``alone``: the database can have no other controller."""

    def __init__(self, store: Store, name: str, *, alone: bool) -> None:
        self._store = store
        self.name = name
        self._alone = alone
        self._seen: dict[str, tuple[int, int]] = {}
        self._beaten = 0
        self._since_joined = 0
        self.elders: frozenset[str] = frozenset()
        """Controllers that live, and did so before this one began."""
        self.rolled_back = False
        """The database has forgotten what this controller wrote: it was restored."""

    @property
    def alone(self) -> bool:
        """No other controller has been seen at the last beat, dead ones included that are not given up yet."""
        return self._alone or self._seen.keys() == {self.name}

    @property
    def known(self) -> bool:
        """Whether all others that live know that this one does."""
        return self._alone or self.alone or self._since_joined >= _KNOWN_AFTER

    @contextmanager
    def beat(self) -> Iterator[Collection[str]]:
        """Who lives. Only one controller at a time is inside the block, so that one takes over what a dead one left."""
        if self._alone:
            yield (self.name,)
            return
        with self._store.begin() as tx:
            beats = tx.controllers.beat(self.name, 1 if self._beaten else _BEGUN_AGAIN)
            # One that others took for dead begins at 1 again; any other step back is the database's own.
            self.rolled_back = self.rolled_back or 1 < beats[self.name] <= self._beaten
            self._beaten = beats[self.name]
            self._grow_older(beats)
            self._seen = {name: self._looked(name, count) for name, count in beats.items()}
            gone = {name for name, (_, missed) in self._seen.items() if missed >= _MISSED}
            self.elders -= gone
            yield self._seen.keys() - gone
            for name in gone:
                tx.controllers.remove(name)

    def _grow_older(self, beats: Mapping[str, int]) -> None:
        """One that has begun again, or that others took for dead, is younger than they are."""
        if not self._seen or beats[self.name] == 1:
            self._since_joined, self.elders = 0, frozenset(beats.keys() - {self.name})
            return
        self._since_joined += 1
        grown = {name: count - self._seen.get(name, (count, 0))[0] for name, count in beats.items()}
        self.elders &= {name for name, more in grown.items() if 0 <= more < _BEGUN_AGAIN}

    def leave(self) -> None:
        """This controller stops: what it has not finished may be taken at once."""
        if not self._alone:
            with self._store.begin() as tx:
                tx.controllers.remove(self.name)

    def _looked(self, name: str, count: int) -> tuple[int, int]:
        before, missed = self._seen.get(name, (None, 0))
        return (count, missed + 1 if count == before else 0)
