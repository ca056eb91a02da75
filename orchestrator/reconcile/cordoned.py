# SPDX-License-Identifier: Apache-2.0
"""Hosts that get no new VMs because somebody, or a driver upgrade, has cordoned them: people forget such hosts."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.diff import Finding, Severity
from orchestrator.core.drivers.upgrade import UNDER_WAY
from orchestrator.core.hosts.host import Host
from orchestrator.core.vms.lease import show_moment
from orchestrator.store.transaction import Transaction


def cordon_findings(tx: Transaction, host: Host) -> Iterator[Finding]:
    """One, unless a driver upgrade is just at work there."""
    if not host.cordoned or host.state == "forgotten":
        return
    upgrade = tx.driver_upgrades.newest()
    turn = None if upgrade is None else next((one for one in upgrade.hosts if one.host == host.name), None)
    if upgrade is None or turn is None or turn.phase not in {*UNDER_WAY, "failed", "rolled_back"}:
        mend = f"'vgpuctl host uncordon {host.name}' when it shall get new VMs again"
        yield _finding(host, "host.cordoned", "info", _cordoned(host), mend)
    elif turn.phase not in UNDER_WAY:
        ended = "" if turn.ended_at is None else f" at {show_moment(turn.ended_at)}"
        what = f"the upgrade to {upgrade.version} ended as {turn.phase}{ended}: {turn.why}; {_cordoned(host)}"
        mend = f"mend it and upgrade it again, or 'vgpuctl host uncordon {host.name}' when it shall serve as it is"
        yield _finding(host, "host.upgrade_failed", "warning", what, mend)


def _cordoned(host: Host) -> str:
    """Since when and by whom, as far as that is on record."""
    if host.cordoned_for is not None:
        return f"cordoned for {host.cordoned_for}"
    if host.cordon is None:
        return "cordoned"
    reason = f": {host.cordon.reason}" if host.cordon.reason else ""
    return f"cordoned since {show_moment(host.cordon.at)} by {host.cordon.by}{reason}"


def _finding(host: Host, code: str, severity: Severity, observed: str, reason: str) -> Finding:
    return Finding(
        code=code, severity=severity, host=host.name, subject=f"host {host.name}", vm=None, whose="ours",
        wanted="a host that gets new VMs", observed=observed, repair=None, reason=reason,
    )  # fmt: skip
