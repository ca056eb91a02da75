# SPDX-License-Identifier: Apache-2.0
"""From a request to a drawn VM and its claim. Nothing is stored here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from orchestrator.catalogue.quota_names import board_name
from orchestrator.core.advice.outlook import NEVER_FITS
from orchestrator.core.attachments import draw, draw_whole
from orchestrator.core.errors import InvalidInput, NoCapacity, NotFound, Reason, VgpuctlError
from orchestrator.core.geometry.board import WHOLE
from orchestrator.core.geometry.build import MIXED
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.gpu.device import Device, InstancePlace
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot
from orchestrator.core.moves.rearranging import PlannedMove
from orchestrator.core.offerings.offering import Offering, check_supported
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.from_offering import request_for
from orchestrator.core.placement.place import place_in
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.placement.views import Part, Placement, Refusal, Request
from orchestrator.core.units import show_size
from orchestrator.core.vms.backup import Backup
from orchestrator.core.vms.claim import Claim, DeviceClaim, HostCapacity
from orchestrator.core.vms.disk_snapshot import SnapshotSource
from orchestrator.core.vms.vm import Vm, VmSpec
from orchestrator.core.vms.volume import Volume
from orchestrator.operations.steps.backups import inputs_of
from orchestrator.operations.steps.domain import check_guest_driver
from orchestrator.operations.steps.vm_record import check_not_kept
from orchestrator.ports.clock import Clock, Ids
from orchestrator.services.fleet.cpus import Placing, check_node_memory, node_memory, place_cpus
from orchestrator.services.fleet.fabric import joined
from orchestrator.services.fleet.index import FleetIndex, Reservation
from orchestrator.services.fleet.named import check_named
from orchestrator.services.fleet.nics import place_nic
from orchestrator.services.fleet.sharing import check_neighbours
from orchestrator.services.fleet.view import Viewed, capacity_of
from orchestrator.services.guests.runs import PlannedRun
from orchestrator.services.images import known_image
from orchestrator.services.vms.deallocating import preemptible_now
from orchestrator.services.vms.placement_request import (
    first_reason,
    in_coarse_steps,
    models_kept,
    on_networks,
    with_site_rules,
)
from orchestrator.services.vms.vm_volumes import place_with
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True)
class _Asked:
    """A device to draw."""

    type_name: str
    instance: InstancePlace | None
    """The GPU instance around it."""


_Placed = tuple[Placement, tuple[Vm, ...], tuple[PlannedMove, ...]]
"""Where, who is stopped for it, and who moves."""


@dataclass(frozen=True, kw_only=True)
class VmPlan:
    """A VM as it would be stored now."""

    vm: Vm
    claim: Claim
    capacity: HostCapacity
    why: str
    victims: tuple[Vm, ...] = ()
    """Who has to give its place back before the claim can be taken."""
    moves: tuple[PlannedMove, ...] = ()
    """Who has to go to another host before."""
    leaving: tuple[tuple[Vm, VmPlan], ...] = ()
    """These, each with what it gets there."""
    volumes: tuple[Volume, ...] = ()
    """Data volumes that it is given, as they are now."""
    source: SnapshotSource | Backup | None = None
    """What its disk is a copy of; None: it is on its image alone."""
    run: PlannedRun | None = None
    """What is run in its guest once it is made."""

    @property
    def inputs(self) -> dict[str, object]:
        """What its operation has to know to take back what it gives, and to say why it is given there."""
        known: dict[str, object] = {"why_there": self.why}
        if self.volumes:
            known["volumes"] = [volume.fields() for volume in self.volumes]
        if isinstance(self.source, Backup):
            known |= inputs_of(self.source)
        elif self.source is not None:
            known["disk_of"] = asdict(self.source)
        return known if self.run is None else {**known, "provisioning": self.run.operation.id}

    def take(self, tx: Transaction) -> None:
        """Claim the place.

        :raises ClaimLost: it is another's, or beside a tenant that this one is kept apart from
        """
        tx.claims.take(self.claim, self.capacity)
        check_neighbours(tx, self.vm, self.claim)
        check_node_memory(tx, self.vm, self.capacity)
        self.take_volumes(tx)

    def take_volumes(self, tx: Transaction) -> None:
        """They are the VM's, and lie on its host.

        :raises ClaimLost: one is another's meanwhile, or the host has too little disk left
        """
        for volume in self.volumes:
            if volume.read_only_of is not None:
                tx.volumes.add_reader(volume)
            tx.volumes.attach(volume, self.vm.id, self.vm.host, self.capacity)


Fitting = Callable[[FleetIndex, Request], tuple[Placement, tuple[PlannedMove, ...]] | None]
"""Where a request goes that fits nowhere, once VMs have moved."""


@dataclass(frozen=True)
class Others:
    """Who may have to go when a VM does not fit. ``preempt``: some may have to give their places back. ``fitting``:
    some may have to move, which goes before that."""

    preempt: bool = False
    fitting: Fitting | None = None


_NOBODY = Others()


@dataclass(frozen=True)
class Leaving:
    """A VM that is to have a place on another host."""

    vm: Vm
    off_hosts: frozenset[str]
    """Names of those that it may not move to."""


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Decides where a VM goes and draws its identifiers."""

    index: FleetIndex
    clock: Clock
    ids: Ids
    coarse: bool = False
    """Only where there would be a place as :func:`in_coarse_steps` asks."""

    def reserve(self, plan: VmPlan) -> None:
        """No other plan of this process gets the place until it is released (services/fleet/index.py). Call it in the
        block of the index that the plan was made in."""
        waits = plan.victims or plan.moves
        self.index.reserve(Reservation(vm=plan.vm, claim=None if waits else plan.claim))

    def release(self, plan: VmPlan) -> None:
        """Of its place, and of those of who leave for it. Where nothing is reserved nothing changes."""
        for kept in (plan, *(place for _, place in plan.leaving)):
            self.index.release(kept.vm.id)

    def plan(
        self, tx: Transaction, spec: VmSpec, stored: Vm | None = None, *, others: Others = _NOBODY,
        volumes: tuple[Volume, ...] = (), bound: Leaving | SnapshotSource | Backup | None = None,
    ) -> VmPlan:  # fmt: skip
        """``stored``: the VM is there already; its id stays, and what it holds counts as free.
        ``volumes``: data volumes that it is given; it goes where they are.
        ``bound``: whose place on another host than its own it is, or what the new VM's disk is a copy of.

        :raises InvalidInput: ``profile.unsupported``, ``disk.too_small``, ``memory.not_whole_pages``
        :raises NotFound: ``profile.unknown``, ``image.unknown``, ``host.unknown``, ``gpu.unknown``
        :raises NoCapacity: with reasons
        :raises ClaimLost: the host was changed in this moment; plan again"""
        spec = spec if stored is not None else replace(spec, image=known_image(tx, spec.tenant, spec.image).name)
        _check_image(tx, spec)
        with self.index.current() as fleet:
            check_named(tx, fleet, spec.host, spec.gpu)
            host, disk_bytes, tied_by = place_with(volumes, spec.host, spec.host_disk_bytes)
            placed = replace(spec, host=host, disk_bytes=disk_bytes)
            planned = self._planned(tx, fleet, (placed, tied_by), stored, others, bound)
        kept = 0 if stored is None else stored.snapshot_bytes
        claim = replace(planned.claim, disk_bytes=spec.host_disk_bytes + kept)
        source = None if isinstance(bound, Leaving) else bound
        return replace(planned, vm=replace(planned.vm, spec=spec), claim=claim, volumes=volumes, source=source)

    def _planned(
        self, tx: Transaction, fleet: FleetIndex, placed_spec: tuple[VmSpec, str | None], stored: Vm | None,
        others: Others, bound: Leaving | SnapshotSource | Backup | None,
    ) -> VmPlan:  # fmt: skip
        """``placed_spec``: as placement has to see it, and the name of the volume that ties it to its host."""
        (spec, tied_by), vm_id = placed_spec, self.ids.new_uuid() if stored is None else stored.id
        offering = fleet.known.of_tenants({spec.tenant}).resolve(spec.profile)
        if stored is None:  # one that is there already is started again as it was made
            check_supported(offering)
        models = models_kept(fleet, offering, bound.vm if isinstance(bound, Leaving) else stored)
        wanted = replace(self.wanted(tx, fleet, spec, vm_id, offering, stored), tied_by=tied_by, models=models)
        if isinstance(bound, Leaving):
            wanted = replace(wanted, made=bound.vm, moves=True, off_hosts=bound.off_hosts)
        elif isinstance(bound, SnapshotSource):
            wanted = replace(wanted, beside_snapshot=bound.host)
        request = self.request(wanted)
        sought = self.request(in_coarse_steps(wanted)) if self.coarse else request
        placed = self._place(tx, fleet, spec, sought, stored, others)
        if isinstance(placed, Refusal):
            is_new = stored is None and not isinstance(bound, Leaving)
            raise _no_room(placed, spec, first_reason(tx, fleet, request, spec, is_new=is_new), tied_by)
        placement, victims, moves = placed
        host = placement.host_id
        viewed, snapshot = fleet.host(host), tx.hosts.snapshot(host)
        if viewed is None or snapshot is None:
            raise ClaimLost(f"{host} has only just come")
        freed = frozenset((vm_id, *(vm.id for vm in victims), *(move.vm for move in moves)))
        devices = tuple(map(offering.as_asked_for, self._draw(viewed, snapshot, placement, request.profile, freed)))
        overcommit = self.index.overcommit.of(viewed.seen.host)
        cpus = place_cpus(Placing(viewed, placement, offering, spec, freed, overcommit))
        vm = Vm(
            id=vm_id,
            spec=spec,
            state="creating",
            host=host,
            devices=devices,
            addresses=(),
            operation=None,
            created_at=self.clock.now(),
            cpus=cpus.place,
            firmware=offering.firmware if stored is None else stored.firmware,
            nic=place_nic(viewed, placement, vm_id, freed),
        )
        check_guest_driver(tx, vm)
        claim = Claim(
            vm=vm_id,
            host=host,
            devices=tuple(
                DeviceClaim(gpu=part.gpu_id, cut=part.cut, slots=part.slots, function=device.function)
                for part, device in zip(placement.parts, devices, strict=True)
            ),
            vcpus=vm.floating_vcpus,
            memory_mib=vm.ordinary_mib,
            disk_bytes=spec.disk_bytes,
            cpus=cpus.claimed,
            nic=None if vm.nic is None else vm.nic.function,
        )
        capacity = replace(capacity_of(viewed.facts, overcommit), node_memory=node_memory(vm, viewed, overcommit))
        return VmPlan(vm=vm, claim=claim, capacity=capacity, why=placement.why, victims=victims, moves=moves)

    def wanted(
        self, tx: Transaction, fleet: FleetIndex, spec: VmSpec, vm_id: str, offering: Offering, stored: Vm | None
    ) -> Wanted:
        """What placement has to find. ``stored``: the VM is there already, and so is its disk."""
        bare = Wanted(vm_id=vm_id, vm=spec, offering=offering, made=stored)
        return with_site_rules(tx, fleet, on_networks(tx, bare, spec.networks))

    def request(self, wanted: Wanted) -> Request:
        """What placement is asked."""
        return request_for(wanted, now_s=self.clock.now())

    def _place(
        self, tx: Transaction, fleet: FleetIndex, spec: VmSpec, request: Request, stored: Vm | None, others: Others
    ) -> _Placed | Refusal:
        if stored is not None and stored.deallocated is None:
            answer = _place_again(fleet, stored, request)
        else:
            answer = place_in(fleet.engine, request)
        if isinstance(answer, Placement):
            return answer, (), ()
        if others.fitting is not None and (moved := others.fitting(fleet, request)) is not None:
            return moved[0], (), moved[1]
        return (self._preempting(tx, fleet, spec, request) if others.preempt else None) or answer

    def _preempting(self, tx: Transaction, fleet: FleetIndex, spec: VmSpec, request: Request) -> _Placed | None:
        preemptible = preemptible_now(tx, tenant=spec.tenant, priority=spec.priority)
        victims_and_plan = place_preempting(request, fleet.fleet().views, preemptible)
        if victims_and_plan is None:
            return None
        placement, preemption = victims_and_plan
        return placement, tuple(preemptible[vm_id] for vm_id in preemption.victims), ()

    def _draw(
        self, viewed: Viewed, snapshot: HostSnapshot, placement: Placement, profile: str, leaving: frozenset[str]
    ) -> tuple[Device, ...]:
        """A device for each part of the place. A GPU instance reaches its VM as the vGPU type that takes all of it."""
        staying = (claim for claim in viewed.seen.claims if claim.vm not in leaving)
        taken = {claimed.function for claim in staying for claimed in claim.devices if claimed.function is not None}
        taken |= viewed.seen.host.closed_functions
        devices = []
        for part in placement.parts:
            geometry = _geometry(viewed, part)
            if part.cut == WHOLE:
                device = draw_whole(part.gpu_id, board_name(geometry.model))
            else:
                drawing = _Asked(geometry.vgpu_type_of(profile), _instance_at(geometry, part, profile))
                device = self._drawn_on(viewed, _gpu(snapshot, part.gpu_id), drawing, frozenset(taken))
                if part.cut == MIXED:
                    device = replace(device, placement_id=part.start)
            devices.append(device)
            if device.function is not None:
                taken.add(device.function)
        return joined(tuple(devices), viewed.facts)

    def _drawn_on(self, viewed: Viewed, gpu: GpuSnapshot, drawing: _Asked, taken: frozenset[str]) -> Device:
        device = draw(gpu, drawing.type_name, taken=taken, new_uuid=self.ids.new_uuid(), instance=drawing.instance)
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
                hint=f"'vgpuctl gpu show {viewed.view.name} {gpu.address}' tells which VMs have them",
            )
        return device


