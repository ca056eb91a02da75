# SPDX-License-Identifier: Apache-2.0
"""Labels of a host, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.cli.output import shown
from orchestrator.core.labels import KEPT_FOR, show_labels


def label_lines(host: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """All of them; of a host that is kept for a tenant also whose VMs are there nevertheless."""
    yield "labels", shown(show_labels(host["labels"]))
    tenant = host["labels"].get(KEPT_FOR)
    if tenant is not None:
        others = [vm for vm in host["vms"] if not vm.startswith(f"{tenant}/")]
        yield "kept for", shown(tenant) + (f"; VMs of others stay: {shown(others)}" if others else "")
