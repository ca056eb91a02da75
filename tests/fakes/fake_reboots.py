# SPDX-License-Identifier: Apache-2.0
"""A host in memory reboots: nothing may run there, and it is away for a while."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.actions.bug_reports import CollectBugReport
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.actions.reboots import RebootHost
from orchestrator.core.errors import Conflict
from tests.fakes.fake_machine import FakeMachine

BOOT_CALLS = 3
"""So many calls find a host that boots."""


def reboot(machine: FakeMachine, action: RebootHost) -> ActionResult:
    if action.boot != f"boot-{machine.boot}":
        return ActionResult(changed=False)
    running = [vm for vm, (_, runs) in machine.domains.items() if runs]
    if running:
        raise Conflict("host.in_use", f"the host runs {', '.join(running)}")
    for gpu in machine.gpus:
        gpu.signals = ()  # its kernel log begins anew
    machine.boot, machine.away = machine.boot + 1, BOOT_CALLS
    return ActionResult(changed=True)


def report(machine: FakeMachine, action: CollectBugReport) -> ActionResult:
    return ActionResult(changed=True, message=f"/reports/{action.report}.log.gz")


HANDLERS: dict[type[HostAction], Callable[..., ActionResult | None]] = {RebootHost: reboot, CollectBugReport: report}
