# SPDX-License-Identifier: Apache-2.0
"""An engine whose VMs can be moved: it knows which GPUs are laid out alike, and can be kept off empty GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from orchestrator.core.placement.engine import PlacementEngine, PlacementPlan
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.rankings import RankedPlace
from orchestrator.core.placement.scores import Scores
from orchestrator.core.placement.views import HostView, Placement, Request
from tests.bench.placement.moves.layouts import Layouts


class MovingEngine(PlacementEngine):
    def __init__(self, hosts: Iterable[HostView] = (), *, scores: Scores | None = None) -> None:
        super().__init__(scores=scores)
        self.layouts = Layouts(self.fleet)
        self.opens_gpus = True
        """False while a plan must not put parts on empty GPUs."""
        for view in hosts:
            self.add_host(view)

    def add_host(self, view: HostView) -> None:
        super().add_host(view)
        self.layouts.forget()

    def replace_host(self, view: HostView) -> None:
        super().replace_host(view)
        self.layouts.forget()

    def remove_host(self, host_id: str) -> None:
        super().remove_host(host_id)
        self.layouts.forget()

    def take(self, request: Request, plan: PlacementPlan) -> Placement:
        placement = super().take(request, plan)
        self._note(self.vms[request.vm_id].gpus)
        return placement

    def release(self, vm_id: str) -> None:
        gpus = self.vms[vm_id].gpus
        super().release(vm_id)
        self._note(gpus)

    def plan_among(self, request: Request, accept: Callable[[FleetHost, Gpu | None], bool]) -> PlacementPlan | None:
        """Like ``plan``, among the hosts and GPUs that ``accept`` says yes to (no GPU given: whole GPUs).

        Whole GPUs that must be on one NUMA node are not looked for: nothing here says which GPUs a host would give.
        """
        if request.whole_gpus and request.seeks_gpus:
            return None
        return self._walk(request, accept)

    def _note(self, gpus: Iterable[Gpu]) -> None:
        for gpu in gpus:
            self.layouts.note(gpu)

    def _first(
        self, entry: RankedPlace, fits: list[bool], accept: Callable[[FleetHost, Gpu | None], bool] | None
    ) -> int:
        if entry.position >= 0 and not self.opens_gpus:
            return -1
        return super()._first(entry, fits, accept)
