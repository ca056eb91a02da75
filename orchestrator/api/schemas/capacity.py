# SPDX-License-Identifier: Apache-2.0
"""Bodies about what would fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer, Name
from orchestrator.api.schemas.vms import named_for
from orchestrator.core.advice.alike import CapacityGpus, CapacityRow
from orchestrator.core.advice.explain import TenantExplanation
from orchestrator.core.advice.gpu_map import Cell, GpuRow
from orchestrator.core.advice.overview import RackUse
from orchestrator.core.advice.remedies import Action, Remedy
from orchestrator.core.errors import Reason
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.placement.rules.nodes import own_of
from orchestrator.core.placement.views import Part, Request
from orchestrator.core.readings.frame import Reading
from orchestrator.core.vms.network import DEFAULT_NAME
from orchestrator.core.vms.priority import Priority
from orchestrator.core.vms.vm import (
    MAX_DISK_BYTES,
    MAX_MEMORY_MIB,
    MAX_VCPUS,
)
from orchestrator.services.vms.capacity import Named, Question

Vcpus = Annotated[int, Field(ge=1, le=MAX_VCPUS)]
MemoryMib = Annotated[int, Field(ge=1, le=MAX_MEMORY_MIB)]
PROFILE = "Offering, vGPU type, MIG profile or gpu:N"
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
    volumes: str | None = Field(
        default=None, max_length=1300, description="Data volumes, NAME or NAME:ro, with commas between"
    )
    pool: Name | None = Field(default=None, description="That its disk would lie in")
    encrypted: bool = Field(default=False, description="Its disk, on its host")
    nic: NicKind | None = Field(default=None, description="A function of a network card near its GPU")
    tpm: bool | None = Field(default=None, description="A TPM 2.0 of its own; left out: as the profile says")

    def to_shape(self, tenant: str) -> dict[str, Any]:
        """What of it every question has."""
        shape = self.model_dump(include=set(_Query.model_fields), exclude_none=True)
        return shape | {
            "tenant": tenant, "more_networks": _names(self.more_networks), "volumes": _names(self.volumes)
        }  # fmt: skip


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


class CapacityQuery(_Query):
    """Of what, and how big the VMs would be."""

    profile: str | None = Field(default=None, max_length=255, description=PROFILE)
    tenant: str | None = Field(default=None, exclude=True)
    sort: str | None = Field(default=None, exclude=True)

    def to_question(self, tenant: str) -> Question:
        return Question(profile=self.profile or "", each=self.profile is None, **self.to_shape(tenant))


class ExplainQuery(_Query):
    """A VM that somebody thinks of."""

    profile: str = Field(max_length=255, description=PROFILE)
    count: int = Field(default=1, ge=1, le=64, description="Devices in the VM")
    host: str | None = Field(default=None, max_length=255, description="Only this host will do")
    gpu: str | None = Field(default=None, max_length=20, description="Only this GPU will do, by its PCI address")
    tenant: str | None = Field(default=None, exclude=True)
    priority: Priority | None = Field(default=None, description="Whom would it preempt with that one?")

    def to_question(self, tenant: str) -> Question:
        return Question(
            profile=self.profile,
            count=self.count,
            host=self.host,
            gpu=None if self.gpu is None else parse_pci_address(self.gpu),
            priority=self.priority or "normal",
            preempt=self.priority is not None,
            **self.to_shape(tenant),
        )


class ReasonAnswer(CopiedAnswer, copies=Reason):
    """Why something does not fit, for one group of hosts or GPUs."""


class CapacityRowAnswer(CopiedAnswer, copies=CapacityRow):
    """How many more VMs of one profile fit."""

    fits_now: int
    """For a tenant: what its quota covers and there are places for; 1 at most where it has no quota."""
    reason: ReasonAnswer | None = None


class CapacityGpusAnswer(CopiedAnswer, copies=CapacityGpus):
    """Managed GPUs, by whether new VMs may be put on them."""


class CapacityAnswer(AnswerBody):
    """A row per profile, each counted on the fleet as it is."""

    rows: tuple[CapacityRowAnswer, ...]
    """One for each thing that was looked at."""
    gpus: CapacityGpusAnswer | None
    """Of the pool; null: not told to tenants."""

    @classmethod
    def of(cls, rows: tuple[CapacityRow, ...], gpus: CapacityGpus | None) -> CapacityAnswer:
        return cls(
            rows=tuple(CapacityRowAnswer.of(row) for row in rows),
            gpus=None if gpus is None else CapacityGpusAnswer.of(gpus),
        )


class CellAnswer(CopiedAnswer, copies=Cell):
    """A run of slots: one VM's place, or free slots."""


class GpuRowAnswer(CopiedAnswer, copies=GpuRow):
    """One GPU as its slots; ``slots`` is 0 while it is empty and may be cut in any way."""

    cells: tuple[CellAnswer, ...]
    utilization_ratio: float | None = None
    """Share of the last second in which a kernel ran; null: it was not read lately, or the reader may not know it."""
    memory_used_bytes: float | None = None
    """Framebuffer in use; null as above."""


