# SPDX-License-Identifier: Apache-2.0
"""Leases that end soon, and VMs whose lease is over and whose disk is still kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orchestrator.core.diff.finding import Finding, vm_finding
from orchestrator.core.vms.lease import TenantPolicy, ends_soon, show_moment
from orchestrator.core.vms.vm import Vm

_IN_DOUBT: Final = "the database was restored, and it may have been extended since the backup"
_OVER: Final = "a lease, or no VM"


def lease_finding(vm: Vm, policy: TenantPolicy, now: float) -> Iterator[Finding]:
    """At most one. Nothing here is repaired by itself: only its owner knows whether a VM is needed."""
    end, name = vm.lease_end, f"{vm.spec.name} --tenant {vm.spec.tenant}"
    if end is None or vm.state not in {"running", "stopped"}:
        return
    extend = f"'vgpuctl vm extend {name} --lease 4h' makes it longer"
    if now < end:
        if vm.deallocated is None and ends_soon(vm.created_at, end, now):
            observed = f"its lease ends {show_moment(end)}"
            yield vm_finding(
                vm, "vm.lease_ends_soon", "warning", ("a lease", observed), f"it is stopped then; {extend}"
            )
    elif vm.deallocated == "lease_over":
        kept_until = end + policy.disk_grace_s
        if now < kept_until:
            observed = f"its lease ended {show_moment(end)}"
            why = f"its place was given back, its disk is kept until {show_moment(kept_until)}; {extend}"
            yield vm_finding(vm, "vm.lease_over", "info", (_OVER, observed), why)
        else:
            observed = f"its lease ended {show_moment(end)}, its disk was to be kept until {show_moment(kept_until)}"
            yield vm_finding(
                vm, "vm.disk_kept_too_long", "warning", (_OVER, observed), f"'vgpuctl delete-vm {name}' deletes it"
            )


def lease_in_doubt(vm: Vm, now: float) -> Finding:
    """On a host whose database was restored: a lease that ended since, or before, of a VM that runs."""
    name = f"{vm.spec.name} --tenant {vm.spec.tenant}"
    why = f"{_IN_DOUBT}: 'vgpuctl vm extend {name} --lease 4h' or 'vgpuctl stop-vm {name}' says which"
    differ = ("a lease", f"in the backup its lease ended {show_moment(vm.lease_end or now)}")
    return vm_finding(vm, "vm.lease_in_doubt", "warning", differ, why)
