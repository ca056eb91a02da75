# SPDX-License-Identifier: Apache-2.0
"""Wanted and observed → findings, and the changes that put right what may be put right. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.contained import Contained
from orchestrator.core.diff.finding import (
    ExpectedHost,
    ExpectedVm,
    Finding,
    Repair,
    RepairKind,
    Severity,
    StoredFinding,
    Whose,
    host_finding,
    vm_finding,
)
from orchestrator.core.diff.gpus import card_findings, function_findings, layout_findings
from orchestrator.core.diff.health import health_findings
from orchestrator.core.diff.hosts import (
    confinement_findings,
    disk_findings,
    driver_findings,
    fabric_findings,
    half_observed,
    host_broke,
    host_findings,
    ledger_lost,
    network_findings,
    ovn_findings,
    qemu_findings,
    sessions_full,
    too_old,
    unreached_findings,
)
from orchestrator.core.diff.orphans import image_finding, orphan_findings, volume_findings
from orchestrator.core.diff.vms import lease_finding, lease_in_doubt, vm_findings
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.core.hosts.snapshot import HostSnapshot

__all__ = [
    "ExpectedHost",
    "ExpectedVm",
    "Finding",
    "Repair",
    "RepairKind",
    "Severity",
    "StoredFinding",
    "Whose",
    "card_findings",
    "changes",
    "compare",
    "driver_findings",
    "health_findings",
    "host_broke",
    "host_finding",
    "host_findings",
    "lease_finding",
    "lease_in_doubt",
    "unreached_findings",
]  # fmt: skip

_ORDER: dict[str, int] = {
    "upgrade_agent": -3,
    "settle_ledger": -2,
    "accept_gpus": -1,
    "mend_host": 0,
    "clean_up": 1,
    "stop_vm": 2,
    "start_vm": 3,
}
"""What gives something back comes before what may need it."""
_SHOWN = 300


def compare(wanted: ExpectedHost, snapshot: HostSnapshot) -> tuple[Finding, ...]:
    """Every difference on one host, by VM, then what nobody wants. Nothing is said of what an operation works on.

    A host whose machine is another one is not compared at all: nothing on it is ours.
    """
    if wanted.host.machine_id not in {None, snapshot.machine_id}:
        return ()
    of_agent = (
        *((too_old(wanted.host, snapshot),) if snapshot.agent_too_old else ()),
        *((sessions_full(wanted.host),) if snapshot.sessions_full else ()),
    )
    of_host = (
        *of_agent, *confinement_findings(wanted.host, snapshot), *fabric_findings(wanted.host, snapshot)
    )  # fmt: skip
    if snapshot.problems and not snapshot.domains:
        return (*of_agent, half_observed(wanted.host, snapshot.problems[0]))
    if snapshot.ledger_lost:
        return (*of_host, ledger_lost(wanted.host))
    parts = [*disk_findings(wanted.host, snapshot)]
    if not snapshot.restoring:  # what ran before its boot is not all there yet
        parts += [*function_findings(wanted, snapshot), *network_findings(wanted, snapshot)]
        parts += [*qemu_findings(wanted, snapshot), *ovn_findings(wanted, snapshot)]
    of_vms = [
        finding
        for expected in wanted.vms
        if expected.vm.id not in wanted.busy
        for finding in _of_vm(expected, snapshot)
    ]
    layouts = () if KEEPER in wanted.busy else layout_findings(wanted.host, snapshot)
    left = (*orphan_findings(wanted, snapshot), *filter(None, (image_finding(wanted, snapshot),)))
    return (*of_host, *parts, *of_vms, *layouts, *volume_findings(wanted, snapshot), *left)


def _of_vm(wanted: ExpectedVm, snapshot: HostSnapshot) -> list[Finding]:
    """One VM that cannot be compared hides nothing about the others."""
    findings: list[Finding] = []

    def broke(error: Exception) -> None:
        differ = ("something to compare with", f"{type(error).__name__}: {error}"[:_SHOWN])
        findings.append(vm_finding(wanted.vm, "vm.not_compared", "error", differ, "please report it: the server's log"))

    with Contained(broke):
        findings.extend(vm_findings(wanted, snapshot))
    return findings


def changes(findings: Iterable[Finding], *, automatic_only: bool) -> tuple[Finding, ...]:
    """Those with a repair, in the order in which to do them; at most one operation per VM. Where cards are to be found
    again, VMs are started after that: until then they would be refused. So are VMs that the ledger is to take up."""
    chosen: dict[tuple[str, str], list[Finding]] = {}
    ordered = sorted(
        (finding for finding in findings if finding.repair and (finding.repair.automatic or not automatic_only)),
        key=lambda finding: _ORDER[finding.repair.kind] if finding.repair else 0,
    )
    settled = {
        finding.vm for finding in ordered if finding.vm and finding.repair and finding.repair.kind == "settle_ledger"
    }
    moving = {finding.host for finding in ordered if finding.repair and finding.repair.kind == "accept_gpus"}
    for finding in ordered:
        if finding.host in moving and finding.repair and finding.repair.kind == "start_vm":
            continue
        if finding.vm in settled and finding.mended == finding.vm:
            continue
        kinds = chosen.setdefault((finding.host, finding.mended), [])
        if not kinds or _same_kind(kinds[0], finding):
            kinds.append(finding)
    return tuple(finding for group in chosen.values() for finding in group)


def _same_kind(first: Finding, other: Finding) -> bool:
    """Pieces of one clean-up go together."""
    kinds = {finding.repair.kind for finding in (first, other) if finding.repair}
    return kinds in ({"clean_up"}, {"mend_host"})
