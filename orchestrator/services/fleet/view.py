# SPDX-License-Identifier: Apache-2.0
"""A host as placement sees it: what was last observed there, minus what is claimed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.gpu_tables import GpuTables, tables_of
from orchestrator.core.advice.alike import KnownRooms
from orchestrator.core.advice.gpu_map import EVERY_GPU, GpuFilter, gpu_map
from orchestrator.core.advice.overview import FleetUse, HostUse
from orchestrator.core.attachments import observed_on
from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.geometry.board import WHOLE
from orchestrator.core.geometry.build import MIG, MIXED
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.gpu.device import Device, InstancePlace
from orchestrator.core.gpu.health import fabric_fault, faults_of
from orchestrator.core.gpu.health_states import not_waived, reason_closed
from orchestrator.core.hosts.cpus import cpus_text
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.core.placement import rules
from orchestrator.core.placement.rules import disk
from orchestrator.core.placement.views import GpuView, HostView, Occupied
from orchestrator.core.units import GIB
from orchestrator.core.vms.claim import Claim, HostCapacity
from orchestrator.core.vms.vm import Vm
from orchestrator.services.fleet.numa import cpu_facts, free_by_node, vms_coming
from orchestrator.store.records import HostRecord

FOREIGN = "foreign"
"""Stands for the VM of a vGPU that we did not make."""
SANITISING: Final = "it is sanitising: its host has not shown yet that what a VM left on it is gone"


@dataclass(frozen=True, kw_only=True)
class Viewed:
    """One host: what is on record, what was observed, what placement sees."""

    seen: HostRecord
    facts: HostFacts
    view: HostView
    rooms: KnownRooms

    @cached_property
    def kind(self) -> int:
        """The same for hosts that no request can tell apart; worked out when first asked for."""
        return self.rooms.number_of(self.view)

    @cached_property
    def use(self) -> FleetUse:
        """How much of its GPUs is used; worked out when first asked for."""
        return FleetUse.of(gpu_map((self.view,)))

    @cached_property
    def host_use(self) -> HostUse:
        """Of all of its GPUs; worked out when first asked for."""
        return self.host_use_of(EVERY_GPU)

    def host_use_of(self, only: GpuFilter) -> HostUse:
        """Of its GPUs of the models that it picks."""
        return HostUse(self.view.name, self.view.rack, self.seen.host.state, *self.use.of_host(only))


@dataclass(frozen=True, kw_only=True)
class Overcommit:
    """How much of a host may be claimed, against what it has, where the host itself says nothing else."""

    vcpus: float = 4.0
    memory: float = 1.0
    """Of what ``memory_reserve_mib`` leaves."""
    memory_reserve_mib: int = 512
    """Kept for the host itself."""
    disk: float = 1.0
    pinnable: tuple[int, ...] = ()
    """CPUs of a host that no VM shares."""

    def of(self, host: Host) -> Overcommit:
        """With what holds for that host."""
        return replace(
            self,
            vcpus=self.vcpus if host.vcpu_overcommit is None else host.vcpu_overcommit,
            memory=self.memory if host.memory_overcommit is None else host.memory_overcommit,
            pinnable=host.pinnable_cpus,
        )


def capacity_of(facts: HostFacts, overcommit: Overcommit) -> HostCapacity:
    """The most that claims on the host may add up to. ``overcommit``: what holds for this host."""
    huge = sum(pages.mib for node in facts.nodes for pages in node.hugepages)
    return HostCapacity(
        vcpus=int(max(0, facts.vcpus - len(overcommit.pinnable)) * overcommit.vcpus),
        memory_mib=int(max(0, facts.memory_mib - huge - overcommit.memory_reserve_mib) * overcommit.memory),
        disk_bytes=int(facts.disk_bytes * overcommit.disk),
        pinnable=cpus_text(overcommit.pinnable),
    )


def free_on_host(seen: HostRecord, facts: HostFacts, overcommit: Overcommit) -> HostView:
    """What is free on the host beside its GPUs, which are left out."""
    host, claims = seen.host, seen.claims
    of_host, coming = overcommit.of(host), vms_coming(seen)
    capacity = capacity_of(facts, of_host)
    unclaimed = (*coming, *(vm for vm in seen.vms if vm.deallocated is not None))
    disks = sum(vm.spec.host_disk_bytes + vm.snapshot_bytes for vm in unclaimed)
    free_disk = capacity.disk_bytes - sum(claim.disk_bytes for claim in claims) - disks - seen.volume_bytes
    closed = _closed(host, facts)
    free_vcpus = capacity.vcpus - sum(claim.vcpus for claim in claims) - sum(vm.floating_vcpus for vm in coming)
    free_memory = capacity.memory_mib - sum(claim.memory_mib for claim in claims)
    return HostView(
        host_id=host.name,
        name=host.name,
        vcpus=facts.vcpus - len(host.pinnable_cpus),
        free_vcpus=max(0, free_vcpus),
        free_memory_mib=max(0, free_memory - sum(vm.ordinary_mib for vm in coming)),
        free=(*disk.amounts_of(max(0, free_disk) // GIB), *free_by_node(seen, facts, of_host.memory_reserve_mib)),
        gpus=(),
        cordoned=host.cordoned or closed is not None,
        reason=closed[1] if closed else None,
        reason_code=closed[0] if closed else "host.not_ready",
        vms=frozenset(vm.id for vm in seen.vms),
        facts=cpu_facts(host, facts),
        rack=dict(host.labels).get("rack"),
    )


def _closed(host: Host, facts: HostFacts) -> tuple[str, str] | None:
    """Why nothing new is put there, beside an operator's cordon: code and message."""
    if host.state != "ready":
        return "host.not_ready", f"the host is {host.state}"
    if facts.agent_too_old:
        return "host.not_ready", "its agent is too old and is upgraded by itself"
    if facts.unconfined and not host.allow_unconfined:
        return "host.unconfined", "neither AppArmor nor SELinux keeps the host's VMs to their own files"
    return None


