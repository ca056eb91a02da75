# SPDX-License-Identifier: Apache-2.0
"""By which clock ages are told: the server's, whose times they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

_clock: Final[ContextVar[Callable[[], float]]] = ContextVar("clock", default=time.time)


def go_by(clock: Callable[[], float]) -> None:
    """From now on; ``clock`` tells seconds since the epoch."""
    _clock.set(clock)


def now() -> float:
    """Seconds since the epoch."""
    return _clock.get()()
