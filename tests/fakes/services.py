# SPDX-License-Identifier: Apache-2.0
"""All services over one dictionary: the API and the command line can be run without a host.

Tenants, members and tokens are the real ones, over a small database of their own.

Ids and times are counted, so that output can be compared byte for byte. An operation moves on by one step
each time somebody waits for it. VMs named ``fails`` and ``stuck`` have operations that end so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack, cast

from orchestrator.adapters.bundles.library import BundleLibrary
from orchestrator.adapters.files.opening import Readable
from orchestrator.api.use_cases import Services
from orchestrator.core.actions.host_actions import DefineDomain, MakeVgpu, StartDomain, WriteSeed
from orchestrator.core.errors import Conflict, Fatal, NoCapacity, NotFound, Reason, error_to_dict
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.domain import DomainDescription
from orchestrator.core.labels import changed_labels
from orchestrator.core.names import check_name
from orchestrator.core.operation import FINISHED, Operation, Watched, unknown_operation, unknown_subject
from orchestrator.core.vms.image import NewImage
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.vm import Vm, VmSpec, VmState
from orchestrator.services.controllers import ControllerService
from orchestrator.services.drivers.bundles import DriverBundleService
from orchestrator.services.drivers.upgrades import DriverUpgradeService
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.fleet.view import Overcommit
from orchestrator.services.guests.consoles import ConsoleService
from orchestrator.services.guests.guests import GuestAccessService
from orchestrator.services.hosts.mig_layouts import MigLayoutService
from orchestrator.services.hosts.power import PowerService
from orchestrator.services.messages import AdoptVm, CreateVm, DryRun, Started, VmChange
from orchestrator.services.offerings import OfferingService
from orchestrator.services.readings.kept import KeptReadings
from orchestrator.services.tenancy.tenancy import Tenancy
from orchestrator.services.vm_checks import check_unprotected
from orchestrator.services.vms.moves import MoveService
from orchestrator.services.vms.moving import VmMoves
from orchestrator.services.vms.planning import Planner
from orchestrator.services.vms.requirements import spec_of
from orchestrator.store.pages import PageKey
from orchestrator.store.records import VmFilter
from tests.fakes.disks import of_disks
from tests.fakes.fake_fencing import never_advanced
from tests.fakes.fake_guest_access import GuestAccess
from tests.fakes.fake_guests import FakeGuestService
from tests.fakes.fake_world import CountedIds, FakeImages, HeldEngine
from tests.fakes.fleet_services import Capacity, Findings, Gpus, HostChecks, Hosts, Images, Networks, Profiles
from tests.fakes.moves import Moves, Snapshots, Suspension
from tests.fakes.network_engines import leading_outside, network_driver, of_gpus, provisioning, security
from tests.fakes.readings import NetworkReadings, Readings, silent_readings
from tests.fakes.tenancy import real_tenancy
from tests.fakes.webhooks import telling, watched
from tests.fakes.world import EPOCH, GPU, PROFILE, STEPS, World, host_info, sized


def _domain(spec: VmSpec) -> DomainDescription:
    return DomainDescription(
        name=f"{spec.tenant}.{spec.name}", tenant=spec.tenant, profile=spec.profile, vcpus=spec.vcpus,
        memory_mib=spec.memory_mib, volume="vm.qcow2", seed="vm.iso", network=spec.network,
    )  # fmt: skip


class Vms:
    def __init__(self, world: World) -> None:
        self._world = world
        self.guest_port: int | None = None
        """Where a real ssh server listens for all guests; None: what is sent to a guest comes back."""
        self.tell: Callable[[Vm], None] = lambda _: None

    def _spec(self, request: CreateVm) -> VmSpec:
        check_name(request.name, what="vm")
        check_name(request.tenant, what="tenant")
        if request.profile not in {PROFILE, "t4-small"}:
            raise NotFound("profile.unknown", f"no profile is called {request.profile[:80]!a}", hint="try t4-small")
        if request.image not in self._world.images:
            raise NotFound("image.unknown", f"there is no image {request.image[:60]!a}")
        if request.network not in self._world.networks:
            raise NotFound("network.unknown", f"there is no network {request.network[:60]!a}")
        user_data = "stored" if request.user_data else None
        return spec_of(sized(request), user_data, request.networks, request.volumes, request.pool)

    def create(self, request: CreateVm) -> Started:
        spec = self._spec(request)
        known = self._world.vms.get((spec.tenant, spec.name))
        if known is not None and known.spec != spec:
            raise Conflict("vm.exists", f"{spec.name} exists with another specification", hint="delete it first")
        if known is not None:
            operation = known.operation if known.state == "creating" else None
            return Started(operation=operation, name=spec.name, existing=True)
        if len(self._world.vms) >= 16:
            reason = Reason(code="gpu.no_capacity", message="all 16 places are taken", subjects=(f"gpu1/{GPU}",))
            raise NoCapacity("gpu.no_capacity", "nothing free fits", reasons=(reason,), hint="vgpuctl explain")
        vm_id = self._world.new_id()
        end: VmState = "running" if request.start else "stopped"
        addresses = ("192.168.122.7",) if request.start else ()
        operation = self._world.begin(
            "create_vm", vm_id, spec.tenant, lambda: self._set(spec, end, addresses), f"{spec.tenant}/{spec.name}"
        )
        device = Device(kind="mdev", gpu=GPU, parent=GPU, type_name=PROFILE, name=self._world.new_id())
        self._world.vms[spec.tenant, spec.name] = Vm(
            id=vm_id, spec=spec, state="creating", host="gpu1", devices=(device,), addresses=(), operation=operation,
            created_at=EPOCH,
        )  # fmt: skip
        return Started(operation=operation, name=spec.name)

    def _set(self, spec: VmSpec, state: VmState, addresses: tuple[str, ...]) -> None:
        key = (spec.tenant, spec.name)
        self._world.vms[key] = vm = replace(self._world.vms[key], state=state, addresses=addresses)
        self.tell(vm)

    def rename(self, tenant: str, name: str, new: str) -> Started:
        check_name(new, what="vm")
        vm = self.get(tenant, name)
        if (tenant, new) in self._world.vms:
            raise Conflict("vm.exists", f"there is already a VM {new}", hint="choose another name")
        if vm.state != "stopped":
            raise Conflict("vm.running", f"VM {name} is running", hint="stop it")
        del self._world.vms[tenant, name]
        operation = self._world.begin("rename_vm", vm.id, tenant, lambda: None, vm.full_name)
        named = replace(vm, spec=replace(vm.spec, name=new), operation=operation)
        self._world.vms[tenant, new] = named
        return Started(operation=operation, name=new)

    def plan(self, request: CreateVm, *, coarse: bool = False) -> DryRun:
        del coarse
        spec = self._spec(request)
        actions = (
            WriteSeed(vm="vm", seed="vm.iso", iso_base64="A" * 500),
            MakeVgpu(vm="vm", uuid="u", parent=GPU, type_name=PROFILE),
            DefineDomain(vm="vm", domain=_domain(spec)),
            StartDomain(vm="vm"),
        )
        why = f"the fullest GPU that still has room for {spec.profile}"
        return DryRun(host="gpu1", gpus=(GPU,), why=why, actions=actions, domain_xml="<domain type='kvm'>\n</domain>")

    def get(self, tenant: str, name: str) -> Vm:
        vm = self._world.vms.get((tenant, name))
        if vm is None:
            raise NotFound("vm.unknown", f"there is no VM {name[:60]!a}", hint="'vgpuctl list-vms' shows them")
        return vm

    def change(self, tenant: str, name: str, change: VmChange) -> Vm:
        vm = self.get(tenant, name)
        protected = vm.spec.protected if change.protected is None else change.protected
        spec = replace(vm.spec, labels=changed_labels(vm.spec.labels, change.labels), protected=protected)
        self._world.vms[tenant, name] = replace(vm, spec=spec)
        return self._world.vms[tenant, name]

    def page(
        self, _sort: str = "tenant", after: PageKey | None = None, most: int | None = None, **only: Unpack[VmFilter]
    ) -> tuple[tuple[Vm, ...], int]:
        """By tenant and name alone."""
        tenants, same = only.pop("tenants", None), {name: value for name, value in only.items() if value is not None}
        picked = {
            key: vm
            for key, vm in sorted(self._world.vms.items())
            if (tenants is None or key[0] in tenants) and same.items() <= {**vars(vm.spec), **vars(vm)}.items()
        }
        return tuple(vm for key, vm in picked.items() if after is None or key > after[1:])[:most], len(picked)

    def unseen(self) -> dict[str, float | None]:
        silent = {"unreachable", "quarantined", "forgotten"}
        return {name: info.host.last_seen_at for name, info in self._world.hosts.items() if info.host.state in silent}

    def delete(self, tenant: str, name: str, word: str | None = None) -> Started:
        vm = self.get(tenant, name)
        check_unprotected(vm)

        def gone() -> None:
            del self._world.vms[tenant, name]

        return Started(operation=self._world.begin("delete_vm", vm.id, tenant, gone, vm.full_name), name=name)

    def start(self, tenant: str, name: str) -> Started:
        vm = self.get(tenant, name)
        if vm.state == "running":
            return Started(operation=None, name=name, existing=True)
        spec = vm.spec
        done = self._world.begin(
            "start_vm", vm.id, tenant, lambda: self._set(spec, "running", ("192.168.122.7",)), vm.full_name
        )
        return Started(operation=done, name=name)

    def restart(self, tenant: str, name: str, *, force: bool = False) -> Started:
        vm = self.get(tenant, name)
        done = self._world.begin(
            "restart_vm", vm.id, tenant, lambda: self._set(vm.spec, "running", vm.addresses), vm.full_name
        )
        return Started(operation=done, name=name)

    def stop(self, tenant: str, name: str, *, force: bool = False) -> Started:
        vm = self.get(tenant, name)
        if vm.state == "stopped":
            return Started(operation=None, name=name, existing=True)
        spec = vm.spec
        done = self._world.begin("stop_vm", vm.id, tenant, lambda: self._set(spec, "stopped", ()), vm.full_name)
        return Started(operation=done, name=name)


class Adoption:
    """Every host has one foreign domain, ``byhand``."""

    def __init__(self, world: World) -> None:
        self._world = world

    def adopt(self, request: AdoptVm) -> Started:
        if request.domain != "byhand":
            raise NotFound("domain.unknown", f"the host has no domain {request.domain[:60]!a}")
        name = request.name or request.domain
        vm_id, key = self._world.new_id(), (request.tenant, name)

        def adopted() -> None:
            self._world.vms[key] = replace(self._world.vms[key], state="running")

        operation = self._world.begin("adopt_vm", vm_id, request.tenant, adopted, f"{request.tenant}/{name}")
        spec = VmSpec(
            name=name, tenant=request.tenant, profile=PROFILE, image="", vcpus=2, memory_mib=2048,
            disk_bytes=1 << 30, network="", host=request.host, boot_policy=request.boot_policy, adopted=request.domain,
        )  # fmt: skip
        device = Device(kind="mdev", gpu=GPU, parent=GPU, type_name=PROFILE, name=self._world.new_id())
        self._world.vms[key] = Vm(
            id=vm_id, spec=spec, state="adopting", host=request.host, devices=(device,), addresses=(),
            operation=operation, created_at=EPOCH,
        )  # fmt: skip
        return Started(operation=operation, name=name)


class Operations:
    def __init__(self, world: World) -> None:
        self._world = world

    def _watched(self, operation_id: str) -> Watched:
        if operation_id not in self._world.operations:
            raise unknown_operation(operation_id)
        return self._world.operations[operation_id]

    def get(self, operation_id: str) -> Operation:
        return self._watched(operation_id).operation

    def list(
        self,
        *,
        limit: int,
        unfinished: bool = False,
        states: Collection[str] | None = None,
        kind: str | None = None,
        tenants: tuple[str, ...] | None = None,
        before: str | None = None,
        sort: str | None = None,
        subject: str | None = None,
        beginning: str | None = None,
    ) -> tuple[Operation, ...]:
        found = [watched.operation for watched in reversed(self._world.operations.values())]
        if sort is not None:
            found.sort(key=lambda op: (getattr(op, sort.removeprefix("-")), op.id), reverse=sort.startswith("-"))
        there = [*self._world.hosts, *("/".join(key) for key in self._world.vms)]
        been = {name for one in found for name in (one.subject, one.subject_name)}
        if subject is not None and subject not in been.union(there):
            raise unknown_subject(subject, there)
        if before is not None:
            found = found[[one.id for one in found].index(before) + 1 :]
        return tuple(
            op
            for op in found
            if (not unfinished or op.state not in FINISHED)
            and (states is None or op.state in states)
            and kind in {None, op.kind}
            and (tenants is None or op.tenant in tenants)
            and subject in {None, op.subject, op.subject_name}
            and op.id.startswith(beginning or "")
        )[:limit]

    def how_many(self, **only: Any) -> int:
        return len(self.list(limit=len(self._world.operations), **only))

    def counts(self) -> dict[tuple[str, str], int]:
        return Counter((one.operation.kind, one.operation.state) for one in self._world.operations.values())

    def watched(self, operation_id: str) -> Watched:
        return self._watched(operation_id)

    def revisions(self, operation_ids: Sequence[str]) -> dict[str, int]:
        return {one: self._watched(one).revision for one in operation_ids}

    def listen(self, operation_id: str, told: Callable[[Watched | None], None]) -> Callable[[], None]:
        """Whoever waits sees the next step at once."""
        if operation_id in self._world.operations:
            watched = self._watched(operation_id)
            if watched.operation.state not in FINISHED:
                self._world.put(self._moved_on(watched.operation, watched.revision))
                told(self._watched(operation_id))
        return lambda: None

    def _moved_on(self, operation: Operation, step: int) -> Operation:
        start = EPOCH + step
        if step == len(STEPS):
            return replace(operation, state="done", finished_at=start)
        names = {vm.id: vm.spec.name for vm in self._world.vms.values()}
        name = names.get(operation.subject, operation.subject)
        if name in {"fails", "stuck"} and step == 2 and operation.kind != "delete_vm":
            return self._failed(operation, stuck=name == "stuck")
        done = replace(operation.steps[step], state="done", started_at=start, finished_at=start + 0.8)
        steps = (*operation.steps[:step], done, *operation.steps[step + 1 :])
        return replace(operation, state="running", steps=steps)

    def _failed(self, operation: Operation, *, stuck: bool) -> Operation:
        error = error_to_dict(Fatal("gpu.create_failed", f"making the vGPU on gpu1 failed: EIO on {GPU}"))
        failed = replace(operation.steps[2], state="failed", started_at=EPOCH + 2, finished_at=EPOCH + 2.5)
        back = tuple(replace(step, state="undone") for step in operation.steps[:2])
        return replace(
            operation,
            state="stuck" if stuck else "undone",
            steps=(*back, failed, *operation.steps[3:]),
            finished_at=EPOCH + 3,
            error=error,
            remainder=(f"mdev on {GPU} of gpu1",) if stuck else (),
        )

    def cancel(self, operation_id: str) -> Operation:
        return self.get(operation_id)

    def _release(self, operation_id: str) -> Operation:
        operation = self.get(operation_id)
        if operation.state != "stuck":
            raise Conflict("operation.not_stuck", f"the operation is {operation.state}, not stuck")
        return self._world.put(replace(operation, state="undone", remainder=())).operation

    def retry(self, operation_id: str) -> Operation:
        return self._release(operation_id)

    def abandon(self, operation_id: str) -> Operation:
        return self._release(operation_id)


class InMemory:
    """All services over one :class:`World` with one host, one image and one network."""

    def __init__(self) -> None:
        self.world = World()
        self.world.networks["default"] = Network(name="default", subnet="192.168.122.0/24", shared=True)
        self.vms = vms = Vms(self.world)
        self.guest_access, self.adoption = GuestAccess(vms), Adoption(self.world)
        self.hosts, self.host_checks, self.readings = Hosts(self.world), HostChecks(self.world), Readings(self.world)
        self.gpus, self.guests, self.findings = Gpus(self.world), FakeGuestService(self.world), Findings(self.world)
        self.profiles, self.images, self.networks = Profiles(self.world), Images(self.world), Networks(self.world)
        self.network_readings, self.operations = NetworkReadings(self.networks), Operations(self.world)
        self.capacity, self.moves, self.suspension = Capacity(self.world), Moves(self.world), Suspension(self.world)
        self.disk_snapshots, self._files = Snapshots(self.world), TemporaryDirectory()
        self.tenancy = real_tenancy(Path(self._files.name))
        self.offerings, kept = _offerings(self.tenancy), self.tenancy.tenants
        files = BundleLibrary(Path(self._files.name) / "bundles", Readable(never_below=Path(self._files.name)))
        store, clock, ids, engine = kept.store, kept.clock, CountedIds(), HeldEngine(lambda _: None)
        self.gpu_health, self.gpu_cards, self.driver_locks = of_gpus(store, clock, ids, engine)
        self.power = PowerService(store=store, clock=clock, readings=silent_readings(store, clock))
        self.network_driver, outside = network_driver(store, clock), leading_outside(store, clock, ids)
        self.security_groups, self.network_paths, self.network_cards = security(
            store, clock, ids, engine, self.networks
        )
        planner = Planner(index=FleetIndex(store, Overcommit()), clock=clock, ids=ids)
        disks, (self.provider_networks, self.floating_addresses) = of_disks(store, engine, planner), outside
        self.volumes, self.volume_snapshots, self.pools, self.backup_targets, self.backups, self.backup_policies = disks
        self.moving = VmMoves(store=store, engine=engine, planner=planner, moves=cast(MoveService, self.moves))
        self.provisioning = provisioning(store, clock, ids, engine)
        self.driver_upgrades = DriverUpgradeService(store=store, clock=clock, ids=ids, advance=lambda: None)
        self.mig_layouts = MigLayoutService(store=store, engine=engine, clock=clock, ids=ids)
        self.driver_bundles = DriverBundleService(store=store, files=files, clock=clock)
        self.events, self.webhooks, vms.tell = *watched(store, ids), telling(store)
        self.consoles = _consoles(self.guest_access, self.tenancy)
        self.maintenances, self.defragmentation = never_advanced(store, clock, ids)
        self.controllers = ControllerService(
            store=store, clock=clock, files=FakeImages(), kept=KeptReadings(clock), key=b"key"
        )

    def as_services(self) -> Services:
        """For the API, which names the real classes."""
        return cast(Services, self)

    def record_enrolled(self) -> None:
        """A host and an image."""
        self.world.hosts["gpu1"] = host_info("gpu1")
        self.images.add(NewImage(name="guest", source="/srv/guest.qcow2"))


def _offerings(kept: Tenancy) -> OfferingService:
    store = kept.tenants.store
    return OfferingService(store=store, index=FleetIndex(store, Overcommit()), clock=kept.tenants.clock)


def _consoles(access: GuestAccess, kept: Tenancy) -> ConsoleService:
    return ConsoleService(store=kept.tenants.store, access=cast(GuestAccessService, access), clock=kept.tenants.clock)