def gpu_view(
    host: Host,
    gpu: GpuSnapshot,
    tables: GpuTables,
    claims: Iterable[Claim],
    vms: dict[str, Vm],
    kept: Mapping[str, str] | None = None,
) -> GpuView:
    """One GPU with its claims and the vGPUs that others have made on it. ``tables``: how it can be cut. ``kept``: why
    GPUs, by address, take nothing new though they are well."""
    claims = tuple(claims)
    closed = _closed_and_free(host, gpu, claims)
    occupied = [item for claim in claims for item in _occupied(claim, vms[claim.vm], gpu.address)]
    if closed and not occupied:
        tables = tables_of(replace(gpu, sriov_enabled_vfs=gpu.sriov_enabled_vfs - closed))
    cut = next((item.cut for claim in claims for item in claim.devices if item.gpu == gpu.address), None)
    lost = cut not in {None, WHOLE} and tables.now.cut(str(cut)) is None
    geometry = tables.ever if lost else tables.now
    foreign = _foreign(geometry, gpu, vms)
    cuts = {cut for cut, _ in foreign} | ({cut} if cut else set())
    reason = set_aside(host, gpu)
    if reason is None and any(item.gpu == gpu.address for item in host.mig_layouts):
        reason = f"it is kept for a MIG layout ('vgpuctl mig release {host.name}' gives it back)"
    reason = reason or (kept or {}).get(gpu.address)
    if reason is None and (None in cuts or len(cuts) > 1):
        reason = f"vGPUs that we did not make are on it: {', '.join(item.profile for _, item in foreign)}"
    if reason is None and cut == MIXED:
        reason = _lies_elsewhere(gpu, occupied, vms)
    if reason is None and (lost or (gpu.mig_enabled and cut not in {None, MIG})):
        reason = "it is in MIG mode" if gpu.mig_enabled else "its driver offers no vGPUs"
    if reason is None and foreign:
        cut = next(iter(cuts))
        occupied += _placed(geometry, str(cut), occupied, [item for _, item in foreign])
    if reason is None and closed and claims:
        occupied += _kept_free(geometry, str(cut), occupied, gpu.sriov_enabled_vfs - closed)
    return GpuView(
        gpu_id=gpu.address,
        geometry=geometry,
        cut=cut,
        occupied=tuple(occupied),
        numa=gpu.numa_node,
        module_id=gpu.module_id,
        usable=reason is None,
        reason_unusable=reason,
        reason_not_whole=_not_whole(gpu),
        reason_alone=kept_alone(host, gpu),
        facts=rules.facts_of_gpu(gpu, host.health_of(gpu.address)),
    )


def _closed_and_free(host: Host, gpu: GpuSnapshot, claims: Iterable[Claim]) -> int:
    """How many of its virtual functions no new vGPU is put on, and none has."""
    health = host.health_of(gpu.address)
    if health is None or not health.functions or not gpu.sriov_enabled_vfs:
        return 0
    claimed = {item.function for claim in claims for item in claim.devices}
    return min(gpu.sriov_enabled_vfs, len(health.closed_functions.keys() - claimed))


def _kept_free(geometry: Geometry, cut: str, occupied: list[Occupied], functions: int) -> list[Occupied]:
    """Slots for which a virtual function is missing, where so many are left: an empty GPU has that many fewer."""
    shapes = geometry.cut(cut)
    if shapes is None or shapes.kind != "time_sliced" or shapes.slots <= functions:
        return []
    lacking = [Occupied(vm_id=FOREIGN, profile="out of service", start=-1, size=1)] * (shapes.slots - functions)
    return _placed(geometry, cut, occupied, lacking)


def _not_whole(gpu: GpuSnapshot) -> str | None:
    """Why parts of it may be given out and all of it may not."""
    if gpu.iommu_shared_with is None:
        return "its host's IOMMU is off"
    if gpu.iommu_shared_with:
        return f"its IOMMU group has {', '.join(gpu.iommu_shared_with)} in it as well"
    return "it is in MIG mode" if gpu.mig_enabled else None


