# SPDX-License-Identifier: Apache-2.0
"""One frame of the whole host, from the parts that read it."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.readings.frame import HostFrame


class Sampler:
    """``clock``: seconds since 1970."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def sample(self) -> HostFrame:
        return HostFrame(taken_at=self._clock(), readings=())
