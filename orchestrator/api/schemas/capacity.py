# SPDX-License-Identifier: Apache-2.0
"""Bodies about what would fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer, Name
from orchestrator.core.advice.capacity import CapacityRow
from orchestrator.core.advice.explain import TenantExplanation
from orchestrator.core.advice.gpu_map import GpuRow
from orchestrator.core.advice.remedies import Action, Remedy, RemedyKind
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.placement.views import Part, Request
from orchestrator.core.vms.network import DEFAULT_NAME
from orchestrator.core.vms.priority import Priority
from orchestrator.core.vms.vm import (
    MAX_DISK_BYTES,
    MAX_MEMORY_MIB,
    MAX_VCPUS,
)
from orchestrator.services.vms.capacity import Asked, Named, Question

Vcpus = Annotated[int, Field(ge=1, le=MAX_VCPUS)]
MemoryMib = Annotated[int, Field(ge=1, le=MAX_MEMORY_MIB)]
DiskBytes = Annotated[int, Field(ge=1, le=MAX_DISK_BYTES)]


class _Query(BaseModel):
    """Query parameters: text, so numbers are read from it; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    vcpus: Vcpus | None = Field(default=None, description="Left out: as the profile says")
    memory_mib: MemoryMib | None = Field(default=None, description="Left out: as the profile says")
    disk_bytes: DiskBytes | None = Field(default=None, description="Left out: as the profile says")
    network: Name = Field(default=DEFAULT_NAME, description="That the VM would be on")
    more_networks: str | None = Field(
        default=None, max_length=600, description="Of its further network cards, with commas between them"
    )
    volumes: str | None = Field(default=None, max_length=1300, description="Data volumes, with commas between them")
    nic: NicKind | None = Field(default=None, description="A function of a network card near its GPU")

    def to_asked(self, tenant: str) -> Asked:
        """What the service takes, of whatever profile."""
        return Asked(
            tenant=tenant,
            vcpus=self.vcpus or 0,
            memory_mib=self.memory_mib or 0,
            disk_bytes=self.disk_bytes or 0,
            networks=(self.network, *_names(self.more_networks)),
            volumes=_names(self.volumes),
            nic=self.nic,
        )


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


class CapacityQuery(_Query):
    """Of what, and how big the VMs would be."""

    profile: str | None = Field(default=None, max_length=255)
    tenant: str | None = Field(default=None, exclude=True)

    def to_question(self, tenant: str) -> Question | None:
        """None: everything that hosts offer."""
        return None if self.profile is None else Question(profile=self.profile, **vars(self.to_asked(tenant)))


class ExplainQuery(_Query):
    """A VM that somebody thinks of."""

    profile: str = Field(max_length=255)
    count: int = Field(default=1, ge=1, le=64, description="Devices in the VM")
    host: str | None = Field(default=None, max_length=255)
    gpu: str | None = Field(default=None, max_length=20, description="Only this GPU will do, by its PCI address")
    tenant: str | None = Field(default=None, exclude=True)
    priority: Priority | None = Field(default=None, description="Whom would it preempt with that one?")

    def to_question(self, tenant: str) -> Question:
        """What the service takes."""
        return Question(
            profile=self.profile,
            count=self.count,
            host=self.host,
            gpu=None if self.gpu is None else parse_pci_address(self.gpu),
            priority=self.priority,
            **vars(self.to_asked(tenant)),
        )


class ReasonAnswer(CopiedAnswer):
    """Why something does not fit, for one group of hosts or GPUs."""

    code: str
    message: str
    subjects: tuple[str, ...]
    count: int


class CapacityRowAnswer(CopiedAnswer):
    """How many more VMs of one profile fit."""

    profile: str
    fits_now: int = Field(
        description="For a tenant: what its quota covers and there are places for; 1 at most where it has no quota"
    )
    reason: ReasonAnswer | None = Field(default=None, description="Why none fits now; null: some do")


class CapacityAnswer(AnswerBody):
    """A row per profile, each counted on the fleet as it is."""

    rows: tuple[CapacityRowAnswer, ...]

    @classmethod
    def of(cls, rows: tuple[CapacityRow, ...]) -> CapacityAnswer:
        return cls(rows=tuple(CapacityRowAnswer.of(row) for row in rows))


class CellAnswer(CopiedAnswer):
    """A run of slots: one VM's place, or free slots."""

    start: int
    size: int
    vm: str | None
    tenant: str | None
    profile: str | None


