# SPDX-License-Identifier: Apache-2.0
"""Bodies about MIG layouts. What is asked has the form of an entry in mig-parted's files."""

from __future__ import annotations

from pydantic import ConfigDict

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.catalogue.described import StrictForm
from orchestrator.catalogue.mig_file import Entries
from orchestrator.core.actions.host_actions import CreateGpuInstance, DestroyGpuInstance
from orchestrator.core.hosts.mig_config import MigEntry
from orchestrator.services.hosts.mig_layouts import LayoutPlan


class MigLayoutBody(StrictForm):
    """One configuration."""

    model_config = ConfigDict(
        title="MigLayout",
        json_schema_extra={
            "examples": [
                {"entries": [{"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 2, "3g.40gb": 1}}]}
            ]
        },
    )

    entries: Entries
    """As below mig-configs in the file; the last one that speaks of a GPU counts."""

    def to_core(self) -> tuple[MigEntry, ...]:
        return tuple(entry.to_core() for entry in self.entries)


class PlaceAnswer(CopiedAnswer):
    """A GPU instance."""

    profile: str
    """Offering, vGPU type, MIG profile or gpu:N."""
    start: int
    """First memory slot."""


class LayoutPlanAnswer(AnswerBody):
    """What a configuration means for one GPU."""

    number: int
    """In the order of PCI addresses, as in the file."""
    address: str
    """PCI address."""
    mig: bool
    """The mode that it is in."""
    wanted_mig: bool
    """The mode that the layout needs."""
    instances: tuple[PlaceAnswer, ...]
    """All that the layout has."""
    removed: tuple[int, ...]
    """First slots of GPU instances that go."""
    made: tuple[int, ...]
    """First slots of GPU instances that come."""
    changes: bool
    """Whether anything would be done."""
    in_the_way: tuple[str, ...]
    """What others have on the GPU; it is refused because of these."""

    @classmethod
    def of(cls, plan: LayoutPlan) -> LayoutPlanAnswer:
        before, wanted = plan.change.before, plan.change.wanted
        kept = {place.start for place in before.instances if place in wanted.instances}
        made = (action.start for action in plan.actions if isinstance(action, CreateGpuInstance))
        return cls(
            number=plan.number,
            address=wanted.gpu,
            mig=before.on,
            wanted_mig=wanted.on,
            instances=tuple(map(PlaceAnswer.of, wanted.instances)),
            removed=tuple(action.start for action in plan.actions if isinstance(action, DestroyGpuInstance)),
            made=tuple(start for start in made if start not in kept),
            changes=bool(plan.actions),
            in_the_way=plan.in_the_way,
        )
