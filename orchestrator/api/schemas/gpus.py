# SPDX-License-Identifier: Apache-2.0
"""Bodies about GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.core.attachments import observed_on
from orchestrator.core.gpu.scheduler import ObservedPolicy
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.core.hosts.snapshot import Framework, GpuInstance, GpuSnapshot
from orchestrator.services.messages import GpuInfo

_PCI_ADDRESS: Final = "^([0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F][.][0-7]$"


class AcceptGpusBody(BaseModel):
    """Cards of a host are right where they are."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, title="AcceptGpus",
        json_schema_extra={"examples": [{"addresses": ["0000:41:00.0"]}]},
    )  # fmt: skip

    addresses: list[Annotated[str, Field(max_length=16, pattern=_PCI_ADDRESS)]] = Field(
        default_factory=list,
        max_length=64,
        description="PCI addresses of GPUs whose card was replaced by the one there",
    )


class TypeUseAnswer(CopiedAnswer):
    """One vGPU type on one GPU."""

    name: str
    framebuffer_mib: int
    max_instances: int
    used: int
    free: int = Field(description="How many could still be claimed now")


class GpuInstanceAnswer(AnswerBody):
    """A GPU instance that exists. Slots are the GPU's memory slots."""

    id: int
    profile: str
    start: int
    size: int
    compute_instances: int
    vm: str | None = Field(description="tenant/name of the VM it was made for; None: somebody else's, or a layout's")
    vms: tuple[str, ...] = Field(description="The same of every VM of ours in it: vGPUs of some GPUs share instances")
    layout: bool = Field(description="It stands without a VM, as 'mig apply' made it")
    mig_devices: tuple[str, ...] = Field(description="UUIDs, for container runtimes and CUDA_VISIBLE_DEVICES")
    capabilities: tuple[str, ...] = Field(description="Files on the host that name the device files it needs")

    @classmethod
    def of(cls, gpu: GpuSnapshot, instance: GpuInstance, vms: Mapping[str, str]) -> GpuInstanceAnswer:
        inside = (one.owner for one in observed_on(gpu) if one.device.gi_start == instance.start)
        owners = {owner for owner in (instance.owner, *inside) if owner not in {None, KEEPER}}
        return cls(
            id=instance.id,
            profile=instance.profile,
            start=instance.start,
            size=instance.size,
            compute_instances=len(instance.compute),
            vm=None if instance.owner in {None, KEEPER} else vms.get(instance.owner, instance.owner),
            vms=tuple(sorted(vms.get(str(owner), str(owner)) for owner in owners)),
            layout=instance.owner == KEEPER,
            mig_devices=instance.devices,
            capabilities=instance.capabilities,
        )


class GpuSchedulerAnswer(AnswerBody):
    """How a GPU divides its time among its vGPUs, as its driver says it."""

    policy: ObservedPolicy
    time_slice_us: int | None = Field(description="Microseconds; null: there are none, or the driver does not say")
    share_percent: float | None = Field(
        description="What each vGPU on it gets whether others work or not; null: that depends on the others"
    )

    @classmethod
    def of(cls, info: GpuInfo) -> GpuSchedulerAnswer | None:
        """A fixed share is one part of as many as there could be vGPUs of that size."""
        state, share = info.gpu.scheduler, None
        if state is None:
            return None
        if state.policy == "fixed_share":
            most = max((use.max_instances for use in info.types if use.used), default=0)
            share = round(100 / most, 2) if most else None
        return cls(policy=state.policy, time_slice_us=state.time_slice_us, share_percent=share)


class GpuAnswer(AnswerBody):
    """A physical GPU as last seen, with its claims."""

    host: str
    address: str = Field(description="PCI address")
    uuid: str
    model: str
    pci_id: str = Field(description="vendor:device as lspci prints it")
    numa_node: int | None
    memory_mib: int | None = Field(description="null: its driver does not tell, or does not have it")
    driver: str | None = Field(description="Kernel driver bound to it")
    framework: Framework = Field(description="How the driver offers vGPUs here, probed")
    virtual_functions: int
    mig_enabled: bool | None
    mig_pending: bool | None = Field(description="The MIG mode after the GPU's next reset")
    gpu_instances: tuple[GpuInstanceAnswer, ...]
    scheduler: GpuSchedulerAnswer | None = Field(description="null: its driver lets nobody choose, or does not say")
    mixed_sizes: bool | None = Field(
        description="Whether vGPUs of several sizes may be on it now; null: its driver mixes none, or does not say"
    )
    managed: bool = Field(description="Given to us at host add; no other GPU is ever touched")
    cut: str | None = Field(description="How it is cut now; None: nothing is claimed on it")
    types: tuple[TypeUseAnswer, ...]
    vms: tuple[str, ...] = Field(description="tenant/name of the VMs with a claim on it")
    problems: tuple[str, ...]

    @classmethod
    def of(cls, info: GpuInfo) -> GpuAnswer:
        gpu = info.gpu
        return cls(
            host=info.host,
            address=gpu.address,
            uuid=gpu.uuid,
            model=gpu.model,
            pci_id=f"{gpu.pci_vendor}:{gpu.pci_device}",
            numa_node=gpu.numa_node,
            memory_mib=gpu.memory_mib or None,
            driver=gpu.driver,
            framework=gpu.framework,
            virtual_functions=gpu.sriov_enabled_vfs,
            mig_enabled=gpu.mig_enabled,
            mig_pending=gpu.mig_pending,
            gpu_instances=tuple(GpuInstanceAnswer.of(gpu, one, info.vm_names) for one in gpu.instances),
            scheduler=GpuSchedulerAnswer.of(info),
            mixed_sizes=gpu.heterogeneous,
            managed=info.managed,
            cut=info.cut,
            types=tuple(TypeUseAnswer.of(use) for use in info.types),
            vms=info.vms,
            problems=gpu.problems,
        )
