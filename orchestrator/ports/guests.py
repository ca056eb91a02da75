# SPDX-License-Identifier: Apache-2.0
"""Guests as roles are run in them (adapters/ansible/guests.py) or a stand-in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from orchestrator.core.guest.guest import Guest, GuestRun, WantedRoles


class Guests(Protocol):
    def reach(self, guest: Guest, stop: Callable[[], bool]) -> GuestRun:
        """Log in and do nothing: whether it can be reached, and which host key it shows. ``stop``: asked again and
        again whether the run should be ended."""

    def provision(
        self, guest: Guest, wanted: WantedRoles, progress: Callable[[str], None], stop: Callable[[], bool]
    ) -> GuestRun:
        """Run the roles. A second time changes nothing. ``progress`` gets titles of roles and tasks.

        What went wrong is in the answer: ``guest.…`` (docs/reference/errors.md)."""
