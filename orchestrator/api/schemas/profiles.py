# SPDX-License-Identifier: Apache-2.0
"""Bodies about profiles, what ``--profile`` takes, and offerings."""

from __future__ import annotations

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer, LabelsByKey
from orchestrator.core.gpu.vgpu_parameters import Scheduler, VgpuParameters
from orchestrator.core.offerings.offering import Offering, unsupported
from orchestrator.services.messages import ProfileInfo


class ProfileAnswer(
    AnswerBody,
    copies=Offering,
    without={
        "anti_affinity", "memory", "disk", "migratable", "mixed_sizes", "parameters",
        "provision_settings", "scheduler",
    },
):  # fmt: skip
    """An offering, a vGPU type, a MIG profile or a number of whole GPUs."""

    framebuffer_mib: int | None
    """Of all its devices together; null: as the GPUs have it."""
    vcpus: int
    """What a VM of it has that asks for no number."""
    memory_mib: int
    """The same of memory."""
    disk_bytes: int
    """The same of its disk."""
    host_labels: LabelsByKey
    """Labels that a host must have to offer it."""
    hosts: tuple[str, ...]
    """Hosts that offer it, by name: of a list's profiles the first 20 of each; none are named to a tenant."""
    host_count: int | None
    """How many hosts offer it; null for a tenant."""
    free: int | None
    """How many VMs of the usual size fit now, as /v1/capacity counts them; null for a tenant."""
    available: bool
    """Some host offers it, and nothing of it is unsupported."""
    unsupported: tuple[str, ...]
    """What it asks for that no host is set to so far: it is refused."""

    @classmethod
    def of(cls, info: ProfileInfo, *, watching: bool) -> ProfileAnswer:
        """``watching``: the reader may know of the whole pool."""
        size = info.size
        return cls.copied(
            info.offering,
            framebuffer_mib=info.framebuffer_mib,
            vcpus=size.vcpus,
            memory_mib=size.memory_mib,
            disk_bytes=size.disk_bytes,
            host_labels=info.offering.hosts,
            hosts=info.hosts if watching else (),
            host_count=info.host_count if watching else None,
            free=info.free if watching else None,
            available=info.available,
            unsupported=unsupported(info.offering),
        )


class SchedulerAnswer(CopiedAnswer, copies=Scheduler, defaults=True):
    """How the GPU's time is divided. None leaves the driver's default."""


class VgpuParametersAnswer(CopiedAnswer, copies=VgpuParameters, defaults=True):
    """Parameters of the vGPU plugin. None leaves the driver's default."""


class OfferingAnswer(CopiedAnswer, copies=Offering, without={"origin"}):
    """An offering of the site."""

    hosts: LabelsByKey
    scheduler: SchedulerAnswer | None
    parameters: VgpuParametersAnswer
