# SPDX-License-Identifier: Apache-2.0
"""The machine's clock and random identifiers."""

from __future__ import annotations

import time
import uuid


class SystemClock:
    """Implements ports/clock.Clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class RandomIds:
    """Implements ports/clock.Ids."""

    def new_uuid(self) -> str:
        return str(uuid.uuid4())
