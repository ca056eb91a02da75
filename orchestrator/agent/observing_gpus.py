# SPDX-License-Identifier: Apache-2.0
"""GPUs as the snapshot shows them: the PCI bus says which there are, NVML what they are, sysfs what is on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import cast

from orchestrator.agent.attachments.kind import Kinds, Observation, ObservedKind
from orchestrator.agent.attachments.mig_backed import InstanceHolders
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.gpu_instances import FoundInstance
from orchestrator.agent.nvml.reading import NvmlGpu, NvmlReading, type_names
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import pci
from orchestrator.core.actions.gpu_cards import GpuCard
from orchestrator.core.errors import Fatal
from orchestrator.core.gpu.device import DeviceKind
from orchestrator.core.hosts.snapshot import Framework, GpuInstance, GpuSnapshot, HostVgpuType, VgpuParent

_UNSEEN = NvmlGpu(
    uuid=None, serial=None, name=None, memory_mib=None, mig_enabled=None, mig_pending=None, instances=(),
    heterogeneous=None, module_id=None, types=(), problems=("NVML does not list this GPU",),
)  # fmt: skip


def observe_gpus(paths: Paths, ledger: Ledger, kinds: Kinds, reading: NvmlReading) -> tuple[GpuSnapshot, ...]:
    """All NVIDIA GPUs of the host, by PCI address."""
    shared = Observation(paths, type_names(reading))
    observed = {name: kind.observe(shared) for name, kind in kinds.items()}
    unseen = replace(_UNSEEN, problems=(*_UNSEEN.problems, *reading.unplaced))
    readings = [(gpu, _remembered(observed, gpu) or reading.gpus.get(gpu.address, unseen)) for gpu in pci.gpus(paths)]
    with suppress(Fatal):  # a disk that cannot be written to costs no observation
        ledger.cards.saw(_cards(readings))
    strangers = ledger.cards.strangers()
    return tuple(_gpu(observed, gpu, ledger, observation, strangers.get(gpu.address)) for gpu, observation in readings)


def _cards(readings: Iterable[tuple[pci.PciGpu, NvmlGpu]]) -> Iterator[GpuCard]:
    for gpu, observation in readings:
        if observation.uuid:
            yield GpuCard(address=gpu.address, uuid=observation.uuid, serial=observation.serial)


def _remembered(kinds: Mapping[DeviceKind, ObservedKind], gpu: pci.PciGpu) -> NvmlGpu | None:
    return next((observation for kind in kinds.values() if (observation := kind.remembered(gpu)) is not None), None)


def _gpu(
    kinds: Mapping[DeviceKind, ObservedKind],
    gpu: pci.PciGpu,
    ledger: Ledger,
    observation: NvmlGpu,
    stranger: str | None,
) -> GpuSnapshot:
    problems = [*filter(None, [stranger]), *observation.problems]
    framework: Framework = "none"
    mig_before = ledger.mig_mode_before(gpu.address)
    parents: tuple[VgpuParent, ...] = ()
    types = observation.types
    try:
        offered = next((kind for kind in kinds if kinds[kind].offered_on(gpu)), None)
        if offered is not None:
            framework = cast("Framework", offered)  # the kind that shares another's functions offers none
            parents = kinds[offered].parents(gpu, problems)
        types = types or _described_types(kinds.values(), gpu)
    except (OSError, ValueError) as error:  # a GPU that falls off the bus while it is read costs itself only
        problems.append(f"its functions cannot be read: {error}")
    return GpuSnapshot(
        address=gpu.address,
        uuid=observation.uuid or "",
        serial=observation.serial,
        model=observation.name or f"NVIDIA {gpu.vendor}:{gpu.device}",
        pci_vendor=gpu.vendor,
        pci_device=gpu.device,
        pci_subsystem_vendor=gpu.subsystem_vendor,
        pci_subsystem_device=gpu.subsystem_device,
        numa_node=gpu.numa_node,
        memory_mib=observation.memory_mib,
        driver=gpu.driver,
        framework=framework,
        sriov_total_vfs=gpu.total_vfs,
        sriov_enabled_vfs=gpu.enabled_vfs,
        mig_enabled=observation.mig_enabled,
        heterogeneous=observation.heterogeneous,
        module_id=observation.module_id,
        types=types,
        parents=parents,
        problems=tuple(problems),
        mig_pending=observation.mig_pending,
        instances=tuple(_instance(instance, gpu.address, ledger) for instance in observation.instances),
        iommu_shared_with=gpu.iommu_shared_with,
        scheduler=observation.scheduler,
        signals=observation.signals,
        licences=observation.licences,
        bridges=gpu.bridges,
        mig_profiles=observation.mig_profiles,
        mig_found=None if ledger.is_lost() else observation.mig_enabled if mig_before is None else mig_before,
    )


def _instance(instance: FoundInstance, gpu: str, ledger: Ledger) -> GpuInstance:
    holders = InstanceHolders(ledger).of(gpu, instance.start)
    return GpuInstance(
        id=instance.id, profile=instance.profile, start=instance.start, size=instance.size, compute=instance.compute,
        owner=next((vm for vm, made_as in holders.items() if made_as == instance.profile), None),
        devices=instance.devices, capabilities=instance.capabilities,
    )  # fmt: skip


def _described_types(kinds: Iterable[ObservedKind], gpu: pci.PciGpu) -> tuple[HostVgpuType, ...]:
    """Without NVML: what sysfs says."""
    types = {vgpu_type.type_id: vgpu_type for kind in kinds for vgpu_type in kind.types(gpu)}
    return tuple(types[type_id] for type_id in sorted(types))
