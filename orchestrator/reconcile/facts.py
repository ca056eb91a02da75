# SPDX-License-Identifier: Apache-2.0
"""Where a host's driver and our tables of NVIDIA's GPUs say different things. The host is believed; people are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.reconcile import Disagreement, Kind, reconcile_types
from orchestrator.core.diff import Finding
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot

_TOLD: frozenset[Kind] = frozenset({"type_of_other_model", "framebuffer", "max_instances", "memory"})
"""What changes how much fits. Ids differ between releases of the driver, and each release has types of its own."""
_SHOWN = 3


def fact_findings(host: Host, snapshot: HostSnapshot) -> Iterator[Finding]:
    """One for each GPU of ours that differs."""
    for gpu in snapshot.gpus:
        if gpu.address not in host.managed_gpus or gpu.driver != "nvidia":
            continue
        found = _differences(replace(gpu, address="", uuid="", serial=None, numa_node=None, parents=(), problems=(),
                                     instances=()))  # fmt: skip
        if found:
            yield _finding(host, gpu, found)


@lru_cache(maxsize=32)
def _differences(like: GpuSnapshot) -> tuple[Disagreement, ...]:
    """Of all GPUs that are alike."""
    return tuple(one for one in reconcile_types(shipped(), like).disagreements if one.kind in _TOLD)


def _finding(host: Host, gpu: GpuSnapshot, found: tuple[Disagreement, ...]) -> Finding:
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    shown = found[:_SHOWN]

    def told(side: str) -> str:
        return "; ".join(f"{one.subject or 'the GPU'}: {getattr(one, side)}" for one in shown) + more

    return Finding(
        code="gpu.facts_differ",
        severity="info",
        host=host.name,
        subject=f"GPU {gpu.address}",
        vm=None,
        whose="ours",
        wanted=told("catalogue"),
        observed=told("host"),
        repair=None,
        reason="the host's driver is believed; is vgpuctl older than the driver? then an upgrade may know it",
    )
