# SPDX-License-Identifier: Apache-2.0
"""What one controller has of a host: its last frame and some minutes of what is charted; as values, and as the plain
JSON in which controllers tell each other."""

from __future__ import annotations

import functools
import math
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final

from orchestrator.core.errors import Unknown
from orchestrator.core.readings.flows import MAX_KEPT, Flow, LeftOut, flow_from_dict, flow_to_dict
from orchestrator.core.readings.frame import SHARED_KEYS, HostFrame, Key, Reading, frame_from_dict, frame_to_dict
from orchestrator.core.readings.quantities import BY_NAME, Quantity, SubjectKind

KEPT_FRAMES: Final = 30
"""Of a host: five minutes."""
KEPT_S: Final = 300.0

Columns = tuple[tuple[SubjectKind, str, tuple[Key, ...]], ...]
"""Kind and id of each subject, and what is charted of it: the order of a moment's numbers."""

_Places = Mapping[tuple[SubjectKind, str], tuple[int, tuple[Key, ...]]]
"""Where the numbers of each subject begin in a moment's, and what they are."""


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
class Moment:
    """What is charted of one frame."""

    received_at: float
    columns: Columns
    numbers: array[float]
    """Of counters what they grew by the second: their own values have more digits than are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedFrame:
    """What a host sent last. Times are of one clock that only goes forward."""

    frame: HostFrame
    received_at: float
    now: float
    clock_ahead_s: float
    """How far the host's clock was before ours then; negative: behind."""
    moments: tuple[Moment, ...] = ()
    """Oldest first."""
    flows: tuple[Flow, ...] = ()
    """Of the last hour, oldest first."""
    flows_left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    """By card, of the last hour; of no card: what nobody heard before the first frame, or did not read."""

    @property
    def age_s(self) -> float:
        """Since it was received."""
        return self.now - self.received_at

    def last_moment(self, kind: SubjectKind, subject: str) -> Mapping[Key, float]:
        """What is charted of the last frame, of counters what they grew by the second."""
        last = self.moments[-1:]
        return dict(_charted_numbers(_places_in(last[0].columns), last[0].numbers, (kind, subject))) if last else {}

    def histories(self) -> Callable[[SubjectKind, str], History]:
        """The last minutes of each subject, all of the same moments; empty of what has none."""
        distinct = {id(moment.columns): moment.columns for moment in self.moments}
        places = {which: _places_in(columns) for which, columns in distinct.items()}
        ages_s = tuple(self.now - moment.received_at for moment in self.moments)
        of_moments = [(places[id(moment.columns)], moment.numbers) for moment in self.moments]

        def history(kind: SubjectKind, subject: str) -> History:
            numbers = [dict(_charted_numbers(its_places, of_all, (kind, subject))) for its_places, of_all in of_moments]
            keys = dict.fromkeys(key for of_moment in numbers for key in of_moment)
            return History(
                ages_s=ages_s,
                series=tuple(
                    Series(
                        quantity=BY_NAME[name],
                        label=label,
                        numbers=tuple(of_moment.get((name, label)) for of_moment in numbers),
                    )
                    for name, label in keys
                ),
            )

        return history


def moment_of(now: float, frame: HostFrame, before: HostFrame | None, columns_before: Columns) -> Moment:
    """What is kept of a frame for minutes. ``before``: the host's last one, ``columns_before`` of its moment."""
    columns: Columns = tuple((reading.kind, reading.id, _charted(reading.keys)[0]) for reading in frame.readings)
    if columns_before == columns:
        columns = columns_before  # one for all moments that are alike
    earlier = {} if before is None else {(reading.kind, reading.id): reading for reading in before.readings}
    passed_s = 0.0 if before is None else frame.taken_at - before.taken_at
    numbers = array("f")
    for reading in frame.readings:
        numbers.extend(_kept_numbers(reading, earlier.get((reading.kind, reading.id)), passed_s))
    return Moment(now, columns, numbers)


def received_to_dict(received: ReceivedFrame, *, moments: int) -> dict[str, object]:
    """With so many of the last moments; with none of them, flows."""
    shown = received.moments[len(received.moments) - moments :] if moments < len(received.moments) else received.moments
    columns = list(dict.fromkeys(moment.columns for moment in shown))
    return {
        "age_s": received.age_s,
        "clock_ahead_s": received.clock_ahead_s,
        "frame": frame_to_dict(replace(received.frame, flows=(), flows_left_out={})),
        "flows": [] if moments else [flow_to_dict(flow) for flow in received.flows],
        "flows_left_out": {} if moments else {card: [of.at, of.flows] for card, of in received.flows_left_out.items()},
        "columns": columns,
        "moments": [
            {
                "age_s": received.now - moment.received_at,
                "columns": columns.index(moment.columns),
                "numbers": b64encode(moment.numbers).decode(),
            }
            for moment in shown
        ],
    }


def received_from_dict(data: Any) -> ReceivedFrame:
    """What another controller sent, of this version or another one.

    :raises Unknown: ``agent.answer_invalid``, ``controller.answer_invalid``
    """
    try:
        return _received(data)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise Unknown("controller.answer_invalid", "another controller sent readings that are none") from error


def _received(data: Any) -> ReceivedFrame:
    columns: list[Columns] = [
        tuple((kind, subject, tuple((name, label) for name, label in keys)) for kind, subject, keys in of_moment)
        for of_moment in data["columns"]
    ]
    sizes = {of_moment: sum(len(keys) for _, _, keys in of_moment) for of_moment in columns}
    moments = tuple(
        Moment(-_finite(moment["age_s"]), columns[moment["columns"]], array("f", b64decode(moment["numbers"])))
        for moment in data["moments"]
    )
    if any(len(moment.numbers) != sizes[moment.columns] for moment in moments):
        raise ValueError("numbers without names")
    return ReceivedFrame(
        frame=frame_from_dict(data["frame"]),
        received_at=-_finite(data["age_s"]),
        now=0.0,
        clock_ahead_s=_finite(data["clock_ahead_s"]),
        moments=moments,
        flows=tuple(map(flow_from_dict, data.get("flows", [])[:MAX_KEPT])),
        flows_left_out={
            str(card): LeftOut(_finite(at), int(flows))
            for card, (at, flows) in dict(data.get("flows_left_out", {})).items()
        },
    )


def _finite(value: Any) -> float:
    """:raises ValueError, TypeError, OverflowError: it is no number, or none that can be counted with"""
    if not math.isfinite(number := float(value)):
        raise ValueError(f"{number} seconds")
    return number


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


def _places_in(columns: Columns) -> _Places:
    begins = accumulate((len(keys) for _, _, keys in columns), initial=0)
    return {(kind, subject): (at, keys) for (kind, subject, keys), at in zip(columns, begins, strict=False)}


def _charted_numbers(
    places: _Places, numbers: array[float], subject: tuple[SubjectKind, str]
) -> Iterator[tuple[Key, float]]:
    at, keys = places.get(subject, (0, ()))
    values = zip(keys, numbers[at : at + len(keys)], strict=True)
    return ((key, number) for key, number in values if math.isfinite(number) and key[0] in BY_NAME)
