# SPDX-License-Identifier: Apache-2.0
"""Bodies about the offerings that a site adds. What is asked has the form of an offering file's entry."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody
from orchestrator.core.gpu.vgpu_parameters import Scheduler, VgpuParameters
from orchestrator.core.hosts.domain import Firmware
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.offerings.offering import (
    AntiAffinity,
    CpuPolicy,
    HugePageSize,
    NumaPolicy,
    Offering,
    OfferingKind,
)


class OfferingAnswer(AnswerBody):
    """An offering of the site."""

    name: str
    version: int
    description: str
    kind: OfferingKind
    vgpu_type: str | None
    vgpu_count: int
    mig_profile: str | None
    gpu_count: int
    gpu_models: tuple[str, ...]
    hosts: dict[str, str] = Field(description="Labels that a host must have to take its VMs")
    scheduler: Scheduler | None
    parameters: VgpuParameters
    vcpus: int | None = Field(description="Of a VM that asks for no number; null: by its framebuffer")
    memory: str | None = Field(description="The same of memory, like 32GiB")
    disk: str | None = Field(description="The same of its disk")
    mixed_sizes: bool
    numa: NumaPolicy
    cpu: CpuPolicy
    hugepages: HugePageSize | None = Field(
        description="Huge pages that the VM's memory is made of; null: ordinary ones"
    )
    firmware: Firmware = Field(description="What its guests boot by; uefi: without Secure Boot")
    nic: NicKind | None = Field(description="A virtual function of a network card near the GPU; null: none")
    anti_affinity: AntiAffinity
    migratable: bool
    provision: tuple[str, ...] = Field(description="Roles that are run in the guest of a new VM")
    provision_settings: dict[str, int | str] = Field(description="What is said to these roles, by name")

    @classmethod
    def of(cls, offering: Offering) -> OfferingAnswer:
        values = asdict(offering)
        del values["origin"]
        values["hosts"] = dict(offering.hosts)
        return cls.model_validate(values)
