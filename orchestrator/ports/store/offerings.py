# SPDX-License-Identifier: Apache-2.0
"""Offerings beside those that are shipped."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.offerings.offering import Offering


class Offerings(Protocol):
    """Those that the site added."""

    def list(self) -> tuple[Offering, ...]:
        """By name."""

    def put(self, offering: Offering) -> None:
        """Replaces the one of that name."""

    def remove(self, name: str) -> None:
        """Gone already is fine."""
