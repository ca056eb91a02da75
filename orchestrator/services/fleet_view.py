# SPDX-License-Identifier: Apache-2.0
"""A host as placement sees it: what was last observed there, minus what is claimed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from orchestrator.core.attachments import observed_on
from orchestrator.core.claim import Claim, HostCapacity
from orchestrator.core.geometry.build import TypeRow, build_geometry
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.host import Host
from orchestrator.core.host_facts import HostFacts
from orchestrator.core.placement.views import GpuView, HostView, Occupied
from orchestrator.core.snapshot import GpuSnapshot
from orchestrator.core.units import GIB
from orchestrator.core.vm import Vm
from orchestrator.ports.store.fleet import HostRecord

FOREIGN = "foreign"
"""Stands for the VM of a vGPU that we did not make."""


@dataclass(frozen=True, kw_only=True)
class Overcommit:
    """How much of a host may be claimed, against what it has."""

    vcpus: float = 16.0
    memory_reserve_mib: int = 512
    """Kept for the host itself; memory is never promised twice."""
    disk: float = 1.0


def capacity_of(facts: HostFacts, overcommit: Overcommit) -> HostCapacity:
    """The most that claims on the host may add up to."""
    return HostCapacity(
        vcpus=int(facts.vcpus * overcommit.vcpus),
        memory_mib=max(0, facts.memory_mib - overcommit.memory_reserve_mib),
        disk_bytes=int(facts.disk_bytes * overcommit.disk),
    )


def free_on_host(seen: HostRecord, facts: HostFacts, overcommit: Overcommit) -> HostView:
    """What is free on the host beside its GPUs, which are left out."""
    host, claims = seen.host, seen.claims
    capacity, coming = capacity_of(facts, overcommit), vms_coming(seen)
    disks = sum(vm.spec.disk_bytes for vm in (*coming, *(vm for vm in seen.vms if vm.deallocated is not None)))
    free_disk = capacity.disk_bytes - sum(claim.disk_bytes for claim in claims) - disks
    free_vcpus = capacity.vcpus - sum(claim.vcpus for claim in claims) - sum(vm.spec.vcpus for vm in coming)
    free_memory = capacity.memory_mib - sum(claim.memory_mib for claim in claims)
    return HostView(
        host_id=host.name,
        name=host.name,
        free_vcpus=max(0, free_vcpus),
        free_memory_mib=max(0, free_memory - sum(vm.spec.memory_mib for vm in coming)),
        free_disk_gib=max(0, free_disk) // GIB,
        gpus=(),
        cordoned=host.cordoned or host.state != "ready",
        reason=None if host.state == "ready" else f"the host is {host.state}",
        vms=frozenset(vm.id for vm in seen.vms),
    )


def vms_coming(seen: HostRecord) -> tuple[Vm, ...]:
    """VMs that wait until others have given their places back. Until then nobody else may have those."""
    placed = {claim.vm for claim in seen.claims}
    return tuple(vm for vm in seen.vms if vm.state == "creating" and vm.id not in placed)


def geometry_of(gpu: GpuSnapshot) -> Geometry:
    """How it can be cut, from what its driver says. Time-sliced types only, all of one size."""
    rows = tuple(
        TypeRow(name=one.name, framebuffer_mib=one.framebuffer_mib, max_per_gpu=one.max_instances) for one in gpu.types
    )
    return _geometry(gpu.model, gpu.memory_mib, rows, time_sliced=gpu.mig_enabled is not True)


@lru_cache(maxsize=256)
def _geometry(model: str, memory_mib: int, rows: tuple[TypeRow, ...], *, time_sliced: bool) -> Geometry:
    """A fleet has few kinds of GPUs, and each plan looks at all GPUs."""
    kinds = frozenset({"time_sliced"}) if time_sliced else frozenset[str]()
    return build_geometry(model, memory_mib, types=rows, kinds=kinds)


def gpu_view(
    host: Host,
    gpu: GpuSnapshot,
    claims: Iterable[Claim],
    vms: dict[str, Vm],
    cleared: frozenset[str] = frozenset(),
) -> GpuView:
    """One GPU with its claims and the vGPUs that others have made on it."""
    geometry = geometry_of(gpu)
    occupied = [one for claim in claims for one in _occupied(claim, vms[claim.vm], gpu.address)]
    cut = next((one.cut for claim in claims for one in claim.devices if one.gpu == gpu.address), None)
    foreign = _foreign_types(geometry, gpu, vms)
    cuts = {cut for cut, _ in foreign} | ({cut} if cut else set())
    strange = [name for found, name in foreign if found is None]
    reason = _unusable(host, gpu)
    if reason is None and gpu.address in cleared:
        reason = "it is being cleared for a VM of higher priority"
    if reason is None and (strange or len(cuts) > 1):
        reason = f"vGPUs that we did not make are on it: {', '.join(name for _, name in foreign)}"
    if reason is None and foreign:
        cut = next(iter(cuts))
        occupied += _foreign_places(geometry, str(cut), occupied, [name for _, name in foreign])
    return GpuView(
        gpu_id=gpu.address,
        geometry=geometry,
        cut=cut,
        occupied=tuple(occupied),
        numa=gpu.numa_node,
        module_id=gpu.module_id,
        usable=reason is None,
        reason_unusable=reason,
    )


def _occupied(claim: Claim, vm: Vm, gpu: str) -> Iterator[Occupied]:
    for claimed, device in zip(claim.devices, vm.devices, strict=True):
        if claimed.gpu == gpu:
            yield Occupied(
                vm_id=claim.vm,
                profile=device.type_name,
                start=claimed.slots[0],
                size=len(claimed.slots),
                tenant=vm.spec.tenant,
                since_s=vm.created_at,
                vcpus=claim.vcpus,
                memory_mib=claim.memory_mib,
                disk_gib=-(-claim.disk_bytes // GIB),
            )


def _unusable(host: Host, gpu: GpuSnapshot) -> str | None:
    aside = set_aside(frozenset(host.managed_gpus), gpu)
    if aside is not None:
        return aside
    if gpu.mig_enabled:
        return "it is in MIG mode"
    if gpu.framework == "none":
        return "its driver offers no vGPUs"
    return None


def set_aside(managed: frozenset[str], gpu: GpuSnapshot) -> str | None:
    """Why nothing may be put on the GPU in any mode; None: it is ours and well."""
    if gpu.address not in managed:
        return "not given to vgpuctl at 'host add'"
    return gpu.problems[0] if gpu.problems else None


def _foreign_types(geometry: Geometry, gpu: GpuSnapshot, vms: dict[str, Vm]) -> list[tuple[str | None, str]]:
    """(cut, type) of every vGPU on it that no VM of ours has."""
    names = [one.device.type_name for one in observed_on(gpu) if one.owner not in vms]
    return [(next((cut for cut, _ in geometry.options.get(name, ())), None), name) for name in names]


def _foreign_places(geometry: Geometry, cut: str, occupied: list[Occupied], names: list[str]) -> list[Occupied]:
    """Which place a foreign vGPU has in an equal-size cut does not matter, only that it has one."""
    taken = {one.start for one in occupied}
    shapes = geometry.cut(cut)
    total = shapes.slots if shapes is not None else 0
    free = (slot for slot in range(total) if slot not in taken)
    return [Occupied(vm_id=FOREIGN, profile=name, start=slot, size=1) for name, slot in zip(names, free, strict=False)]
