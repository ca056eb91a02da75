# SPDX-License-Identifier: Apache-2.0
"""CPUs of a host, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.cli.output import shown
from orchestrator.core.units import MIB, show_size


def numa_lines(host: Mapping[str, Any]) -> Iterator[str]:
    """A line for each NUMA node; one that says so where the host's agent does not tell."""
    if host["numa_nodes"] == []:
        yield "not told"
    for node in host["numa_nodes"] or ():
        pages = (
            f"{one['free']} of {one['total']} huge pages of {show_size(one['size_kib'] * 1024)} free"
            for one in node["hugepages"]
        )
        cpus = f"CPUs {shown(node['cpus'])} ({node['cores']} cores)" if node["cpus"] else "no CPUs"
        yield f"{node['id']}  {', '.join((cpus, show_size(node['memory_mib'] * MIB), *pages))}"
