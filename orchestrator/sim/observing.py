# SPDX-License-Identifier: Apache-2.0
"""What an agent reports of its host. Everything that many hosts have alike is one object in memory."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from orchestrator.core.gpu.device import VgpuParent
from orchestrator.core.gpu.fabric import GpuFabric
from orchestrator.core.gpu.licence import VgpuLicence
from orchestrator.core.gpu.vgpu_metadata import RunningVgpu
from orchestrator.core.hosts.cpus import NumaNode
from orchestrator.core.hosts.snapshot import (
    DomainSnapshot,
    FileSnapshot,
    GpuInstance,
    GpuSnapshot,
    HostCpu,
    HostSnapshot,
    HostVgpuType,
)
from orchestrator.core.protocol import PROTOCOL_VERSION
from orchestrator.sim import nics
from orchestrator.sim.gpu_settings import observed_settings
from orchestrator.sim.kernel import VFIO, SimulatedGpu
from orchestrator.sim.machine import Domain, SimulatedMachine
from orchestrator.sim.pool_actions import disks_in_pools
from orchestrator.sim.vgpu_actions import framework_of, holders, observed_parent, open_vgpus
from orchestrator.sim.vgpu_metadata import metadata
from orchestrator.sim.whole_gpus import fabric_snapshot


def snapshot_of(machine: SimulatedMachine) -> HostSnapshot:
    """A fresh observation of the whole host."""
    return HostSnapshot(
        machine_id=machine.machine_id,
        boot_id=machine.boot_id,
        hostname=f"host-{machine.index}",
        agent_version="1",
        protocol=PROTOCOL_VERSION,
        kernel="6.12.0",
        os_name="Debian 13",
        libvirt_version="11.3.0",
        qemu_version="10.0.0",
        driver_version=machine.driver_version or None,
        vcpus=machine.vcpus,
        memory_mib=machine.memory_mib,
        storage_free_bytes=0 if machine.disk_full else _free_bytes(machine),
        storage_total_bytes=machine.storage_bytes,
        iommu=True,
        gpus=tuple(_gpu(machine, gpu) for gpu in machine.kernel.gpus),
        domains=tuple(_domain(machine, uuid, machine.domains[uuid]) for uuid in sorted(machine.domains)),
        volumes=(*_files(machine, "volume", machine.volumes), *disks_in_pools(machine)),
        seeds=_files(machine, "seed", machine.seeds),
        data=_files(machine, "data", machine.data),
        images=tuple(FileSnapshot(name=name, size_bytes=0, owner=None) for name in sorted(machine.images)),
        networks=tuple(sorted(machine.networks)),
        bridges=machine.bridges,
        epoch=machine.ledger.epoch,
        ledger_lost=machine.ledger.lost,
        confinement="apparmor",
        fabric=fabric_snapshot(machine),
        nodes=tuple(_node(machine, node) for node in machine.nodes),
        features=machine.features,
        nics=nics.observe(machine),
        pools=tuple(pool.snapshot for _, pool in sorted(machine.pools.items())),
        cpu=_CPU,
    )


_CPU: Final = HostCpu(model="AMD EPYC 9454", features="0123456789abcdef", page_kib=4)


def _node(machine: SimulatedMachine, node: NumaNode) -> NumaNode:
    if not node.hugepages:
        return node
    running = [domain for domain in machine.domains.values() if domain.running]
    pages = []
    for page_size in node.hugepages:
        taken = sum(domain.pages.get(f"{page_size.size_kib}:{node.id}", 0) for domain in running)
        pages.append(replace(page_size, free=page_size.total - taken * 1024 // page_size.size_kib))
    return replace(node, hugepages=tuple(pages))


def _free_bytes(machine: SimulatedMachine) -> int:
    return machine.storage_bytes - sum(machine.volumes.values()) - sum(machine.data.values())


def domain_of(machine: SimulatedMachine, uuid: str) -> DomainSnapshot | None:
    """A fresh observation of one domain; None: it is not defined."""
    domain = machine.domains.get(uuid)
    return None if domain is None else replace(_domain(machine, uuid, domain), made_as=machine.described.get(uuid))


def _files(machine: SimulatedMachine, kind: str, files: dict[str, int]) -> tuple[FileSnapshot, ...]:
    return tuple(
        FileSnapshot(name=name, size_bytes=files[name], owner=machine.owner(f"{kind}:{name}")) for name in sorted(files)
    )


def booted(machine: SimulatedMachine, domain: Domain) -> bool:
    """Whether it runs for long enough."""
    return domain.running and machine.now >= domain.started_at + machine.guest_boots_s


def _domain(machine: SimulatedMachine, uuid: str, domain: Domain) -> DomainSnapshot:
    return DomainSnapshot(
        uuid=uuid,
        name=domain.name,
        state="running" if domain.running else "paused" if domain.paused else "shut_off",
        owner=machine.owner(f"domain:{uuid}"),
        devices=domain.devices,
        addresses=(domain.address,) if booted(machine, domain) else (),
        vcpus=domain.vcpus,
        memory_mib=domain.memory_mib,
        disk_bytes=domain.disk_bytes,
        affinity=domain.affinity,
        memory_words=domain.memory_words,
        free_ports=domain.free_ports if domain.running else None,
    )


_JOINED: Final = GpuFabric(state="completed", cluster=None, clique=0)
"""As an HGX H100 says (nvidia-smi -q): a single baseboard has no cluster."""


def _gpu(machine: SimulatedMachine, gpu: SimulatedGpu) -> GpuSnapshot:
    kind, ledger = gpu.kind, machine.ledger
    creatable = _names(machine.kernel.creatable(gpu))
    return GpuSnapshot(
        address=gpu.address,
        uuid=machine.uuid_of(gpu),
        serial=None,
        model=kind.model,
        pci_vendor="10de",
        pci_device=kind.pci_device,
        pci_subsystem_vendor="10de",
        pci_subsystem_device=kind.pci_subsystem,
        numa_node=machine.node_of(gpu.address),
        memory_mib=kind.memory_mib,
        driver=gpu.driver,
        framework=framework_of(gpu),
        sriov_total_vfs=kind.total_vfs,
        sriov_enabled_vfs=gpu.functions,
        mig_enabled=gpu.mig if kind.profiles else None,
        mig_found=ledger.mig_before.get(gpu.address, gpu.mig) if kind.profiles and not ledger.lost else None,
        module_id=gpu.module_id or None,
        types=kind.types,
        ecc=True,
        fabric=_JOINED if gpu.module_id and gpu.driver == "nvidia" else None,
        moves_vgpus=bool(kind.types) or None,
        bridges=(gpu.root_port,),
        parents=(
            (_passed(machine, gpu),)
            if gpu.driver == VFIO
            else tuple(observed_parent(machine, gpu, address, creatable) for address in gpu.parents())
        ),
        mig_pending=gpu.mig if kind.profiles else None,
        mig_profiles=tuple(row.name for row in kind.profiles),
        problems=() if machine.is_ours(gpu) else ("another card is there than was accepted",),
        instances=tuple(_instance(machine, gpu, number) for number in sorted(gpu.instances)),
        signals=machine.signals if gpu is machine.kernel.gpus[0] else (),
        **observed_settings(machine, gpu),
        licences=_licences(machine, gpu),
        metadata=_metadata(machine, gpu) if kind.types and gpu.driver != VFIO else None,
        open_vgpus=()
        if gpu.driver == VFIO
        else tuple(RunningVgpu(vm=vgpu.vm, metadata=_metadata(machine, gpu)) for vgpu in open_vgpus(machine, gpu)),
    )


def _metadata(machine: SimulatedMachine, gpu: SimulatedGpu) -> str:
    return metadata(machine.driver_version, f"{gpu.kind.pci_device} {gpu.kind.pci_subsystem}")


def _licences(machine: SimulatedMachine, gpu: SimulatedGpu) -> tuple[VgpuLicence, ...]:
    """Guests have all that roles put there (sim/guests.py), and so a licence as soon as they have booted."""
    return tuple(
        VgpuLicence(vm=uuid, state="licensed" if booted(machine, domain) else "unlicensed")
        for uuid, domain in machine.domains.items()
        if domain.running and gpu.driver == "nvidia"
        for name in domain.devices
        if gpu.has(machine.kernel.function_of(name))
    )


def _instance(machine: SimulatedMachine, gpu: SimulatedGpu, number: int) -> GpuInstance:
    profile, start = gpu.instances[number]
    size = next(row.size for row in gpu.kind.profiles if row.name == profile)
    owner = next(iter(holders(machine, gpu.address, start)), None)
    return GpuInstance(id=number, profile=profile, start=start, size=size, compute=(0,), owner=owner)


def _passed(machine: SimulatedMachine, gpu: SimulatedGpu) -> VgpuParent:
    model, _ = machine.ledger.passed.get(gpu.address, ("unknown", 0))
    owner, in_use = machine.owner(f"gpu:{gpu.address}"), gpu.address in machine.kernel.opened
    return VgpuParent.of_whole_gpu(gpu.address, model, owner, in_use)


@lru_cache(maxsize=1024)
def _names(types: tuple[HostVgpuType, ...]) -> tuple[str, ...]:
    return tuple(vgpu_type.name for vgpu_type in types)