def _place_again(fleet: FleetIndex, vm: Vm, request: Request) -> Placement | Refusal:
    """On its host, as if it held nothing there.

    :raises ClaimLost: nothing is known of the host in this moment"""
    viewed = fleet.host(vm.host)
    if viewed is None:
        raise ClaimLost(f"{vm.host} has only just come")
    engine = PlacementEngine([viewed.view])
    engine.release(vm.id)
    return place_in(engine, request)


def _no_room(refusal: Refusal, spec: VmSpec, first: Reason | None, tied_by: str | None) -> VgpuctlError:
    if first is not None and first.code == NEVER_FITS:
        return never_fits(first, refusal.reasons, tied_by)
    error = NoCapacity(
        refusal.code,
        f"no GPU has room for {spec.profile}",
        hint="the reasons say what is in the way; 'vgpuctl gpu list' shows what is free",
        reasons=refusal.reasons,
    )
    error.told = first
    return error


def never_fits(why: Reason, reasons: tuple[Reason, ...] = (), tied_by: str | None = None) -> InvalidInput:
    """``reasons``: of hosts and GPUs as they are now. ``tied_by``: the volume that says which host."""
    hint = "ask for less, or for another profile: 'vgpuctl capacity' has what fits"
    hint = hint if tied_by is None else f"leave out volume {tied_by}, or {hint}"
    return InvalidInput(why.code, why.message, hint=hint, reasons=reasons)


