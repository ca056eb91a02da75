# SPDX-License-Identifier: Apache-2.0
"""A host whose driver is not the one that is locked."""

from __future__ import annotations

from orchestrator.core.diff.finding import Finding
from orchestrator.core.driver_lock import DriverLock, lock_of
from orchestrator.core.host import Host
from orchestrator.core.snapshot import HostSnapshot


def driver_findings(lock: DriverLock | None, host: Host, snapshot: HostSnapshot) -> tuple[Finding, ...]:
    """None when no version is locked for it, or it has that version."""
    if lock is None:
        return ()
    meant = lock_of(lock, host.labels)
    wanted = meant.version("host_driver")
    if wanted is None or wanted == snapshot.driver_version:
        return ()
    return (
        Finding(
            code="driver.drift",
            severity="warning",
            host=host.name,
            subject=f"host {host.name}",
            vm=None,
            whose="ours",
            wanted=f"driver {wanted}",
            observed=f"driver {snapshot.driver_version or 'that does not answer'}",
            repair=None,
            reason=f"locked by {meant.group}; 'vgpuctl driver check' shows all hosts and VMs",
        ),
    )
