# SPDX-License-Identifier: Apache-2.0
"""Bodies about profiles: what ``--profile`` takes."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody
from orchestrator.core.hosts.domain import Firmware
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.offerings.offering import CpuPolicy, HugePageSize, NumaPolicy, OfferingKind, Origin
from orchestrator.core.offerings.support import unsupported
from orchestrator.services.messages import ProfileInfo


class ProfileAnswer(AnswerBody):
    """An offering, a vGPU type, a MIG profile or a number of whole GPUs."""

    name: str
    kind: OfferingKind
    version: int
    origin: Origin = Field(description="Comes with vgpuctl (catalogue), added here (site), or a name of NVIDIA's")
    description: str
    vgpu_type: str | None
    vgpu_count: int
    mig_profile: str | None
    gpu_count: int
    gpu_models: tuple[str, ...]
    framebuffer_mib: int | None = Field(description="Of all its devices together; null: as the GPUs have it")
    vcpus: int = Field(description="What a VM of it has that asks for no number")
    memory_mib: int = Field(description="The same of memory")
    disk_bytes: int = Field(description="The same of its disk")
    host_labels: dict[str, str] = Field(description="Labels that a host must have to offer it")
    cpu: CpuPolicy = Field(description="Whether vCPUs have CPUs of their own")
    numa: NumaPolicy = Field(description="Whether vCPUs and memory come from the GPU's NUMA node")
    hugepages: HugePageSize | None = Field(
        description="Huge pages that the VM's memory is made of; null: ordinary ones"
    )
    firmware: Firmware = Field(description="What its guests boot by; uefi: without Secure Boot")
    nic: NicKind | None = Field(description="A virtual function of a network card near the GPU; null: none")
    provision: tuple[str, ...] = Field(description="Roles that are run in the guest of a new VM")
    hosts: tuple[str, ...] = Field(description="Hosts that offer it; none are named to a tenant")
    free: int | None = Field(
        description="How many VMs of the usual size fit now, as /v1/capacity counts them; null for a tenant"
    )
    available: bool = Field(description="Some host offers it, and nothing of it is unsupported")
    unsupported: tuple[str, ...] = Field(description="What it asks for that no host is set to so far: it is refused")

    @classmethod
    def of(cls, info: ProfileInfo, *, watching: bool) -> ProfileAnswer:
        """``watching``: the reader may know of the whole pool."""
        offering, missing = info.offering, unsupported(info.offering)
        return cls(
            name=offering.name,
            kind=offering.kind,
            version=offering.version,
            origin=offering.origin,
            description=offering.description,
            vgpu_type=offering.vgpu_type,
            vgpu_count=offering.vgpu_count,
            mig_profile=offering.mig_profile,
            gpu_count=offering.gpu_count,
            gpu_models=offering.gpu_models,
            framebuffer_mib=info.framebuffer_mib,
            **asdict(info.size),
            host_labels=dict(offering.hosts),
            cpu=offering.cpu,
            numa=offering.numa,
            hugepages=offering.hugepages,
            firmware=offering.firmware,
            nic=offering.nic,
            provision=offering.provision,
            hosts=info.hosts if watching else (),
            free=info.free if watching else None,
            available=bool(info.hosts) and not missing,
            unsupported=missing,
        )
