# SPDX-License-Identifier: Apache-2.0
"""What placement needs of a snapshot: small enough to be kept for every host and read all at once."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from orchestrator.core.attachments import observed_on
from orchestrator.core.gpu.fabric import FabricSnapshot
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.hosts.cpus import NumaNode
from orchestrator.core.hosts.features import FEATURES, HostFeature
from orchestrator.core.hosts.nic import HostNic
from orchestrator.core.hosts.pool import on_hosts, pool_of
from orchestrator.core.hosts.snapshot import NOT_TOLD, GpuSnapshot, HostCpu, HostSnapshot
from orchestrator.core.units import GIB

DISK_STEP: int = GIB
"""Free bytes change at every look; by less than this they say nothing new."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """Equal for two looks between which nothing happened that placement could see."""

    vcpus: int
    memory_mib: int
    disk_bytes: int
    """What is free and what our own volumes take."""
    gpus: tuple[GpuSnapshot, ...]
    """Without ids, and with those functions only that something is made on."""
    agent_too_old: bool = False
    unconfined: bool = False
    """Its agent said so; one that does not tell is not judged by it."""
    bridges: tuple[Bridge, ...] = ()
    fabric: FabricSnapshot | None = None
    nodes: tuple[NumaNode, ...] = ()
    """With all their huge pages: how many are free says nothing of what VMs that are stopped will take."""
    features: tuple[HostFeature, ...] = ()
    """What its software can give VMs; an agent that does not tell writes no definition with any."""
    nics: tuple[HostNic, ...] = ()
    """Without owners: claims say which functions are taken."""
    kernel: str = ""
    """This and the next three are empty where they are not known."""
    libvirt: str = ""
    qemu: str = ""
    driver: str = ""
    cpu: HostCpu | None = None
    """None from an agent that does not tell."""
    pools: tuple[str, ...] = ()
    """Those that it reaches, as hosts call them."""


def facts_of(snapshot: HostSnapshot) -> HostFacts:
    """The facts that a look found."""
    return HostFacts(
        vcpus=snapshot.vcpus,
        memory_mib=snapshot.memory_mib,
        disk_bytes=disk_of(snapshot),
        gpus=tuple(_gpu_facts(gpu) for gpu in snapshot.gpus),
        agent_too_old=snapshot.agent_too_old,
        unconfined=snapshot.confinement == "none",
        bridges=snapshot.bridges,
        fabric=snapshot.fabric,
        nodes=tuple(_node_facts(node) for node in snapshot.nodes),
        features=tuple(feature for feature in FEATURES if feature in (snapshot.features or ())),
        nics=tuple(_nic_facts(nic) for nic in snapshot.nics),
        kernel=snapshot.kernel,
        libvirt=_known(snapshot.libvirt_version),
        qemu=_known(snapshot.qemu_version),
        driver=snapshot.driver_version or "",
        cpu=snapshot.cpu,
        pools=pools_of(snapshot),
    )


def pools_of(snapshot: HostSnapshot) -> tuple[str, ...]:
    """Those that the host reaches, as hosts call them."""
    usable = (pool for pool in snapshot.pools if pool.problem is None)
    return tuple(sorted(on_hosts(pool.name, pool.pool_id) for pool in usable if pool.pool_id is not None))


def _known(version: str) -> str:
    return "" if version == NOT_TOLD else version


def disk_of(snapshot: HostSnapshot) -> int:
    """Bytes that VMs may take together: what is free and what our own volumes take now, pools left out."""
    ours = (
        file.size_bytes
        for file in (*snapshot.volumes, *snapshot.data)
        if file.owner is not None and pool_of(file.name) is None
    )
    return snapshot.storage_free_bytes + sum(ours)


def _node_facts(node: NumaNode) -> NumaNode:
    return replace(node, hugepages=tuple(replace(pages, free=0) for pages in node.hugepages))


def _nic_facts(nic: HostNic) -> HostNic:
    return replace(nic, functions=tuple(replace(function, owner=None) for function in nic.functions))


def _gpu_facts(gpu: GpuSnapshot) -> GpuSnapshot:
    made_on = {item.device.parent for item in observed_on(gpu)}
    parents = tuple(replace(parent, creatable=(), in_use=None) for parent in gpu.parents if parent.address in made_on)
    instances = tuple(replace(item, devices=(), capabilities=()) for item in gpu.instances)
    metadata = gpu.metadata and sys.intern(gpu.metadata)  # of equal GPUs often the same
    return replace(
        gpu, uuid="", serial=None, parents=parents, instances=instances, licences=(), open_vgpus=(), metadata=metadata
    )


def things_of(snapshot: HostSnapshot, vm_id: str) -> tuple[str, ...]:
    """Everything on the host that belongs to the VM, for people. What could not be asked is told as well: it may be
    there."""
    files = [
        *(f"volume {file.name}" for file in snapshot.volumes if file.owner == vm_id),
        *(f"seed {file.name}" for file in snapshot.seeds if file.owner == vm_id),
    ]
    domains = [f"domain {domain.name}" for domain in snapshot.domains if vm_id in {domain.uuid, domain.owner}]
    devices = (item for gpu in snapshot.gpus for item in observed_on(gpu))
    vgpus = [f"vGPU {item.device.name}" for item in devices if item.owner == vm_id]
    fabric = () if snapshot.fabric is None else snapshot.fabric.partitions
    joined = [f"fabric partition {item.id}" for item in fabric if item.owner == vm_id]
    nics = [
        f"network function {item.address}" for nic in snapshot.nics for item in nic.functions if item.owner == vm_id
    ]
    unread = ["what libvirt has: it did not answer"] if snapshot.libvirt_version == NOT_TOLD else []
    return (*unread, *domains, *vgpus, *nics, *joined, *files)