class GpuMapAnswer(AnswerBody):
    """GPUs as their slots: a page of them."""

    gpus: tuple[GpuRowAnswer, ...]
    """GPUs, by host and address."""

    @classmethod
    def of(cls, rows: Iterable[GpuRow], readings: Mapping[tuple[str, str], Reading]) -> GpuMapAnswer:
        """``readings``: of GPUs by host and PCI address, as far as the reader may know of them."""
        return cls(gpus=tuple(_gpu_row(row, readings.get((row.host or "", row.gpu))) for row in rows))


def _gpu_row(row: GpuRow, reading: Reading | None) -> GpuRowAnswer:
    answer = GpuRowAnswer.of(row)
    if reading is None:
        return answer
    numbers = ((name, reading.get(f"gpu_{name}")) for name in ("utilization_ratio", "memory_used_bytes"))
    return answer.model_copy(update=dict(numbers))


class RackUseAnswer(CopiedAnswer, copies=RackUse):
    """Hosts of one rack, as columns."""


class RacksAnswer(AnswerBody):
    """How much of each host's GPUs is used, by rack: all hosts at once."""

    racks: tuple[RackUseAnswer, ...]
    """By the value of the hosts' label ``rack``, those without it last."""

    @classmethod
    def of(cls, racks: Iterable[RackUse]) -> RacksAnswer:
        return cls(racks=tuple(map(RackUseAnswer.of, racks)))


class PartAnswer(AnswerBody):
    """One device's place on a GPU."""

    gpu: str
    """PCI address; for a tenant a number."""
    cut: str
    """How the GPU is cut; null: nothing is claimed on it."""
    slots: tuple[int, ...]
    """Slots of the GPU."""

    @classmethod
    def of(cls, part: Part) -> PartAnswer:
        return cls(gpu=part.gpu_id, cut=part.cut, slots=part.slots)


class ActionAnswer(AnswerBody, copies=Action):
    """A VM to delete."""

    vm: str | None
    """Its name; null: not known."""

    @classmethod
    def of(cls, action: Action, names: Mapping[str, str]) -> ActionAnswer:
        return cls.copied(action, vm=names.get(action.vm_id))


class RemedyAnswer(AnswerBody, copies=Remedy, without={"placement"}):
    """Things that would make it fit when all of them are done."""

    actions: tuple[ActionAnswer, ...]
    cost_mib: int
    """GPU memory that they give up together, in MiB."""
    parts: tuple[PartAnswer, ...]
    """Where it goes: slots of GPUs."""

    @classmethod
    def of(cls, remedy: Remedy, names: Mapping[str, str]) -> RemedyAnswer:
        return cls.copied(
            remedy,
            actions=tuple(ActionAnswer.of(action, names) for action in remedy.actions),
            parts=tuple(PartAnswer.of(part) for part in remedy.placement.parts),
        )


class AskedAnswer(AnswerBody):
    """What the question came to."""

    profile: str
    """The vGPU type, MIG profile or gpu:N that an offering stands for."""
    count: int
    """Devices."""
    vcpus: int
    """Virtual CPUs."""
    memory_mib: int
    """Memory, in MiB."""
    tenant: str
    """Whose it is."""

    @classmethod
    def of(cls, request: Request) -> AskedAnswer:
        own_vcpus, huge_mib = own_of(request.needs)
        return cls.copied(request, vcpus=request.vcpus + own_vcpus, memory_mib=request.memory_mib + huge_mib)


class ExplanationAnswer(AnswerBody):
    """Where a VM would go and why, or why not and what would change that. A tenant is told whether it fits."""

    asked: AskedAnswer
    """What was asked, with offerings resolved."""
    restricted: bool
    """As a tenant may know it: nothing says who or what is in the way, or where."""
    fits: bool
    """Whether it could be created now."""
    code: str | None
    """Stable dotted code; docs/reference/errors.md lists them."""
    host: str | None
    """Name of the host."""
    parts: tuple[PartAnswer, ...]
    """Where it goes: slots of GPUs."""
    why: str | None
    """Why there, for people."""
    reasons: tuple[ReasonAnswer, ...]
    """Why not, each with the hosts, GPUs or fields it is about."""
    remedies: tuple[RemedyAnswer, ...]
    """What would make it fit, the cheapest first."""
    gpus: tuple[GpuRowAnswer, ...]
    """Some that are too full or cut in another way, no two alike."""
    preempts: tuple[str, ...]
    """VMs that would be stopped for it; of others' a tenant is only told that there are some."""
    moves: tuple[str, ...]
    """Moves of VMs that would make it fit: tenant/name from HOST to HOST; not told to tenants."""

    @classmethod
    def of(cls, named: Named) -> ExplanationAnswer:
        explanation = named.explanation
        return cls.copied(
            explanation,
            asked=AskedAnswer.of(explanation.request),
            restricted=False,
            parts=tuple(PartAnswer.of(part) for part in explanation.placement.parts) if explanation.placement else (),
            why=explanation.placement.why if explanation.placement else None,
            remedies=tuple(RemedyAnswer.of(remedy, named.names) for remedy in explanation.remedies),
            preempts=named.preempts,
            moves=named.moves,
        )

    @classmethod
    def of_tenant(cls, explanation: TenantExplanation) -> ExplanationAnswer:
        return cls.copied(
            explanation,
            asked=AskedAnswer.of(explanation.request),
            restricted=True,
            host=None,
            parts=(),
            why=None,
            remedies=(),
            gpus=(),
            preempts=named_for((explanation.request.tenant,), explanation.preempts),
            moves=(),
        )
