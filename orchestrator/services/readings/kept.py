# SPDX-License-Identifier: Apache-2.0
"""The last frame of each host, five minutes of what is charted, an hour of flows. In memory alone: after a restart it
fills again.

A frame counts by when it was received: a host's clock may be wrong. What is older than :data:`STALE_S` is not shown.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Final

from orchestrator.core.readings.flows import KEPT_S as FLOWS_KEPT_S
from orchestrator.core.readings.flows import MAX_KEPT, Flow, shared_out
from orchestrator.core.readings.frame import HostFrame
from orchestrator.core.readings.received import KEPT_FRAMES, KEPT_S, Moment, ReceivedFrame, moment_of
from orchestrator.ports.clock import Clock

STALE_S: Final = 30.0
"""Three frames were not received: what was in the last one is not shown any more."""


@dataclass(frozen=True, slots=True)
class _Host:
    received_at: float
    clock_ahead_s: float
    frame: HostFrame
    moments: deque[Moment]
    flows: tuple[tuple[float, Flow], ...]
    """With the time when each was received."""


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
        flows = () if before is None else before.flows
        if frame.flows:
            recent = (each for each in flows if now - each[0] <= FLOWS_KEPT_S)
            every = (*recent, *((now, flow) for flow in frame.flows))
            flows = shared_out(every, MAX_KEPT, lambda each: each[1].card)
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
            flows=tuple(flow for received_at, flow in kept.flows if now - received_at <= FLOWS_KEPT_S),
        )

    def drop_old(self) -> None:
        """Forget hosts of which nothing was received for :data:`KEPT_S`: they are gone, or another process hears
        them."""
        oldest = self._clock.monotonic() - KEPT_S
        with self._lock:
            self._hosts = {name: kept for name, kept in self._hosts.items() if kept.received_at >= oldest}