class GpuRowAnswer(CopiedAnswer):
    """One GPU as its slots; ``slots`` is 0 while it is empty and may be cut in any way."""

    host: str | None = Field(description="null: not told; the GPU is then counted instead of named")
    gpu: str
    model: str
    numa: int | None
    cut: str | None
    slots: int
    free: int | None = Field(description="null: not told")
    cells: tuple[CellAnswer, ...]
    unusable: str | None


class GpuMapAnswer(AnswerBody):
    """GPUs as their slots: a page of them."""

    gpus: tuple[GpuRowAnswer, ...]

    @classmethod
    def of(cls, rows: Iterable[GpuRow]) -> GpuMapAnswer:
        return cls(gpus=tuple(GpuRowAnswer.of(row) for row in rows))


class PartAnswer(AnswerBody):
    """One device's place on a GPU."""

    gpu: str
    cut: str
    slots: tuple[int, ...]

    @classmethod
    def of(cls, part: Part) -> PartAnswer:
        return cls(gpu=part.gpu_id, cut=part.cut, slots=part.slots)


class ActionAnswer(AnswerBody):
    """A VM to delete."""

    host: str
    gpu_ids: tuple[str, ...]
    vm_id: str | None
    vm: str | None = Field(description="Its name; null: not known")
    tenant: str | None
    profile: str | None
    cost_mib: int

    @classmethod
    def of(cls, action: Action, names: Mapping[str, str]) -> ActionAnswer:
        return cls(**asdict(action), vm=names.get(action.vm_id or ""))


class RemedyAnswer(AnswerBody):
    """Things that would make it fit when all of them are done."""

    kind: RemedyKind
    actions: tuple[ActionAnswer, ...]
    cost_mib: int
    host: str
    parts: tuple[PartAnswer, ...]

    @classmethod
    def of(cls, remedy: Remedy, names: Mapping[str, str]) -> RemedyAnswer:
        return cls(
            kind=remedy.kind,
            actions=tuple(ActionAnswer.of(action, names) for action in remedy.actions),
            cost_mib=remedy.cost_mib,
            host=remedy.host,
            parts=tuple(PartAnswer.of(part) for part in remedy.placement.parts),
        )


class AskedAnswer(AnswerBody):
    """What the question came to."""

    profile: str = Field(description="The vGPU type, MIG profile or gpu:N that an offering stands for")
    count: int = Field(description="Devices")
    vcpus: int
    memory_mib: int
    tenant: str

    @classmethod
    def of(cls, request: Request) -> AskedAnswer:
        return cls(
            profile=request.profile,
            count=request.count,
            vcpus=request.vcpus + request.pinned,
            memory_mib=request.memory_mib + request.huge_mib,
            tenant=request.tenant,
        )


class ExplainAnswer(AnswerBody):
    """Where a VM would go and why, or why not and what would change that. A tenant is told whether it fits."""

    model_config = ConfigDict(title="Explanation")

    asked: AskedAnswer
    restricted: bool = Field(description="As a tenant may know it: nothing says who or what is in the way, or where")
    fits: bool
    code: str | None
    host: str | None
    parts: tuple[PartAnswer, ...]
    why: str | None
    reasons: tuple[ReasonAnswer, ...]
    remedies: tuple[RemedyAnswer, ...]
    gpus: tuple[GpuRowAnswer, ...] = Field(description="Some that are too full or cut in another way, no two alike")
    preempts: tuple[str, ...] = Field(description="VMs that would be stopped for it; not told to tenants")

    @classmethod
    def of(cls, named: Named) -> ExplainAnswer:
        found = named.explanation
        return cls(
            asked=AskedAnswer.of(found.request),
            restricted=False,
            fits=found.fits,
            code=found.code,
            host=found.host,
            parts=tuple(PartAnswer.of(part) for part in found.placement.parts) if found.placement else (),
            why=found.placement.why if found.placement else None,
            reasons=tuple(ReasonAnswer.of(reason) for reason in found.reasons),
            remedies=tuple(RemedyAnswer.of(remedy, named.names) for remedy in found.remedies),
            gpus=tuple(GpuRowAnswer.of(row) for row in found.gpus),
            preempts=named.preempts,
        )

    @classmethod
    def of_tenant(cls, told: TenantExplanation) -> ExplainAnswer:
        return cls(
            asked=AskedAnswer.of(told.request),
            restricted=True,
            fits=told.fits,
            code=told.code,
            host=None,
            parts=(),
            why=None,
            reasons=tuple(ReasonAnswer.of(reason) for reason in told.reasons),
            remedies=(),
            gpus=(),
            preempts=(),
        )
