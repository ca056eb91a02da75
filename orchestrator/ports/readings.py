# SPDX-License-Identifier: Apache-2.0
"""Readings of hosts that this controller does not hear."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from orchestrator.core.readings.received import ReceivedFrame


class OtherControllers(Protocol):
    def readings(self, hosts: Collection[str], *, moments: int) -> Mapping[str, ReceivedFrame]:
        """By host, of those that others hear, with so many of the last moments. It takes seconds at most; a controller
        that does not answer in time is as one that hears nothing."""
