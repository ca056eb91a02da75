# SPDX-License-Identifier: Apache-2.0
"""Bodies about what is put into guests."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, RequestBody, moment, moment_or_none
from orchestrator.core.gpu.licence import GuestLicence, LicenceState
from orchestrator.core.guest.guest import GuestRecord, RoleResult, RoleState
from orchestrator.core.guest.settings import MAX_SECRET_BYTES, MAX_SETTINGS

Roles = Annotated[
    tuple[Annotated[str, Field(max_length=63)], ...],
    Field(max_length=32, strict=False, description="Roles by name; they are run in the order that they need"),
]

Settings = Annotated[
    dict[str, int | Annotated[str, Field(max_length=63)]],
    Field(max_length=MAX_SETTINGS, description="What is said to the roles, by name, each of which knows its type"),
]
Secrets = Annotated[
    dict[str, Annotated[str, Field(max_length=MAX_SECRET_BYTES)]],
    Field(max_length=8, description="Files that roles need, by name, like licence_token; forgotten after the run"),
]


class ProvisionVmBody(RequestBody):
    """Roles that are to be run in the guest of a VM."""

    model_config = ConfigDict(title="ProvisionVm", json_schema_extra={"examples": [{"roles": ["guest_check"]}]})

    roles: Roles
    settings: Settings = Field(default={})
    secrets: Secrets = Field(default={}, repr=False)
    new_host_key: bool = Field(
        default=False, description="The SSH host key that the guest shows next counts from now on"
    )


class RoleResultAnswer(AnswerBody):
    """A role as it was run last in a guest."""

    role: str = Field(description="Its name")
    state: RoleState = Field(description="``ok``: everything was there already")
    tasks_ok: int = Field(description="How many of its tasks ended well")
    tasks_changed: int = Field(description="How many of these changed something")
    failed_task: str | None = Field(description="Title of the task that failed; null: none did")
    at: datetime = Field(description="When the run ended")
    operation: str

    @classmethod
    def of(cls, result: RoleResult) -> RoleResultAnswer:
        return cls(**{**asdict(result), "at": moment(result.at)})


class GuestFactsAnswer(AnswerBody):
    """What the guest said of itself to the role guest_check; it is the guest's word alone."""

    system: str | None = Field(description="Its operating system; null: nobody has looked")
    kernel: str | None = Field(description="Release of its kernel")
    driver: str | None = Field(description="Version of the driver that is loaded in it")
    gpus: tuple[str, ...] = Field(description="As nvidia-smi lists them there")
    cuda_driver: str | None = Field(description="Newest CUDA that its driver runs")
    cuda_devices: tuple[str, ...] = Field(description="Devices whose memory could be written and read back")
    cuda_toolkit: str | None = Field(description="Version of its CUDA toolkit")
    cudnn: str | None = Field(description="Version of its cuDNN, as guest_cuda or guest_check found it")
    nccl: str | None = Field(description="Version of its NCCL")
    nccl_devices: int | None = Field(description="Over how many devices NCCL has added up numbers, rightly")
    docker: str | None = Field(description="Version of its Docker, as guest_container_toolkit found it")
    container_toolkit: str | None = Field(description="Version of its NVIDIA Container Toolkit, from the same role")
    containerd: str | None = Field(description="Version of its containerd, as guest_k8s_node found it")
    kubelet: str | None = Field(description="Version of its kubelet, from the same role")
    device_plugin: str | None = Field(description="Version of NVIDIA's device plugin, from the same role")


class LicenceAnswer(AnswerBody):
    """NVIDIA's licence of a guest, as the driver of its host tells it; the guest is not asked."""

    state: LicenceState = Field(
        description="Of the vGPU that is worst off; ``unknown``: the VM does not run, has no vGPU, or nobody says"
    )
    until: datetime | None = Field(description="When it ends unless it is renewed; null: never, or nobody says")


class ProvisioningAnswer(AnswerBody):
    """What was put into the guest of a VM."""

    results: tuple[RoleResultAnswer, ...] = Field(description="One for each role that was ever run")
    facts: GuestFactsAnswer = Field(description="What it said of itself")
    licence: LicenceAnswer = Field(description="What its host says of its licence")

    @classmethod
    def of(cls, record: GuestRecord, licence: GuestLicence) -> ProvisioningAnswer:
        results = tuple(RoleResultAnswer.of(one) for one in record.results)
        told = LicenceAnswer(state=licence.state, until=moment_or_none(licence.until))
        return cls(results=results, facts=GuestFactsAnswer(**asdict(record.facts)), licence=told)
