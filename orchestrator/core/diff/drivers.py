# SPDX-License-Identifier: Apache-2.0
"""A host whose driver, or what belongs to it, is not what is locked."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.diff.finding import Finding
from orchestrator.core.drivers.lock import DriverLock, lock_of
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot


def driver_findings(lock: DriverLock | None, host: Host, snapshot: HostSnapshot) -> tuple[Finding, ...]:
    """None when no version is locked for it, or it has that version. Of fabric manager and DCGM only what was seen
    counts: a host may do without them."""
    if lock is None:
        return ()
    meant = lock_of(lock, host.labels)
    fabric = None if snapshot.fabric is None else snapshot.fabric.version
    drifts = [
        (
            "driver",
            f"host {host.name}",
            meant.version("host_driver"),
            snapshot.driver_version or "that does not answer",
        ),
        ("fabric manager", f"fabric manager of {host.name}", meant.version("fabric_manager"), fabric),
        ("DCGM", f"DCGM of {host.name}", meant.version("dcgm"), snapshot.dcgm_version),
    ]
    return tuple(_findings(host.name, meant.group, drifts))


def _findings(host: str, group: str, drifts: list[tuple[str, str, str | None, str | None]]) -> Iterator[Finding]:
    """``drifts``: what it is, the finding's subject, what is locked, what was seen."""
    for what, subject, wanted, observed in drifts:
        if wanted is not None and observed not in {None, wanted}:
            yield Finding(
                code="driver.drift",
                severity="warning",
                host=host,
                subject=subject,
                vm=None,
                whose="ours",
                wanted=f"{what} {wanted}",
                observed=f"{what} {observed}",
                repair=None,
                reason=f"locked by {group}; 'vgpuctl driver check' shows all hosts and VMs",
            )
