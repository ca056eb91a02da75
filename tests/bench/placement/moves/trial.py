# SPDX-License-Identifier: Apache-2.0
"""Moves that can be taken back, exactly."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.placement.engine import PlacementPlan
from orchestrator.core.placement.fleet import Gpu
from orchestrator.core.placement.preemption import Trial
from orchestrator.core.placement.views import Placement
from tests.bench.placement.moves.engine import MovingEngine


@dataclass(frozen=True, slots=True)
class Moved:
    """One VM's move: where it was and where it went. ``gpu_mib`` is the GPU memory that has to be carried."""

    vm_id: str
    from_host: str
    from_gpus: tuple[str, ...]
    from_start: int
    to: Placement
    gpu_mib: int
    live: bool
    """False: a whole GPU can only be moved with the VM switched off."""


class MovingTrial(Trial):
    engine: MovingEngine

    def __init__(self, engine: MovingEngine) -> None:
        super().__init__(engine)

    def move(self, vm_id: str, plan: PlacementPlan) -> Moved:
        """Take a VM from where it is to ``plan``, which must come from the present state."""
        engine = self.engine
        held = engine.vms[vm_id]
        start = next(taken.start for taken, item in held.gpus[0].held if item.vm_id == vm_id)
        mib = sum(_mib(gpu, vm_id) for gpu in held.gpus)
        placement = self.carry(held.request, plan)
        return Moved(
            vm_id, held.host.view.host_id, tuple(gpu.view.gpu_id for gpu in held.gpus), start, placement, mib,
            live=held.request.whole_gpus == 0,
        )  # fmt: skip

    def undo(self, mark: int = 0) -> None:
        touched = dict.fromkeys(before.gpu for _, _, gpus, _ in self._log[mark:] for before in gpus)
        super().undo(mark)
        for gpu in touched:
            self.engine.layouts.note(gpu)


def _mib(gpu: Gpu, vm_id: str) -> int:
    if gpu.whole:
        return gpu.table.total_mib
    slot = gpu.table.cuts[gpu.cut].slot_mib
    return sum(taken.size * slot for taken, item in gpu.held if item.vm_id == vm_id)
