# SPDX-License-Identifier: Apache-2.0
"""Is every data volume where the database says, and no other? Nothing is ever repaired: it may be all there is."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.diff.finding import ExpectedHost, Finding
from orchestrator.core.hosts.snapshot import HostSnapshot


def volume_findings(wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[Finding]:
    """Those that are missing, then those that nobody knows. Files that we did not make are their owner's."""
    files = {one.name for one in snapshot.data}
    for volume in wanted.volumes:
        if volume.file not in files:
            yield Finding(
                code="volume.missing", severity="error", host=wanted.host.name,
                subject=f"volume {volume.full_name}", vm=volume.vm, whose="ours",
                wanted=f"file {volume.file}", observed="no such file", repair=None,
                reason="what was on it is gone; put the file back, or delete the volume",
            )  # fmt: skip
    known = {one.id for one in wanted.volumes} | wanted.busy
    for file in snapshot.data:
        if file.owner is not None and file.owner not in known:
            yield Finding(
                code="orphan.data", severity="warning", host=wanted.host.name, subject=f"data volume {file.name}",
                vm=None, whose="unknown", wanted="nothing", observed=f"{file.name}, {file.size_bytes} bytes taken",
                repair=None, reason="the database does not know it (was a backup restored?): it is left alone",
            )  # fmt: skip
