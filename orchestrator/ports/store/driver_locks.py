# SPDX-License-Identifier: Apache-2.0
"""The drivers that the site means to have."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.drivers.lock import DriverLock


class DriverLocks(Protocol):
    def get(self) -> DriverLock | None:
        """None: nothing was ever locked."""

    def put(self, lock: DriverLock) -> None:
        """In the place of the one that was there."""
