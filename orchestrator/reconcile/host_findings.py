# SPDX-License-Identifier: Apache-2.0
"""Findings of a host that nothing repairs: its driver and our tables of NVIDIA's GPUs say different things (the host is
believed; people are told), or it is cordoned, which people forget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.reconcile import Disagreement, Kind, reconcile_types
from orchestrator.core.diff import Finding, host_finding
from orchestrator.core.drivers.upgrade import UNDER_WAY
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot
from orchestrator.core.vms.lease import show_moment
from orchestrator.store.transaction import Transaction

_TOLD: frozenset[Kind] = frozenset({"type_of_other_model", "framebuffer", "max_instances", "memory"})
"""What changes how much fits. Ids differ between releases of the driver, and each release has types of its own."""
_SHOWN = 3
_SERVES = "a host that gets new VMs"


def fact_findings(host: Host, snapshot: HostSnapshot) -> Iterator[Finding]:
    """One for each GPU of ours that differs."""
    for gpu in snapshot.gpus:
        if gpu.address not in host.managed_gpus or gpu.driver != "nvidia":
            continue
        differing = _differences(replace(gpu, address="", uuid="", serial=None, numa_node=None, parents=(), problems=(),
                                     instances=()))  # fmt: skip
        if differing:
            yield _gpu_finding(host, gpu, differing)


@lru_cache(maxsize=32)
def _differences(like: GpuSnapshot) -> tuple[Disagreement, ...]:
    """Of all GPUs that are alike."""
    return tuple(
        disagreement for disagreement in reconcile_types(shipped(), like).disagreements if disagreement.kind in _TOLD
    )


def _gpu_finding(host: Host, gpu: GpuSnapshot, disagreements: tuple[Disagreement, ...]) -> Finding:
    more = f" and {len(disagreements) - _SHOWN} more" if len(disagreements) > _SHOWN else ""
    shown = disagreements[:_SHOWN]

    def told(side: str) -> str:
        return (
            "; ".join(f"{disagreement.subject or 'the GPU'}: {getattr(disagreement, side)}" for disagreement in shown)
            + more
        )

    why = "the host's driver is believed; is vgpuctl older than the driver? then an upgrade may know it"
    differ = (told("catalogue"), told("host"))
    return host_finding(host, "gpu.facts_differ", "info", differ, why, f"GPU {gpu.address}")


def cordon_findings(tx: Transaction, host: Host) -> Iterator[Finding]:
    """One, unless a driver upgrade is just at work there."""
    if not host.cordoned or host.state == "forgotten":
        return
    upgrade = tx.driver_upgrades.newest()
    turn = (
        None
        if upgrade is None
        else next((host_turn for host_turn in upgrade.hosts if host_turn.host == host.name), None)
    )
    if upgrade is None or turn is None or turn.phase not in {*UNDER_WAY, "failed", "rolled_back"}:
        mend = f"'vgpuctl host uncordon {host.name}' when it shall get new VMs again"
        yield host_finding(host, "host.cordoned", "info", (_SERVES, _cordoned(host)), mend)
    elif turn.phase not in UNDER_WAY:
        ended = "" if turn.ended_at is None else f" at {show_moment(turn.ended_at)}"
        what = f"the upgrade to {upgrade.version} ended as {turn.phase}{ended}: {turn.why}; {_cordoned(host)}"
        mend = f"mend it and upgrade it again, or 'vgpuctl host uncordon {host.name}' when it shall serve as it is"
        yield host_finding(host, "host.upgrade_failed", "warning", (_SERVES, what), mend)


def _cordoned(host: Host) -> str:
    """Since when and by whom, as far as that is on record."""
    if host.cordoned_for is not None:
        return f"cordoned for {host.cordoned_for}"
    if host.cordon is None:
        return "cordoned"
    reason = f": {host.cordon.reason}" if host.cordon.reason else ""
    return f"cordoned since {show_moment(host.cordon.at)} by {host.cordon.by}{reason}"
