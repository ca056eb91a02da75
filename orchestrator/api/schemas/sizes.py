# SPDX-License-Identifier: Apache-2.0
"""Bodies about another size of a VM."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from orchestrator.api.schemas.base import MAX_NAME, AnswerBody
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.vms.vm import MAX_MEMORY_MIB, MAX_VCPUS
from orchestrator.services.messages import ResizePlan, ResizeVm


class ResizeVmBody(StrictForm, example={"profile": "t4-4q", "restart": True}):
    """Another size of a VM."""

    profile: str = Field(min_length=1, max_length=MAX_NAME)
    """Name of an offering, vGPU type or MIG profile, or gpu:N."""
    vcpus: int = Field(default=0, ge=0, le=MAX_VCPUS)
    """0: as the profile says."""
    memory_mib: int = Field(default=0, ge=0, le=MAX_MEMORY_MIB)
    """0: as the profile says."""
    restart: bool = False
    """One that runs may be shut down for it, and is started again."""

    def to_request(self, name: str, tenant: str) -> ResizeVm:
        return ResizeVm(name=name, tenant=tenant, **self.model_dump())


class ResizePlanAnswer(AnswerBody):
    """What a resize would do; nothing is stored."""

    copied_from = (ResizePlan,)

    source: str | None
    """Host that the VM is on; null for a tenant."""
    target: str | None
    """Host that it would be on: its own where it fits there; null for a tenant."""
    in_place: bool
    """It stays on its host."""
    gpus: tuple[str, ...]
    """Empty for a tenant."""
    why: str | None
    vcpus: int
    memory_mib: int
    restarts: bool

    @classmethod
    def of(cls, plan: ResizePlan, *, watching: bool) -> ResizePlanAnswer:
        """``watching``: the reader may know of hosts."""
        hidden: dict[str, Any] = {} if watching else {"source": None, "target": None, "gpus": (), "why": None}
        return cls.copied(plan, in_place=plan.source == plan.target, **hidden)
