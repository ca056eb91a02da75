# SPDX-License-Identifier: Apache-2.0
"""Rolling upgrades of drivers."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.drivers.upgrade import DriverUpgrade


class DriverUpgrades(Protocol):
    def add(self, upgrade: DriverUpgrade) -> None: ...

    def put(self, upgrade: DriverUpgrade) -> None:
        """In the place of the one with its id."""

    def newest(self) -> DriverUpgrade | None:
        """The one that began last; None: there was none."""

    def is_active(self) -> bool:
        """Whether the newest still has something under way or to begin; cheap."""
