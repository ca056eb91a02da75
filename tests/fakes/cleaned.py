# SPDX-License-Identifier: Apache-2.0
"""How GPUs are cleaned where a test is about something else."""

from __future__ import annotations

from typing import Final

from orchestrator.core.actions.host_actions import ActionResult, HostAction, RemovesDevice
from orchestrator.core.vms.cleaning import Cleaning, Evidence

CLEANED: Final = Evidence(at=0.0, otherwise="absent")
"""What ends a claim."""


def result_of(action: HostAction, changed: bool, message: str) -> ActionResult:
    """An agent's: what was removed was a vGPU."""
    if not (isinstance(action, RemovesDevice) and action.cleans):
        return ActionResult(changed=changed, message=message)
    return ActionResult(changed=changed, message=message, cleaned="vgpu_destroyed" if changed else "absent")


class NoCleanings:
    """Of a service that has none."""

    def cleanings(self, **_equal: object) -> tuple[Cleaning, ...]:
        return ()
