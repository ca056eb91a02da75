# SPDX-License-Identifier: Apache-2.0
"""Servers that share this database."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.controller import Door


class Controllers(Protocol):
    """Who else executes operations of this database."""

    def beat(self, name: str) -> dict[str, int]:
        """Say that ``name`` lives, and raise its count (one that is new begins at 1); every controller's count."""

    def remove(self, name: str) -> None:
        """It has stopped in good order, or is gone. Gone already is fine."""

    def miss(self, name: str, host: str) -> bool:
        """Write down that it does not reach a host; whether another one that lives does, as far as is known."""

    def reach(self, name: str, host: str) -> None:
        """It does."""

    def missed(self, name: str) -> frozenset[str]:
        """Hosts that it does not reach."""

    def missing(self, host: str) -> tuple[str, ...]:
        """Controllers that do not reach it, by name."""

    def apart(self) -> dict[str, str]:
        """Hosts that some of those that live reach and others do not: which one is to work there."""

    def put_door(self, door: Door) -> None:
        """Where the others reach it from now on."""

    def remove_door(self, name: str) -> None: ...
    def doors(self) -> tuple[Door, ...]:
        """By name; also of those that do not run now."""

    def invite(self, invitation_id: str, digest: str, now: float, expires_at: float) -> None:
        """``digest``: SHA-256 of its secret. Those that are over by now are forgotten."""

    def use_invitation(self, invitation_id: str, digest: str, now: float) -> bool:
        """Whether it was good; it is not from now on."""
