# SPDX-License-Identifier: Apache-2.0
"""What a plan would do to one VM: moves and deletions, for people to read."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.trial import Moved


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """One thing to do. Hosts are names. ``vm_id`` is None for VMs the reader may not know."""

    host: str
    gpu_ids: tuple[str, ...]
    vm_id: str | None = None
    tenant: str | None = None
    profile: str | None = None
    to_host: str | None = None
    to_gpu: str | None = None
    to_start: int | None = None
    """First slot there."""
    cost_mib: int = 0
    """Move: guest and GPU memory to copy. Deletion: GPU memory the VM loses."""
    disk_gib: int = 0
    """Move: disk to copy."""


def move_action(engine: PlacementEngine, move: Moved) -> Action:
    """A move for people; the VM must still be in the engine."""
    held = engine.vms[move.vm_id].request
    return Action(
        host=_name(engine, move.from_host), gpu_ids=move.from_gpus, vm_id=move.vm_id, tenant=held.tenant,
        profile=held.profile, to_host=_name(engine, move.to.host_id), to_gpu=move.to.gpu_id, to_start=move.to.start,
        cost_mib=held.memory_mib + move.gpu_mib, disk_gib=held.disk_gib,
    )  # fmt: skip


def _name(engine: PlacementEngine, host_id: str) -> str:
    host = engine.fleet.host(host_id)
    return host_id if host is None else host.view.name
