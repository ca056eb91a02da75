# SPDX-License-Identifier: Apache-2.0
"""Leases that end soon, and VMs whose lease is over and whose disk is still kept."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.diff.finding import Finding, Severity, vm_subject
from orchestrator.core.lease import TenantPolicy, show_moment, warning_s
from orchestrator.core.vm import Vm


def lease_finding(vm: Vm, policy: TenantPolicy, now: float) -> Iterator[Finding]:
    """At most one. Nothing here is repaired by itself: only its owner knows whether a VM is needed."""
    end, name = vm.lease_end, f"{vm.spec.name} --tenant {vm.spec.tenant}"
    if end is None or vm.state not in {"running", "stopped"}:
        return
    extend = f"'vgpuctl vm extend {name} --lease 4h' makes it longer"
    if now < end:
        if vm.freed is None and now >= end - warning_s(vm.created_at, end):
            seen = f"its lease ends {show_moment(end)}"
            yield _finding(vm, "vm.lease_ends_soon", "warning", seen, f"it is stopped then; {extend}")
    elif vm.freed == "lease_over":
        kept_until = end + policy.disk_grace_s
        if now < kept_until:
            seen = f"its lease ended {show_moment(end)}"
            why = f"its place was given back, its disk is kept until {show_moment(kept_until)}; {extend}"
            yield _finding(vm, "vm.lease_over", "info", seen, why)
        else:
            seen = f"its lease ended {show_moment(end)}, its disk was to be kept until {show_moment(kept_until)}"
            yield _finding(vm, "vm.disk_kept_too_long", "warning", seen, f"'vgpuctl delete-vm {name}' deletes it")


def _finding(vm: Vm, code: str, severity: Severity, seen: str, why: str) -> Finding:
    return Finding(
        code=code,
        severity=severity,
        host=vm.host,
        subject=vm_subject(vm),
        vm=vm.id,
        whose="ours",
        wanted="a lease" if code == "vm.lease_ends_soon" else "a lease, or no VM",
        seen=seen,
        repair=None,
        reason=why,
    )
