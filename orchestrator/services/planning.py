# SPDX-License-Identifier: Apache-2.0
"""From a request to a drawn VM and its claim. Nothing is stored here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.core.attachments import draw
from orchestrator.core.claim import Claim, DeviceClaim, HostCapacity
from orchestrator.core.device import Device
from orchestrator.core.errors import InvalidInput, NoCapacity, NotFound, Reason
from orchestrator.core.offering import Offering
from orchestrator.core.offering_support import check_supported
from orchestrator.core.placement.place import place_in
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.views import Placement, Refusal, Request
from orchestrator.core.snapshot import GpuSnapshot, HostSnapshot
from orchestrator.core.units import GIB, show_size
from orchestrator.core.vm import Vm, VmSpec
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.store.claims import ClaimLost
from orchestrator.ports.store.transaction import Transaction
from orchestrator.services.deallocating import preemptible_now
from orchestrator.services.fleet_index import FleetIndex, Reservation
from orchestrator.services.fleet_view import capacity_of
from orchestrator.services.gpu_views import Viewed

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class VmPlan:
    """A VM as it would be stored now."""

    vm: Vm
    claim: Claim
    capacity: HostCapacity
    why: str
    victims: tuple[Vm, ...] = ()
    """Who has to give its place back before the claim can be taken."""


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Decides where a VM goes and draws its identifiers."""

    index: FleetIndex
    clock: Clock
    ids: Ids

    def reserve(self, plan: VmPlan) -> None:
        """No other plan of this process gets the place until it is released (services/fleet_index.py). Call it in the
        block of the index that the plan was made in."""
        self.index.reserve(Reservation(vm=plan.vm, claim=None if plan.victims else plan.claim))

    def plan(self, tx: Transaction, spec: VmSpec, stored: Vm | None = None, *, preempt: bool = False) -> VmPlan:
        """``stored``: the VM is there already and has no place; its id stays.
        ``preempt``: when it does not fit, others may have to give their places back.

        :raises InvalidInput: ``profile.unknown``, ``image.unknown``, ``network.unknown``, ``disk.too_small``
        :raises NoCapacity: with reasons
        :raises ClaimLost: the host was changed in this moment; plan again"""
        _check_image(tx, spec)
        _known("network", lambda: tx.networks.get(spec.network))
        if spec.host is not None:
            wanted = spec.host
            _known("host", lambda: tx.hosts.get(wanted))
        vm_id = self.ids.new_uuid() if stored is None else stored.id
        with self.index.current() as fleet:
            return self._planned(tx, fleet, spec, vm_id, stored=stored, preempt=preempt)

    def _planned(
        self, tx: Transaction, fleet: FleetIndex, spec: VmSpec, vm_id: str, *, stored: Vm | None, preempt: bool
    ) -> VmPlan:
        offering = fleet.known.resolve(spec.profile)
        if stored is None:  # one that is there already is started again as it was made
            check_supported(offering)
        type_name = _type_of(offering)
        request = self._request(tx, spec, vm_id, type_name, offering, keeps_disk=stored is not None)
        placement, victims = self._place(tx, fleet, spec, request, preempt=preempt)
        host, address = placement.host_id, placement.gpu_id
        viewed, snapshot = fleet.host(host), tx.hosts.snapshot(host)
        if viewed is None or snapshot is None:
            raise ClaimLost(f"{host} has only just come")
        leaving = frozenset(vm.id for vm in victims)
        device = self._draw(viewed, _gpu(snapshot, address), type_name, leaving)
        vm = Vm(
            id=vm_id,
            spec=spec,
            state="creating",
            host=host,
            devices=(device,),
            addresses=(),
            operation=None,
            created_at=self.clock.now(),
        )
        claim = Claim(
            vm=vm_id,
            host=host,
            devices=(DeviceClaim(gpu=address, cut=placement.cut, slots=placement.slots, function=device.function),),
            vcpus=spec.vcpus,
            memory_mib=spec.memory_mib,
            disk_bytes=spec.disk_bytes,
        )
        capacity = capacity_of(viewed.facts, self.index.overcommit)
        return VmPlan(vm=vm, claim=claim, capacity=capacity, why=placement.why, victims=victims)

    def _request(
        self, tx: Transaction, spec: VmSpec, vm_id: str, type_name: str, offering: Offering, *, keeps_disk: bool
    ) -> Request:
        return Request(
            vm_id=vm_id,
            profile=type_name,
            vcpus=spec.vcpus,
            memory_mib=spec.memory_mib,
            tenant=spec.tenant,
            disk_gib=0 if keeps_disk else -(-spec.disk_bytes // GIB),
            host=spec.host,
            gpu_models=offering.gpu_models,
            cut_kinds=("time_sliced",),
            apart_from_vms=kept_apart(tx, offering, spec.tenant, vm_id),
            now_s=self.clock.now(),
        )

    def _place(
        self, tx: Transaction, fleet: FleetIndex, spec: VmSpec, request: Request, *, preempt: bool
    ) -> tuple[Placement, tuple[Vm, ...]]:
        answer = place_in(fleet.engine, request)
        if isinstance(answer, Placement):
            return answer, ()
        found = self._preempting(tx, fleet, spec, request) if preempt else None
        if found is None:
            raise _no_room(spec, answer)
        return found

    def _preempting(
        self, tx: Transaction, fleet: FleetIndex, spec: VmSpec, request: Request
    ) -> tuple[Placement, tuple[Vm, ...]] | None:
        preemptible = preemptible_now(tx, tenant=spec.tenant, priority=spec.priority)
        found = place_preempting(request, fleet.fleet().views, preemptible)
        if found is None:
            return None
        placement, preemption = found
        return placement, tuple(preemptible[vm_id] for vm_id in preemption.victims)

    def _draw(self, viewed: Viewed, gpu: GpuSnapshot, type_name: str, leaving: frozenset[str]) -> Device:
        staying = (claim for claim in viewed.seen.claims if claim.vm not in leaving)
        taken = frozenset(one.function for claim in staying for one in claim.devices if one.function is not None)
        device = draw(gpu, type_name, taken=taken, new_uuid=self.ids.new_uuid())
        if device is None:
            reason = Reason(
                code="gpu.no_function",
                message="every virtual function is taken",
                subjects=(f"{viewed.view.name}/{gpu.address}",),
            )
            raise NoCapacity(
                "gpu.no_capacity",
                f"GPU {gpu.address} has no free function",
                reasons=(reason,),
                hint="'vgpuctl explain' tells what would make room",
            )
        return device


def kept_apart(tx: Transaction, offering: Offering, tenant: str, vm_id: str) -> tuple[str, ...]:
    """Ids of the tenant's VMs of that offering that the VM may not share a host with."""
    if offering.anti_affinity != "host":
        return ()
    of_offering = (vm for vm in tx.vms.list(tenant=tenant) if vm.spec.profile == offering.name)
    return tuple(vm.id for vm in of_offering if vm.id != vm_id)


def _no_room(spec: VmSpec, refusal: Refusal) -> NoCapacity:
    return NoCapacity(
        refusal.code,
        f"no GPU has room for {spec.profile}",
        hint="the reasons say what is in the way; 'vgpuctl gpu list' shows what is free",
        reasons=refusal.reasons,
    )


def _type_of(offering: Offering) -> str:
    if offering.kind != "time_sliced" or offering.vgpu_type is None or offering.vgpu_count != 1:
        raise InvalidInput(
            "profile.unsupported",
            f"profile {offering.name} is {offering.kind.replace('_', ' ')}; only time-sliced vGPUs are made so far",
            hint="'vgpuctl profile list' shows what the hosts offer",
        )
    return offering.vgpu_type


def _check_image(tx: Transaction, spec: VmSpec) -> None:
    image = _known("image", lambda: tx.images.get(spec.image))
    if spec.disk_bytes < image.virtual_size_bytes:
        raise InvalidInput(
            "disk.too_small",
            f"a disk of {show_size(spec.disk_bytes)} is smaller than image {image.name}",
            hint=f"ask for at least {show_size(-(-image.virtual_size_bytes // 1024**2) * 1024**2)}",
        )


def _known(what: str, find: Callable[[], T]) -> T:
    """What does not exist and was named in a request is a mistake in the request."""
    try:
        return find()
    except NotFound as error:
        raise InvalidInput(f"{what}.unknown", error.message, hint=error.hint) from error


def _gpu(snapshot: HostSnapshot, address: str) -> GpuSnapshot:
    for gpu in snapshot.gpus:
        if gpu.address == address:
            return gpu
    raise ClaimLost(f"{address} has only just come")


def check_still_ready(tx: Transaction, name: str) -> None:
    """:raises ClaimLost: it is being given back, or is not to be touched"""
    try:
        host = tx.hosts.get(name)
    except NotFound as error:
        raise ClaimLost(error.message) from error
    if host.state != "ready":
        raise ClaimLost(f"host {name} is {host.state}")
