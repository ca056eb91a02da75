# SPDX-License-Identifier: Apache-2.0
"""Guests of simulated VMs: whatever is run in them is there already."""

from __future__ import annotations

import time
from collections.abc import Callable

from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.guest.guest import Guest, GuestRun, RoleResult, WantedRoles

_KEY = "ssh-ed25519 AAAA"


class SimulatedGuests:
    """Implements ports.guests.Guests."""

    def reach(self, guest: Guest, stop: Callable[[], bool]) -> GuestRun:
        return GuestRun(host_key=_KEY)

    def provision(
        self, guest: Guest, wanted: WantedRoles, progress: Callable[[str], None], stop: Callable[[], bool]
    ) -> GuestRun:
        for role in wanted.roles:
            progress(role)
        return GuestRun(
            host_key=_KEY,
            results=tuple(ran(role, guest.run, time.time()) for role in wanted.roles),
            facts=GuestFacts(system="simulated") if "guest_check" in wanted.roles else None,
        )


def ran(role: str, operation: str, at: float) -> RoleResult:
    """A role that found everything as it should be."""
    return RoleResult(role=role, state="ok", tasks_ok=1, tasks_changed=0, failed_task=None, at=at, operation=operation)