def _occupied(claim: Claim, vm: Vm, gpu: str) -> Iterator[Occupied]:
    for claimed, device in zip(claim.devices, vm.devices, strict=True):
        if claimed.gpu == gpu:
            yield Occupied(
                vm_id=claim.vm,
                profile=f"gpu:{len(claim.devices)}" if device.is_whole_gpu else device.type_name,
                start=claimed.slots[0],
                size=len(claimed.slots),
                tenant=vm.spec.tenant,
                since_s=vm.created_at,
                vcpus=claim.vcpus,
                memory_mib=claim.memory_mib,
                spent=disk.amounts_of(disk.gib_of(claim.disk_bytes)),
                needs=rules.needs_of_device(device),
            )


def set_aside(host: Host, gpu: GpuSnapshot) -> str | None:
    """Why nothing may be put on the GPU in any mode; None: it is ours and well."""
    if gpu.address not in host.managed_gpus:
        return "not given to vgpuctl at 'host add'"
    why = (next(iter(gpu.problems), None), reason_closed(host.health_of(gpu.address)))
    return "; ".join(filter(None, why)) or None


def kept_alone(host: Host, gpu: GpuSnapshot) -> str | None:
    """Why no VM may have it together with other GPUs; None: one may."""
    faults = faults_of(gpu.signals, shipped().signal_meanings) if gpu.signals else ()
    fault = fabric_fault(not_waived(faults, host.health_of(gpu.address)))
    return None if fault is None else f"its links to other GPUs are faulty: {fault.signal.words}"


def _foreign(geometry: Geometry, gpu: GpuSnapshot, vms: dict[str, Vm]) -> list[tuple[str | None, Occupied]]:
    """(cut, what is there) of every vGPU and GPU instance on it that no VM of ours has; -1: its place is not known."""
    ours = {device.name for vm in vms.values() for device in vm.devices}
    devices = [
        observed.device
        for observed in observed_on(gpu)
        if observed.owner not in vms
        and (observed.owner is None or observed.device.name not in ours)  # of a VM that moves: its place has another id
    ]
    places = dict.fromkeys(place for place in (device.instance for device in devices) if place is not None)
    foreign: list[tuple[str | None, Occupied]] = [(MIG, _foreign_instance(geometry, gpu, place)) for place in places]
    return foreign + [_foreign_vgpu(geometry, gpu, device) for device in devices if device.instance is None]


def _foreign_instance(geometry: Geometry, gpu: GpuSnapshot, place: InstancePlace) -> Occupied:
    """All of it, whatever part of it somebody has."""
    cut, shape = geometry.cut(MIG), geometry.shape_in(place.profile, MIG)
    size = next((instance.size for instance in gpu.instances if instance.start == place.start), 1)
    start = place.start
    if cut is not None and shape is not None:
        (start,), size = cut.starts_in(shape, start), cut.size(shape)
    return Occupied(vm_id=FOREIGN, profile=place.profile, start=start, size=size)


def _foreign_vgpu(geometry: Geometry, gpu: GpuSnapshot, device: Device) -> tuple[str | None, Occupied]:
    name = device.type_name
    mixed, shape = geometry.cut(MIXED), geometry.shape_in(name, MIXED)
    if device.placement_id is not None and mixed is not None and shape is not None:
        return MIXED, Occupied(vm_id=FOREIGN, profile=name, start=device.placement_id, size=mixed.size(shape))
    cut = next((cut for cut, _ in geometry.options.get(name, ())), None)
    return None if gpu.mig_enabled else cut, Occupied(vm_id=FOREIGN, profile=name, start=-1, size=1)


def _lies_elsewhere(gpu: GpuSnapshot, occupied: list[Occupied], vms: dict[str, Vm]) -> str | None:
    """Where the driver says that a vGPU of ours lies elsewhere than its claim: what is free is not known then."""
    placements = {item.device.name: item.device.placement_id for item in observed_on(gpu) if item.owner in vms}
    for number, item in enumerate(occupied):
        for device in vms[item.vm_id].devices:
            now = placements.get(device.name)
            if device.gpu == gpu.address and device.placement_id == item.start and now not in {None, item.start}:
                occupied[number] = replace(item, start=int(now or 0))
                return f"the vGPU of VM {vms[item.vm_id].full_name} lies at placement {now} and not at {item.start}"
    return None


def _placed(geometry: Geometry, cut: str, occupied: list[Occupied], foreign: list[Occupied]) -> list[Occupied]:
    """Which place a foreign vGPU has in an equal-size cut does not matter, only that it has one. What lies where a
    stopped VM of ours claims slots takes the others of its slots."""
    taken = {slot for item in occupied for slot in range(item.start, item.start + item.size)}
    shapes = geometry.cut(cut)
    free = iter([slot for slot in range(shapes.slots if shapes is not None else 0) if slot not in taken])
    placed = []
    for item in foreign:
        slots = range(item.start, item.start + item.size)
        if item.start < 0:
            placed += [replace(item, start=slot) for slot in islice(free, 1)]
        elif taken.isdisjoint(slots):
            placed.append(item)
        else:
            left = (slot for slot in slots if slot not in taken)
            name = "another vGPU" if cut == MIXED else "another GPU instance"
            placed += [replace(item, profile=name, start=slot, size=1) for slot in left]
    return placed
