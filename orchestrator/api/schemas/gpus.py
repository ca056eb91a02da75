# SPDX-License-Identifier: Apache-2.0
"""Bodies about GPUs and their MIG layouts, which are asked for as an entry in mig-parted's files is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.catalogue.described import StrictForm
from orchestrator.catalogue.mig_file import Entries
from orchestrator.core.actions.host_actions import CreateGpuInstance, DestroyGpuInstance
from orchestrator.core.attachments import observed_on
from orchestrator.core.gpu.device import Framework
from orchestrator.core.gpu.fabric import GpuFabric
from orchestrator.core.gpu.health_states import HealthState
from orchestrator.core.gpu.vgpu_parameters import ObservedPolicy
from orchestrator.core.hosts.mig_layout import KEEPER, MigEntry
from orchestrator.core.hosts.snapshot import GpuInstance, GpuSnapshot
from orchestrator.services.hosts.mig_layouts import LayoutPlan
from orchestrator.services.messages import GpuInfo, TypeUse

_PCI_ADDRESS: Final = "^([0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F][.][0-7]$"


class AcceptGpusBody(StrictForm, example={"addresses": ["0000:41:00.0"]}):
    """Cards of a host are right where they are."""

    addresses: list[Annotated[str, Field(max_length=16, pattern=_PCI_ADDRESS)]] = Field(
        default_factory=list, max_length=64
    )
    """PCI addresses of GPUs whose card was replaced by the one there."""


class TypeUseAnswer(CopiedAnswer, copies=TypeUse):
    """One vGPU type on one GPU."""


class GpuInstanceAnswer(AnswerBody, copies=GpuInstance, without={"compute", "devices", "owner"}):
    """A GPU instance that exists. Slots are the GPU's memory slots."""

    compute_instances: int
    """How many compute instances it has."""
    vm: str | None
    """tenant/name of the VM it was made for; None: somebody else's, or a layout's."""
    vms: tuple[str, ...]
    """The same of every VM of ours in it: vGPUs of some GPUs share instances."""
    layout: bool
    """It stands without a VM, as 'mig apply' made it."""
    mig_devices: tuple[str, ...]
    """UUIDs, for container runtimes and CUDA_VISIBLE_DEVICES."""

    @classmethod
    def of(cls, gpu: GpuSnapshot, instance: GpuInstance, vms: Mapping[str, str]) -> GpuInstanceAnswer:
        inside = (placed.owner for placed in observed_on(gpu) if placed.device.gi_start == instance.start)
        owners = {owner for owner in (instance.owner, *inside) if owner not in {None, KEEPER}}
        return cls.copied(
            instance,
            compute_instances=len(instance.compute),
            vm=None if instance.owner in {None, KEEPER} else vms.get(instance.owner, instance.owner),
            vms=tuple(sorted(vms.get(str(owner), str(owner)) for owner in owners)),
            layout=instance.owner == KEEPER,
            mig_devices=instance.devices,
        )


class GpuSchedulerAnswer(AnswerBody):
    """How a GPU divides its time among its vGPUs, as its driver says it."""

    policy: ObservedPolicy
    """How the GPU's time is divided."""
    time_slice_us: int | None
    """Microseconds; null: there are none, or the driver does not say."""
    share_percent: float | None
    """What each vGPU on it gets whether others work or not; null: that depends on the others."""

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


class GpuFabricAnswer(CopiedAnswer, copies=GpuFabric):
    """How a GPU is joined to others over NVLink, as its driver says."""


class GpuAnswer(AnswerBody):
    """A physical GPU as last seen, with its claims."""

    copied_from = (GpuSnapshot,)

    host: str
    """Name of the host."""
    address: str
    uuid: str
    model: str
    pci_id: str
    """vendor:device as lspci prints it."""
    numa_node: int | None
    memory_mib: int | None
    driver: str | None
    framework: Framework
    virtual_functions: int
    """How many SR-IOV virtual functions are on."""
    mig_enabled: bool | None
    mig_pending: bool | None
    gpu_instances: tuple[GpuInstanceAnswer, ...]
    """GPU instances that exist on it."""
    scheduler: GpuSchedulerAnswer | None
    """null: its driver lets nobody choose, or does not say."""
    mixed_sizes: bool | None
    """Whether vGPUs of several sizes may be on it now; null: its driver mixes none, or does not say."""
    power_min_watts: int | None
    power_default_watts: int | None
    power_max_watts: int | None
    power_limit_watts: int | None
    fabric: GpuFabricAnswer | None
    managed: bool
    """Given to us at host add; no other GPU is ever touched."""
    state: HealthState | None
    """healthy, watch (placed on last), unfit or quarantined (nothing new is put on it); null: not ours."""
    cut: str | None
    """How it is cut now; None: nothing is claimed on it."""
    types: tuple[TypeUseAnswer, ...]
    """vGPU types that it offers."""
    vms: tuple[str, ...]
    """tenant/name of the VMs with a claim on it."""
    problems: tuple[str, ...]

    @classmethod
    def of(cls, info: GpuInfo) -> GpuAnswer:
        gpu = info.gpu
        return cls.copied(
            gpu,
            host=info.host,
            pci_id=f"{gpu.pci_vendor}:{gpu.pci_device}",
            memory_mib=gpu.memory_mib or None,
            virtual_functions=gpu.sriov_enabled_vfs,
            gpu_instances=tuple(GpuInstanceAnswer.of(gpu, instance, info.vm_names) for instance in gpu.instances),
            scheduler=GpuSchedulerAnswer.of(info),
            fabric=None if gpu.fabric is None else GpuFabricAnswer.of(gpu.fabric),
            mixed_sizes=gpu.heterogeneous,
            managed=info.managed,
            state=info.state,
            cut=info.cut,
            types=info.types,
            vms=info.vms,
        )


class MigLayoutBody(
    StrictForm,
    example={"entries": [{"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 2, "3g.40gb": 1}}]},
):
    """One configuration."""

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
