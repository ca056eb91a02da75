# SPDX-License-Identifier: Apache-2.0
"""Hosts of which there is nothing to say as long as they look as before: their agents are asked whether they do.

Most looks of a large fleet find what the last one found. Such a host is not compared again with what is wanted, and
nothing is written but, now and then, when it was last seen. Every host has its turn to be looked at as a whole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Sequence
from operator import itemgetter
from typing import Final
from zlib import crc32

from orchestrator.core.hosts.host import Host
from orchestrator.core.interpreter import keep_all_objects, short_turns
from orchestrator.services.hosts.observing import HostObserver
from orchestrator.store.database import Store
from orchestrator.store.records import LastObservation, UnchangedObservation

WHOLE_EVERY: Final = 60
"""Rounds from one look that takes nothing for granted to the next, host by host."""
WRITTEN_AFTER_S: Final = 100.0
"""So old may be what is stored of when a host that looks as before was last seen."""
_BATCH: Final = 100
"""Hosts in one commit: others wait for it, for two or three milliseconds."""
_MANY: Final = 1000
"""Hosts. What is kept of so many from one round to the next is no garbage, and long to search for some."""
_LET_OTHERS_S: Final = 0.01
"""Between two pages of a large fleet: reading one keeps the interpreter busy about as long."""


def interleave(hosts: Sequence[LastObservation], unchanged: Container[str]) -> tuple[LastObservation, ...]:
    """The changed ones evenly among the unchanged, each kind in its order. They were seen last in the round
    before, so all would come at the end, and a hundred such looks in a row keep the interpreter busy for seconds."""
    groups: tuple[list[LastObservation], list[LastObservation]] = ([], [])
    for observed in hosts:
        groups[observed.host.name in unchanged].append(observed)
    places = [((at + 0.5) / len(kind), observed) for kind in groups for at, observed in enumerate(kind)]
    return tuple(observed for _, observed in sorted(places, key=itemgetter(0)))


def _nothing_new(_host: str) -> None:
    """What is stored is what the host shows."""


class UnchangedHosts:
    """What is kept from one round to the next."""

    def __init__(self, store: Store, observer: HostObserver) -> None:
        self._store = store
        self._observer = observer
        self._rounds = 0
        self._turn: int | None = None
        """The newest when the last round began: what operations with a later one did may not have been seen."""
        self._seen: list[UnchangedObservation] = []
        self._lock = threading.Lock()

    def read(self, now: float) -> tuple[tuple[LastObservation, ...], frozenset[str]]:
        """All hosts and the names of the unchanged ones. Of both kinds those come first that were not seen for
        longest."""
        hosts: list[LastObservation] = []
        with short_turns(), self._store.read() as tx:
            for some in tx.observations.last():
                if hosts:
                    time.sleep(_LET_OTHERS_S)
                hosts += some
            turn, changed = tx.operations.turn(), tx.observations.changed_since(since=self._turn, now=now)
        self._rounds += 1
        self._turn = turn
        if self._rounds == 1 and len(hosts) >= _MANY:
            keep_all_objects()
        hosts.sort(
            key=lambda observed: observed.last_seen_at or 0.0
        )  # those of the same moment stay in the order of names
        unchanged = (
            observed.host.name
            for observed in hosts
            if _rests(observed.host) and not self._is_due_whole(observed.host.name)
        )
        names = frozenset(unchanged) - changed - self._observer.missed()
        return interleave(hosts, names), names

    def look(
        self,
        last: LastObservation,
        digest: str,
        otherwise: Callable[[str, Callable[[str], object]], None],
        *,
        asked: bool,
    ) -> None:
        """``otherwise`` is given the host's name and what stores what it shows, when that has this digest no more, or
        somebody wants to know (``asked``): what is wanted is compared anew then."""
        observation = self._observer.look(last, digest, self._turn or 0)
        if not isinstance(observation, UnchangedObservation):
            otherwise(last.host.name, lambda name: self._observer.keep(name, observation))
        elif abs(observation.at - (last.last_seen_at or 0.0)) >= WRITTEN_AFTER_S:
            with self._lock:
                self._seen.append(observation)
        if asked and isinstance(observation, UnchangedObservation):
            otherwise(last.host.name, _nothing_new)

    def keep(self) -> None:
        """Write down when the hosts were seen that look as before, where that is due."""
        with self._lock:
            seen, self._seen = self._seen, []
        for at in range(0, len(seen), _BATCH):
            with self._store.begin() as tx:
                tx.observations.put_unchanged(seen[at : at + _BATCH])

    def _is_due_whole(self, name: str) -> bool:
        return (crc32(name.encode()) + self._rounds) % WHOLE_EVERY == 0


def _rests(host: Host) -> bool:
    return host.state == "ready" and host.restored is None
