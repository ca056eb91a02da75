# SPDX-License-Identifier: Apache-2.0
"""What the comparison of wanted and observed gives: findings, and what would put each right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.core.actions.host_actions import HostAction
from orchestrator.core.hosts.host import UNSETTLED, Host
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume

Severity = Literal["info", "warning", "error"]
Whose = Literal["ours", "foreign", "unknown"]
"""``ours``: the database knows it. ``foreign``: the host's ledger does not know it.
``unknown``: the ledger says we made it and the database has never heard of its VM (a restored backup)."""

RepairKind = Literal["start_vm", "stop_vm", "clean_up", "settle_ledger", "upgrade_agent", "accept_gpus", "mend_host"]
_ABOUT_HOSTS: frozenset[RepairKind] = frozenset({"settle_ledger", "upgrade_agent", "accept_gpus", "mend_host"})


@dataclass(frozen=True, kw_only=True)
class Repair:
    """An ordinary operation that puts it right."""

    kind: RepairKind
    automatic: bool
    """Whether it may be done without being asked: it can take nothing from anybody."""
    actions: tuple[HostAction, ...] = ()
    """``clean_up``, ``mend_host``: what it does on the host, in order; the agent refuses what is not ours or in use."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One difference. (host, code, subject) says which; the rest is what was seen last."""

    code: str
    """Stable, e.g. vm.device_missing."""
    severity: Severity
    """How bad it is."""
    host: str
    """Name of the host."""
    subject: str
    """The object, for people: ``VM default/train``, ``vGPU <uuid>``, ``volume <file>``, ``host lab1``."""
    vm: str | None
    """Id of the VM it is about."""
    whose: Whose
    """unknown: our own ledger says it is ours, the database does not know its VM."""
    wanted: str
    """What should be."""
    observed: str
    """What was there."""
    repair: Repair | None
    """What would mend it; None: nothing does by itself."""
    reason: str
    """What the repair does, or why there is none."""

    @property
    def mended(self) -> str:
        """What its repair is an operation on: the host, a VM's id, or for people what is left of one."""
        if self.repair is not None and self.repair.kind in _ABOUT_HOSTS:
            return self.host
        return self.vm or self.subject

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.host, self.code, self.subject)


def vm_finding(
    vm: Vm, code: str, severity: Severity, differ: tuple[str, str], why: str, repair: Repair | None = None
) -> Finding:
    """About a VM of ours. ``differ``: what is wanted and what is seen."""
    return Finding(
        code=code,
        severity=severity,
        host=vm.host,
        subject=f"VM {vm.spec.tenant}/{vm.spec.name}",
        vm=vm.id,
        whose="ours",
        wanted=differ[0],
        observed=differ[1],
        repair=repair,
        reason=why,
    )


def host_finding(
    host: Host, code: str, severity: Severity, differ: tuple[str, str], why: str, subject: str = ""
) -> Finding:
    """About a host of ours, or about ``subject`` on it. ``differ``: what is wanted and what is seen. Nothing mends it
    by itself."""
    return Finding(
        code=code, severity=severity, host=host.name, subject=subject or f"host {host.name}", vm=None, whose="ours",
        wanted=differ[0], observed=differ[1], repair=None, reason=why,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExpectedVm:
    """A VM that no operation works on."""

    vm: Vm
    claimed: bool
    unlicensed: Severity | None = None
    """How bad it is that the host's driver sees no licence: ``info`` while its guest has only just been given a token.
    None: it has one, or was given no token."""

    @property
    def running(self) -> bool:
        """Whether it is to run."""
        return self.vm.wanted == "running"


@dataclass(frozen=True, kw_only=True)
class ExpectedHost:
    """What the database says about one host."""

    host: Host
    vms: tuple[ExpectedVm, ...]
    busy: frozenset[str]
    """Ids that an operation works on, or did after the observation began: nothing is said about them."""
    gone: frozenset[str]
    """Ids of VMs of ours that the journal says were removed to the last part."""
    placed: tuple[Vm, ...] = ()
    """All VMs of the host, those too that an operation works on."""
    volumes: tuple[Volume, ...] = ()
    """Data volumes that lie there and no operation works on."""
    networks: tuple[Network, ...] = ()
    """Those that VMs there are on."""
    images: frozenset[str] = frozenset()
    """Files of the base images that have a name, of the whole site."""


@dataclass(frozen=True, kw_only=True)
class StoredFinding:
    """A finding with its history. Times are seconds since the epoch, UTC."""

    finding: Finding
    first_seen: float
    """When it was observed first."""
    last_seen: float
    """When it was observed last."""
    cleared_at: float | None
    """When it was not found any more; None: it still stands."""
    operation: str | None
    """The operation that was begun last to repair it."""


def tells_of_something_newer(finding: Finding) -> bool:
    """Of a host after a restore: it has gone on since the backup, and somebody has to say what is to be so."""
    return (finding.whose == "unknown" and finding.subject != f"host {finding.host}") or finding.code in UNSETTLED
