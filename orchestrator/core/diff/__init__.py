# SPDX-License-Identifier: Apache-2.0
"""Wanted and observed → findings, and the changes that put right what may be put right. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.core.contained import Contained
from orchestrator.core.diff.cards import card_findings
from orchestrator.core.diff.confinement import confinement_findings
from orchestrator.core.diff.drivers import driver_findings
from orchestrator.core.diff.fabric import fabric_findings
from orchestrator.core.diff.finding import (
    ExpectedHost,
    ExpectedVm,
    Finding,
    Repair,
    RepairKind,
    Severity,
    StoredFinding,
    Whose,
    vm_finding,
)
from orchestrator.core.diff.health import health_findings
from orchestrator.core.diff.host_parts import part_findings
from orchestrator.core.diff.layouts import layout_findings
from orchestrator.core.diff.leases import lease_finding, lease_in_doubt
from orchestrator.core.diff.orphans import image_finding, orphan_findings
from orchestrator.core.diff.vms import vm_findings
from orchestrator.core.diff.volumes import volume_findings
from orchestrator.core.hosts.host import LOST, Host
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.protocol import PROTOCOL_VERSION

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


def host_findings(host: Host) -> tuple[Finding, ...]:
    """What keeps a host from being looked at or worked on."""
    if host.restored is not None and host.state == "ready":
        return (_restored(host),)
    if host.state not in LOST:
        return ()
    why = {
        "unreachable": "nothing is known of it until it answers; its VMs are left alone",
        "quarantined": "another machine or key answers: nothing is done there until it is added again",
        "forgotten": f"it was given up: delete its VMs, then 'vgpuctl host remove {host.name}' ends the record of it",
        "failed": "an operation on it is stuck: 'vgpuctl operation list --state stuck' shows it",
    }
    finding = Finding(
        code=f"host.{host.state}",
        severity="error",
        host=host.name,
        subject=f"host {host.name}",
        vm=None,
        whose="ours",
        wanted="ready",
        observed=host.state_reason or host.state,
        repair=None,
        reason=why[host.state],
    )
    return (finding,)


def unreached_findings(host: Host, controllers: Sequence[str]) -> tuple[Finding, ...]:
    """Controllers that do not reach a host which others reach."""
    if host.state != "ready" or not controllers:
        return ()
    differ = ("every controller reaches it", f"not reached from {', '.join(controllers)}"[:_SHOWN])
    reason = "the controllers that reach it do what is to be done there"
    return (replace(_of_host(host, "host.unreached", differ, reason), severity="warning"),)


def compare(wanted: ExpectedHost, snapshot: HostSnapshot) -> tuple[Finding, ...]:
    """Every difference on one host, by VM, then what nobody wants. Nothing is said of what an operation works on.

    A host whose machine is another one is not compared at all: nothing on it is ours.
    """
    if wanted.host.machine_id not in {None, snapshot.machine_id}:
        return ()
    of_agent = (
        *((_too_old(wanted.host, snapshot),) if snapshot.agent_too_old else ()),
        *((_sessions_full(wanted.host),) if snapshot.sessions_full else ()),
    )
    of_host = (
        *of_agent, *confinement_findings(wanted.host, snapshot), *fabric_findings(wanted.host, snapshot)
    )  # fmt: skip
    if snapshot.problems and not snapshot.domains:
        return (*of_agent, _half_observed(wanted.host, snapshot.problems[0]))
    if snapshot.ledger_lost:
        return (*of_host, _ledger_lost(wanted.host))
    parts = part_findings(wanted, snapshot)
    of_vms = [finding for one in wanted.vms if one.vm.id not in wanted.busy for finding in _of_vm(one, snapshot)]
    layouts = () if KEEPER in wanted.busy else layout_findings(wanted.host, snapshot)
    left = (*orphan_findings(wanted, snapshot), *filter(None, (image_finding(wanted, snapshot),)))
    return (*of_host, *parts, *of_vms, *layouts, *volume_findings(wanted, snapshot), *left)


def _of_vm(wanted: ExpectedVm, snapshot: HostSnapshot) -> list[Finding]:
    """One VM that cannot be compared hides nothing about the others."""
    found: list[Finding] = []

    def broke(error: Exception) -> None:
        differ = ("something to compare with", f"{type(error).__name__}: {error}"[:_SHOWN])
        found.append(vm_finding(wanted.vm, "vm.not_compared", "error", differ, "please report it: the server's log"))

    with Contained(broke):
        found.extend(vm_findings(wanted, snapshot))
    return found


def host_broke(host: Host, what: Sequence[str]) -> Finding:
    """What it answered was none of what we expect of any host. ``what``: names of the exceptions."""
    differ = ("answers that can be dealt with", f"unexpected {', '.join(sorted(set(what)))}")
    return _of_host(host, "host.broke", differ, "what is known of it may be old; the server's log says what broke")


def _restored(host: Host) -> Finding:
    differ = ("what the database says", "the database was restored, and the host may have gone on since")
    why = "nothing is repaired there by itself until 'vgpuctl server settle-restored' lists nothing of it any more"
    return replace(_of_host(host, "host.restored", differ, why), severity="warning", whose="unknown")


def _half_observed(host: Host, problem: str) -> Finding:
    """No domains and a problem: libvirt may not have answered, and what was not seen is not missing."""
    reason = "nothing is concluded from half an observation; put the host's own problem right"
    return _of_host(host, "host.half_seen", ("an observation of everything", problem), reason)


def _sessions_full(host: Host) -> Finding:
    differ = ("places free for controllers' sessions", "all places of its agent are or were taken")
    reason = "silent sessions give way; on the host 'systemctl restart vgpuctl-agent' ends all, and no VM stops"
    return _of_host(host, "agent.sessions_full", differ, reason)


def _too_old(host: Host, snapshot: HostSnapshot) -> Finding:
    """VMs run on; what the older agent would have to be told it does not understand, or believes too easily."""
    differ = (f"an agent of protocol {PROTOCOL_VERSION}", f"{snapshot.agent_version}, protocol {snapshot.protocol}")
    reason = "the agent is upgraded, a few hosts at a time; until then nothing new is made there"
    return _of_host(host, "agent.too_old", differ, reason, Repair(kind="upgrade_agent", automatic=True))


def _ledger_lost(host: Host) -> Finding:
    """Its agent does nothing before that; and whose what is, only the ledger says."""
    differ = ("a ledger of what is ours", "one that is new, and files of VMs")
    reason = "it is written again from the database and what the host shows; what neither knows is left nobody's"
    return _of_host(host, "host.ledger_lost", differ, reason, Repair(kind="settle_ledger", automatic=False))


def _of_host(host: Host, code: str, differ: tuple[str, str], reason: str, repair: Repair | None = None) -> Finding:
    wanted, observed = differ
    return Finding(
        code=code, severity="error", host=host.name, subject=f"host {host.name}", vm=None, whose="ours",
        wanted=wanted, observed=observed, repair=repair, reason=reason,
    )  # fmt: skip


def changes(findings: Iterable[Finding], *, automatic_only: bool) -> tuple[Finding, ...]:
    """Those with a repair, in the order in which to do them; at most one operation per VM. Where cards are to be found
    again, VMs are started after that: until then they would be refused. So are VMs that the ledger is to take up."""
    chosen: dict[tuple[str, str], list[Finding]] = {}
    ordered = sorted(
        (one for one in findings if one.repair and (one.repair.automatic or not automatic_only)),
        key=lambda one: _ORDER[one.repair.kind] if one.repair else 0,
    )
    settled = {one.vm for one in ordered if one.vm and one.repair and one.repair.kind == "settle_ledger"}
    moving = {one.host for one in ordered if one.repair and one.repair.kind == "accept_gpus"}
    for one in ordered:
        if one.host in moving and one.repair and one.repair.kind == "start_vm":
            continue
        if one.vm in settled and one.mended == one.vm:
            continue
        kinds = chosen.setdefault((one.host, one.mended), [])
        if not kinds or _same_kind(kinds[0], one):
            kinds.append(one)
    return tuple(one for group in chosen.values() for one in group)


def _same_kind(first: Finding, other: Finding) -> bool:
    """Pieces of one clean-up go together."""
    kinds = {one.repair.kind for one in (first, other) if one.repair}
    return kinds in ({"clean_up"}, {"mend_host"})
