# SPDX-License-Identifier: Apache-2.0
"""The last frame of each host, five minutes of what is charted, an hour of flows. In memory alone: after a restart it
fills again.

A frame counts by when it was received: a host's clock may be wrong. What is older than :data:`STALE_S` is not shown.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.core.readings.flows import KEPT_S as FLOWS_KEPT_S
from orchestrator.core.readings.flows import LAST_AT, MAX_KEPT, NO_CARD, Flow, LeftOut, shared_out
from orchestrator.core.readings.frame import HostFrame
from orchestrator.core.readings.received import KEPT_FRAMES, KEPT_S, Moment, ReceivedFrame, moment_of
from orchestrator.ports.clock import Clock

STALE_S: Final = 30.0
"""Three frames were not received: what was in the last one is not shown any more."""
_TOGETHER_S: Final = 300.0
"""What was left out within it is counted together, and forgotten together: an hour's count is of that much more."""


@dataclass(frozen=True, slots=True)
class NewFlows:
    """Of a host, since its flow ``until`` that was told before."""

    flows: tuple[Flow, ...]
    """Oldest first."""
    left_out: int
    """How many more there were."""
    until: int


@dataclass(frozen=True, slots=True)
class _Flow:
    received_at: float
    number: int
    """Of the host's, left out ones counted."""
    flow: Flow


@dataclass(frozen=True, slots=True)
class _Gap:
    """Left out of a card within :data:`_TOGETHER_S`. ``last_at``: when the last of it was."""

    began: float
    last_at: float
    of: LeftOut


@dataclass(frozen=True, slots=True)
class _Flows:
    """Of one host, for an hour."""

    kept: tuple[_Flow, ...] = ()
    numbered: int = 0
    left_out: Mapping[str, tuple[_Gap, ...]] = field(default_factory=dict)
    """By card, oldest first."""

    def with_those_of(self, frame: HostFrame, now: float) -> _Flows:
        if not frame.flows and not frame.flows_left_out:
            return self
        recent = [each for each in self.kept if now - each.received_at <= FLOWS_KEPT_S]
        first = self.numbered + sum(frame.flows_left_out.values()) + 1
        new = [_Flow(now, number, flow) for number, flow in enumerate(frame.flows, first)]
        kept, others = shared_out((*recent, *new), MAX_KEPT, lambda each: each.flow.card)
        newest = dict.fromkeys(frame.flows_left_out, _calendar_time(frame))
        newest = {each.flow.card: each.flow.at for each in others} | newest
        counts = Counter(each.flow.card for each in others) + Counter(frame.flows_left_out)
        before = self.gaps(now)
        for card, at in newest.items():
            *earlier, last = before.pop(card, (_Gap(now, now, LeftOut(at, 0)),))
            if now - last.began > _TOGETHER_S:
                earlier, last = [*earlier, last], _Gap(now, now, LeftOut(at, 0))
            before[card] = *earlier, _Gap(last.began, now, LeftOut(at, last.of.flows + counts[card]))
        return _Flows(kept, first - 1 + len(new), dict(list(before.items())[-MAX_KEPT:]))

    def gaps(self, now: float) -> dict[str, tuple[_Gap, ...]]:
        """Of the last hour, of each card that has any."""
        recent = (
            (card, tuple(gap for gap in gaps if now - gap.last_at <= FLOWS_KEPT_S))
            for card, gaps in self.left_out.items()
        )
        return {card: gaps for card, gaps in recent if gaps}


@dataclass(frozen=True, slots=True)
class _Host:
    received_at: float
    clock_ahead_s: float
    frame: HostFrame
    moments: deque[Moment]
    flows: _Flows


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
        moments = deque[Moment](maxlen=KEPT_FRAMES) if before is None else before.moments.copy()
        columns = moments[-1].columns if moments else ()
        moments.append(moment_of(now, frame, None if before is None else before.frame, columns))
        unheard = {NO_CARD: (_Gap(now, now, LeftOut(_calendar_time(frame), 0)),)}
        flows = (_Flows(left_out=unheard) if before is None else before.flows).with_those_of(frame, now)
        kept = _Host(now, frame.taken_at - self._clock.now(), frame, moments, flows)
        with self._lock:
            self._hosts[host] = kept

    def last(self, host: str) -> ReceivedFrame | None:
        """None: nothing was received within :data:`STALE_S`."""
        now = self._clock.monotonic()
        with self._lock:
            kept = self._hosts.get(host)
        if kept is None or now - kept.received_at > STALE_S:
            return None
        return ReceivedFrame(
            frame=kept.frame,
            received_at=kept.received_at,
            now=now,
            clock_ahead_s=kept.clock_ahead_s,
            moments=tuple(moment for moment in kept.moments if now - moment.received_at <= KEPT_S),
            flows=tuple(each.flow for each in kept.flows.kept if now - each.received_at <= FLOWS_KEPT_S),
            flows_left_out={
                card: LeftOut(gaps[-1].of.at, sum(gap.of.flows for gap in gaps))
                for card, gaps in kept.flows.gaps(now).items()
            },
        )

    def new_flows(self, until: Mapping[str, int]) -> Mapping[str, NewFlows]:
        """Of each host, after the one that it was told until."""
        with self._lock:
            hosts = {name: kept.flows for name, kept in self._hosts.items()}
        return {name: _after(flows, until.get(name, 0)) for name, flows in hosts.items()}

    def drop_old(self) -> None:
        """Forget hosts of which nothing was received for :data:`KEPT_S`: they are gone, or another process hears
        them."""
        oldest = self._clock.monotonic() - KEPT_S
        with self._lock:
            self._hosts = {name: kept for name, kept in self._hosts.items() if kept.received_at >= oldest}


def _after(flows: _Flows, until: int) -> NewFlows:
    if until > flows.numbered:  # the host was forgotten meanwhile
        until = 0
    new = tuple(each.flow for each in flows.kept if each.number > until)
    return NewFlows(flows=new, left_out=flows.numbered - until - len(new), until=flows.numbered)


def _calendar_time(frame: HostFrame) -> float:
    return min(max(frame.taken_at, 0.0), LAST_AT)
