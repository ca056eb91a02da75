# SPDX-License-Identifier: Apache-2.0
"""How far each host of a driver upgrade is, for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.core.drivers.leaving import AwaitedTenants
from orchestrator.core.drivers.upgrade import REBOOTING, DriverUpgrade, HostUpgrade
from orchestrator.core.errors import NotFound
from orchestrator.core.operation import StepRecord
from orchestrator.core.vms.vm import VmState
from orchestrator.services.drivers.upgrade_waits import waits_of
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class UpgradeNow:
    """An upgrade at one moment. Both by name of host."""

    waits: Mapping[str, AwaitedTenants]
    progress: Mapping[str, str]
    """Within its phase, of those that are under way."""
    rebooting: frozenset[str]
    """Those that are swapped and wait for their reboot."""
    at: float


def seen_now(tx: Transaction, upgrade: DriverUpgrade, now: float) -> UpgradeNow:
    """Of the upgrade as it is stored, or as it is planned."""
    steps = {host.host: _step(tx, host) for host in upgrade.hosts}
    progress = ((host.host, _progress(tx, host, steps[host.host])) for host in upgrade.hosts)
    return UpgradeNow(
        waits=waits_of(tx, upgrade, now),
        progress={host: text for host, text in progress if text is not None},
        rebooting=frozenset(host for host, step in steps.items() if step and step.message.startswith(REBOOTING)),
        at=now,
    )


def _step(tx: Transaction, one: HostUpgrade) -> StepRecord | None:
    """Of the swap, the one that is under way."""
    if one.phase != "swapping" or one.swap is None:
        return None
    try:
        steps = tx.operations.get(one.swap).operation.steps
    except NotFound:  # it ended long ago, and the upgrade will judge by what the host shows
        return None
    return next((step for step in steps if step.state in {"running", "undoing"}), None)


def _progress(tx: Transaction, one: HostUpgrade, now: StepRecord | None) -> str | None:
    if now is not None:
        back = "taken back: " if now.state == "undoing" else ""
        return back + ": ".join(dict.fromkeys(filter(None, [now.title, now.message])))
    if one.phase not in {"emptying", "refilling"} or not one.vms:
        return None
    vms = [vm for name in one.vms if (vm := tx.vms.find_id(name)) is not None and vm.wanted == "running"]
    wanted: VmState = "stopped" if one.phase == "emptying" else "running"
    ended = sum(vm.state == wanted for vm in vms)
    return f"{ended} of {len(vms)} VMs " + ("are stopped" if one.phase == "emptying" else "run again")