def _instance_at(geometry: Geometry, part: Part, profile: str) -> InstancePlace | None:
    """None: time-sliced."""
    cut, shape = geometry.cut(part.cut), geometry.shape_in(profile, part.cut)
    around = None if cut is None or shape is None else cut.instance_of(shape, part.start)
    return None if around is None else InstancePlace(*around)


def _check_image(tx: Transaction, spec: VmSpec) -> None:
    image = tx.images.get(spec.image)
    if spec.disk_bytes < image.virtual_size_bytes:
        raise InvalidInput(
            "disk.too_small",
            f"a disk of {show_size(spec.disk_bytes)} is smaller than image {image.name}",
            hint=f"ask for at least {show_size(-(-image.virtual_size_bytes // 1024**2) * 1024**2)}",
        )


def _geometry(viewed: Viewed, part: Part) -> Geometry:
    return next(gpu.geometry for gpu in viewed.view.gpus if gpu.gpu_id == part.gpu_id)


def _gpu(snapshot: HostSnapshot, address: str) -> GpuSnapshot:
    for gpu in snapshot.gpus:
        if gpu.address == address:
            return gpu
    raise ClaimLost(f"{address} has only just come")


def check_still_open(tx: Transaction, vm: Vm) -> None:
    """:raises ClaimLost: its host is being given back, is not to be touched, or is kept for another tenant now"""
    name = vm.host
    try:
        host = tx.hosts.get(name)
    except NotFound as error:
        raise ClaimLost(error.message) from error
    if host.state != "ready":
        raise ClaimLost(f"host {name} is {host.state}")
    check_not_kept(host, vm.spec.tenant)
