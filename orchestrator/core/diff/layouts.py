# SPDX-License-Identifier: Apache-2.0
"""GPUs that are kept for a MIG layout and are not as it says."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.diff.finding import Finding
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.mig_layout import MigLayout, difference, shown
from orchestrator.core.hosts.snapshot import HostSnapshot


def layout_findings(host: Host, snapshot: HostSnapshot) -> Iterator[Finding]:
    """One for each GPU."""
    gpus = {gpu.address: gpu for gpu in snapshot.gpus}
    for layout in host.mig_layouts:
        gpu = gpus.get(layout.gpu)
        differs = "no such GPU" if gpu is None else difference(layout, gpu)
        if differs is not None:
            yield Finding(
                code="mig.layout_differs", severity="warning", host=host.name, subject=f"GPU {layout.gpu}", vm=None,
                whose="ours", wanted=_words(layout), observed=differs, repair=None,
                reason=f"'vgpuctl mig apply {host.name} -f FILE -c CONFIG' makes it so again, "
                f"'vgpuctl mig release {host.name}' gives it up",
            )  # fmt: skip


def _words(layout: MigLayout) -> str:
    mode = f"MIG mode {'on' if layout.on else 'off'}"
    return ", ".join((mode, *(shown(place) for place in layout.instances)))
