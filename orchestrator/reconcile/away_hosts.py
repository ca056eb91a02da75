# SPDX-License-Identifier: Apache-2.0
"""Whether a host's turn in a maintenance can begin, why not, and whether it has changed the host."""

from __future__ import annotations

from orchestrator.core.hosts.host import Host
from orchestrator.core.operation import Operation
from orchestrator.operations.steps.driver import PROVISION
from orchestrator.operations.steps.rebooting import REBOOT, REFUSED
from orchestrator.services.drivers.upgrades import GONE


def is_present(host: Host | None) -> bool:
    """Also one that is being removed: that may yet be taken back."""
    return host is not None and host.state not in GONE - {"removing"}


def is_away(host: Host) -> bool:
    """It serves nobody now. One that was given up is not waited for."""
    return host.state not in {"ready", "forgotten"} or host.restored is not None


def why_away(host: Host) -> str:
    """Why the turn of a host waits that may not begin now."""
    if not is_away(host):
        return "another maintenance is under way there"
    if host.state == "ready":
        return "the database was restored, and nobody has settled yet what the host has"
    return f"the host is {host.state}" + (f": {host.state_reason}" if host.state_reason else "")


def has_touched(operation: Operation) -> bool:
    """Whether the driver was ever touched, or the host rebooted: else it is as it was."""
    refused = (operation.error or {}).get("code") in REFUSED
    changed = (step for step in operation.steps if step.name in {PROVISION.name, REBOOT.name})
    return not refused and any(step.state != "pending" for step in changed)
