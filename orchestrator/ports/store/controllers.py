# SPDX-License-Identifier: Apache-2.0
"""Servers that share this database."""

from __future__ import annotations

from typing import Protocol


class Controllers(Protocol):
    """Who else executes operations of this database."""

    def beat(self, name: str) -> dict[str, int]:
        """Say that ``name`` lives; how often every controller has said so yet."""

    def remove(self, name: str) -> None:
        """It has stopped in good order, or is gone. Gone already is fine."""
