# SPDX-License-Identifier: Apache-2.0
"""A host whose QEMUs nothing keeps to their own files, or of which that is not known."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.diff.finding import Finding
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot


def confinement_findings(host: Host, snapshot: HostSnapshot) -> Iterator[Finding]:
    """At most one. None where an operator allowed it, and where something else explains that it was not told."""
    if snapshot.confinement == "none" and not host.allow_unconfined:
        yield _finding(
            host,
            "host.unconfined",
            "neither is on in libvirt",
            f"nothing new is put there; switch one on, or 'vgpuctl host set {host.name} --allow-unconfined'",
        )
    if snapshot.confinement is None and not snapshot.agent_too_old and not snapshot.problems:
        yield _finding(
            host,
            "host.confinement_unknown",
            "an agent that does not tell",
            f"VMs are put there as before; 'vgpuctl host upgrade-agent {host.name}' brings one that tells",
        )


def _finding(host: Host, code: str, observed: str, reason: str) -> Finding:
    return Finding(
        code=code, severity="warning", host=host.name, subject=f"host {host.name}", vm=None, whose="ours",
        wanted="QEMU confined by AppArmor or SELinux", observed=observed, repair=None, reason=reason,
    )  # fmt: skip
