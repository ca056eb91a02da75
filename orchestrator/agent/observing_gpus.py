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
    found = [(gpu, _remembered(observed, gpu) or reading.gpus.get(gpu.address, unseen)) for gpu in pci.gpus(paths)]
    with suppress(Fatal):  # a disk that cannot be written to costs no observation
        ledger.cards.saw(_cards(found))
    strangers = ledger.cards.strangers()
    return tuple(_gpu(observed, gpu, ledger, said, strangers.get(gpu.address)) for gpu, said in found)


def _cards(found: Iterable[tuple[pci.PciGpu, NvmlGpu]]) -> Iterator[GpuCard]:
    for gpu, said in found:
        if said.uuid:
            yield GpuCard(address=gpu.address, uuid=said.uuid, serial=said.serial)


def _remembered(kinds: Mapping[DeviceKind, ObservedKind], gpu: pci.PciGpu) -> NvmlGpu | None:
    return next((said for kind in kinds.values() if (said := kind.remembered(gpu)) is not None), None)


def _gpu(
    kinds: Mapping[DeviceKind, ObservedKind], gpu: pci.PciGpu, ledger: Ledger, said: NvmlGpu, stranger: str | None
) -> GpuSnapshot:
    problems = [*filter(None, [stranger]), *said.problems]
    framework: Framework = "none"
    found = ledger.mig_mode_before(gpu.address)
    parents: tuple[VgpuParent, ...] = ()
    types = said.types
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
        uuid=said.uuid or "",
        serial=said.serial,
        model=said.name or f"NVIDIA {gpu.vendor}:{gpu.device}",
        pci_vendor=gpu.vendor,
        pci_device=gpu.device,
        pci_subsystem_vendor=gpu.subsystem_vendor,
        pci_subsystem_device=gpu.subsystem_device,
        numa_node=gpu.numa_node,
        memory_mib=said.memory_mib,
        driver=gpu.driver,
        framework=framework,
        sriov_total_vfs=gpu.total_vfs,
        sriov_enabled_vfs=gpu.enabled_vfs,
        mig_enabled=said.mig_enabled,
        heterogeneous=said.heterogeneous,
        module_id=said.module_id,
        types=types,
        parents=parents,
        problems=tuple(problems),
        mig_pending=said.mig_pending,
        instances=tuple(_instance(instance, gpu.address, ledger) for instance in said.instances),
        iommu_shared_with=gpu.iommu_shared_with,
        scheduler=said.scheduler,
        signals=said.signals,
        licences=said.licences,
        bridges=gpu.bridges,
        mig_profiles=said.mig_profiles,
        mig_found=None if ledger.is_lost() else said.mig_enabled if found is None else found,
    )


def _instance(found: FoundInstance, gpu: str, ledger: Ledger) -> GpuInstance:
    holders = InstanceHolders(ledger).of(gpu, found.start)
    return GpuInstance(
        id=found.id, profile=found.profile, start=found.start, size=found.size, compute=found.compute,
        owner=next((vm for vm, made_as in holders.items() if made_as == found.profile), None),
        devices=found.devices, capabilities=found.capabilities,
    )  # fmt: skip


def _described_types(kinds: Iterable[ObservedKind], gpu: pci.PciGpu) -> tuple[HostVgpuType, ...]:
    """Without NVML: what sysfs says."""
    found = {vgpu_type.type_id: vgpu_type for kind in kinds for vgpu_type in kind.types(gpu)}
    return tuple(found[type_id] for type_id in sorted(found))
