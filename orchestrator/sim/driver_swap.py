# SPDX-License-Identifier: Apache-2.0
"""Another driver on a machine in memory, over a reboot where its module stays in use."""

from __future__ import annotations

from typing import Final

from orchestrator.core.drivers.host_drivers import DueReboot, HostDrivers
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.sim.machine import SimulatedMachine

BOOTS_S: Final = 20.0


def swap(machine: SimulatedMachine, wanted: HostDrivers) -> DueReboot | None:
    """A module is not unloaded under its users, and one that does not come up leaves none loaded."""
    version = wanted.driver.version
    if machine.driver_version == version:
        return None
    if machine.kernel.opened:
        raise Conflict(
            "driver.module_busy", f"{len(machine.kernel.opened)} devices are open", hint="stop the VMs first"
        )
    if version in machine.sticky_drivers and machine.driver_version:
        return _reboot(machine, wanted)
    if version in machine.refuses_drivers:
        machine.driver_version = ""
        raise Fatal("driver.not_loaded", f"the module of {version} does not load here", hint="dmesg says why")
    machine.driver_version = version
    return None


def _reboot(machine: SimulatedMachine, wanted: HostDrivers) -> DueReboot:
    """No driver is loaded after it; what the agent brings back then is never gone here."""
    why = "module nvidia is in use by somebody that shows no open file"
    if not wanted.reboot:
        raise Conflict("driver.module_busy", why, hint="end what uses the driver; nothing was changed")
    due = DueReboot(why=why, boot_id=machine.boot_id)
    before, machine.boot = machine.boot, machine.boot + 1
    ledger = machine.ledger
    ledger.owners = {key: (vm, machine.boot if boot == before else boot) for key, (vm, boot) in ledger.owners.items()}
    machine.driver_version, machine.up_at = "", machine.now + BOOTS_S
    return due
