# SPDX-License-Identifier: Apache-2.0
"""The last frame of each host, and five minutes of what is charted. In memory alone: after a restart it fills again.

A frame counts by when it was received: a host's clock may be wrong. What is older than :data:`STALE_S` is not shown.
"""

from __future__ import annotations

import functools
import math
import threading
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from orchestrator.core.readings.frame import SHARED_KEYS, HostFrame, Key, Reading
from orchestrator.core.readings.quantities import BY_NAME, Quantity, SubjectKind
from orchestrator.ports.clock import Clock

STALE_S: Final = 30.0
"""Three frames were not received: what was in the last one is not shown any more."""
KEPT_FRAMES: Final = 30
"""Of a host: five minutes."""
KEPT_S: Final = 300.0

_Columns = tuple[tuple[SubjectKind, str, tuple[Key, ...]], ...]
"""Kind and id of each subject, and what is charted of it: the order of a moment's numbers."""


@dataclass(frozen=True, kw_only=True)
class ReceivedFrame:
    """What a host sent last."""

    frame: HostFrame
    age_s: float
    """Since it was received."""
    clock_ahead_s: float
    """How far the host's clock was before ours then; negative: behind."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A quantity over the last minutes. Of a counter its growth by the second since the moment before."""

    quantity: Quantity
    label: str
    """Its label's value; empty: it has none."""
    numbers: tuple[float | None, ...]
    """As many as moments; None: it was not read then."""


@dataclass(frozen=True, kw_only=True)
class History:
    """Of one subject. ``ages_s``: how long ago each moment was received, oldest first."""

    ages_s: tuple[float, ...] = ()
    series: tuple[Series, ...] = ()


@dataclass(frozen=True, slots=True)
class _Moment:
    received: float
    columns: _Columns
    numbers: array[float]
    """Of counters what they grew by the second: their own values have more digits than are kept."""


_Places = Mapping[tuple[SubjectKind, str], tuple[int, tuple[Key, ...]]]
"""Where the numbers of each subject begin in a moment's, and what they are."""


class Histories:
    """The last minutes of one host."""

    def __init__(self, ages_s: tuple[float, ...], moments: tuple[_Moment, ...]) -> None:
        self._ages_s = ages_s
        distinct = {id(moment.columns): moment.columns for moment in moments}
        places = {which: _places_in(columns) for which, columns in distinct.items()}
        self._moments = [(places[id(moment.columns)], moment.numbers) for moment in moments]

    def of(self, kind: SubjectKind, subject: str) -> History:
        """Empty of what has none."""
        numbers = [dict(_charted_numbers(places, of_all, (kind, subject))) for places, of_all in self._moments]
        keys = dict.fromkeys(key for of_moment in numbers for key in of_moment)
        return History(
            ages_s=self._ages_s,
            series=tuple(
                Series(
                    quantity=BY_NAME[name],
                    label=label,
                    numbers=tuple(of_moment.get((name, label)) for of_moment in numbers),
                )
                for name, label in keys
            ),
        )


@dataclass(frozen=True, slots=True)
class _Host:
    received: float
    clock_ahead_s: float
    frame: HostFrame
    moments: deque[_Moment]


class KeptReadings:
    """Of the hosts that this process listens to. Safe to call from many threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._hosts: dict[str, _Host] = {}

    def receive(self, host: str, frame: HostFrame) -> None:
        """A frame that came just now. What is kept of other hosts stays as it is, whatever is in it."""
        now = self._clock.monotonic()
        with self._lock:
            before = self._hosts.get(host)
        moments = deque[_Moment](maxlen=KEPT_FRAMES) if before is None else before.moments.copy()
        moments.append(_moment(now, frame, before))
        kept = _Host(now, frame.taken_at - self._clock.now(), frame, moments)
        with self._lock:
            self._hosts[host] = kept

    def last(self, host: str) -> ReceivedFrame | None:
        """None: nothing was received within :data:`STALE_S`."""
        with self._lock:
            kept = self._hosts.get(host)
        age = math.inf if kept is None else self._clock.monotonic() - kept.received
        if kept is None or age > STALE_S:
            return None
        return ReceivedFrame(frame=kept.frame, age_s=age, clock_ahead_s=kept.clock_ahead_s)

    def histories(self, host: str) -> Histories:
        """Of all its subjects, of the same moments."""
        now = self._clock.monotonic()
        with self._lock:
            kept = self._hosts.get(host)
        moments = () if kept is None else tuple(moment for moment in kept.moments if now - moment.received <= KEPT_S)
        return Histories(tuple(now - moment.received for moment in moments), moments)

    def drop_old(self) -> None:
        """Forget hosts of which nothing was received for :data:`KEPT_S`: they are gone, or another process hears
        them."""
        oldest = self._clock.monotonic() - KEPT_S
        with self._lock:
            self._hosts = {name: kept for name, kept in self._hosts.items() if kept.received >= oldest}


def _moment(now: float, frame: HostFrame, before: _Host | None) -> _Moment:
    columns: _Columns = tuple((reading.kind, reading.id, _charted(reading.keys)[0]) for reading in frame.readings)
    if before is not None and before.moments[-1].columns == columns:
        columns = before.moments[-1].columns  # one for all moments that are alike
    earlier = {} if before is None else {(reading.kind, reading.id): reading for reading in before.frame.readings}
    passed_s = 0.0 if before is None else frame.taken_at - before.frame.taken_at
    numbers = array("f")
    for reading in frame.readings:
        numbers.extend(_kept_numbers(reading, earlier.get((reading.kind, reading.id)), passed_s))
    return _Moment(now, columns, numbers)


def _charted(keys: tuple[Key, ...]) -> tuple[tuple[Key, ...], tuple[tuple[int, bool], ...]]:
    """Those of the keys that are charted; where they stand, and whether each is a counter."""
    return _charted_of_shared(keys) if len(keys) <= SHARED_KEYS else _places(keys)


@functools.lru_cache(maxsize=1024)
def _charted_of_shared(keys: tuple[Key, ...]) -> tuple[tuple[Key, ...], tuple[tuple[int, bool], ...]]:
    return _places(keys)


def _places(keys: tuple[Key, ...]) -> tuple[tuple[Key, ...], tuple[tuple[int, bool], ...]]:
    places = [(at, BY_NAME[key[0]]) for at, key in enumerate(keys) if BY_NAME[key[0]].charted]
    return tuple(keys[at] for at, _ in places), tuple((at, quantity.kind == "counter") for at, quantity in places)


def _kept_numbers(reading: Reading, earlier: Reading | None, passed_s: float) -> Iterator[float]:
    comparable = earlier is not None and earlier.keys == reading.keys
    for at, counts in _charted(reading.keys)[1]:
        if not counts:
            yield reading.numbers[at]
        elif earlier is None or not comparable or not 0 < passed_s <= KEPT_S:
            yield math.nan
        else:
            grown = reading.numbers[at] - earlier.numbers[at]
            yield grown / passed_s if grown >= 0 else math.nan  # it began again


def _places_in(columns: _Columns) -> _Places:
    begins = accumulate((len(keys) for _, _, keys in columns), initial=0)
    return {(kind, subject): (at, keys) for (kind, subject, keys), at in zip(columns, begins, strict=False)}


def _charted_numbers(
    places: _Places, numbers: array[float], subject: tuple[SubjectKind, str]
) -> Iterator[tuple[Key, float]]:
    at, keys = places.get(subject, (0, ()))
    values = zip(keys, numbers[at : at + len(keys)], strict=True)
    return ((key, number) for key, number in values if math.isfinite(number))
