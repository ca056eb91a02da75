# SPDX-License-Identifier: Apache-2.0
"""VMs as their users see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

from orchestrator.core.errors import Conflict, NoCapacity
from orchestrator.core.hosts.pool import NO_POOL
from orchestrator.core.hosts.pool import short_of as short_of_pool
from orchestrator.core.labels import changed_labels
from orchestrator.core.names import check_name
from orchestrator.core.vms.image import short_of
from orchestrator.core.vms.lease import WantedEnd, extended_lease_end, new_lease_end, show_moment
from orchestrator.core.vms.network import short_name
from orchestrator.core.vms.priority import check_may_preempt, check_priority
from orchestrator.core.vms.vm import Vm, VmSpec, VmState, WantedState
from orchestrator.core.vms.volume import attached_names, limited
from orchestrator.operations.steps.domain import check_guest_driver
from orchestrator.ports.engine import Engine
from orchestrator.services.acting import actor
from orchestrator.services.begin import held_by, new_operation, record, running_operation, undo_inputs
from orchestrator.services.guests.runs import planned_run, wanted_roles
from orchestrator.services.maintenance.waits import gets_driver, is_held
from orchestrator.services.messages import CreateVm, DryRun, Started, VmChange
from orchestrator.services.networks import NetworkService
from orchestrator.services.pools import check_disk_encryption, check_pool_has, pool_on_hosts
from orchestrator.services.tenancy.quotas import new_within_quota, within_quota
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vm_checks import (
    already_there,
    check_gpus,
    check_host,
    check_labelled,
    check_lease,
    check_may_delete,
    check_may_rename,
    check_runs_well,
    check_state,
    known_vm,
    with_word,
)
from orchestrator.services.vms.disk_sources import check_stays, is_of_another, sized_for, source_of
from orchestrator.services.vms.dry_run import actions_of, xml_of
from orchestrator.services.vms.listing import VmListing
from orchestrator.services.vms.making_way import MakingWay, add_vm
from orchestrator.services.vms.planning import Others, Planner, VmPlan, check_still_open
from orchestrator.services.vms.ports import check_addresses, is_as_planned, with_ports
from orchestrator.services.vms.rearranging import asking
from orchestrator.services.vms.requirements import checked, sized_as, spec_of
from orchestrator.services.vms.suspending import VmSuspension
from orchestrator.services.vms.vm_volumes import volumes_for
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction

_RACES = 5
"""How often a lost race for slots is planned again."""


@dataclass(frozen=True, kw_only=True)
class VmService(VmListing):
    """Create, look, start, stop, delete."""

    engine: Engine
    planner: Planner
    making_way: MakingWay
    networks: NetworkService
    suspension: VmSuspension

    def create(self, request: CreateVm) -> Started:
        """Claim a device and start making the VM. The same request again is answered with what it started before.

        :raises InvalidInput: a bad name, number, key
        :raises Conflict: ``vm.exists`` when the name is taken by another specification
        :raises NoCapacity: ``gpu.no_capacity`` with reasons
        :raises QuotaExceeded: ``quota.exceeded``, ``priority.too_high``, ``lease.too_long``
        :raises NotFound: of tenant, profile, image, network, host or GPU; :raises Denied: ``preemption.not_allowed``
        """
        wanted = checked(request)
        moves = self.making_way.moving.moves
        return self._raced(lambda: asking(moves, lambda may_ask: self._create(wanted, may_ask=may_ask)))

    def _raced(self, claim: Callable[[], Started]) -> Started:
        """Again when others were faster; what was started anew is submitted."""
        for _ in range(_RACES):
            try:
                started = claim()
            except ClaimLost:
                continue
            return started if started.existing else self._submitted(started)
        hint = "many VMs are being made at once; try again"
        raise NoCapacity("gpu.no_capacity", "others were faster at every try", hint=hint)

    def _create(self, request: CreateVm, *, may_ask: bool) -> Started:
        """Planned in a read, while others write; claimed in a transaction that only writes.

        :raises Unasked: drivers have a word yet; where ``may_ask``"""
        with self.planner.index.current(), self.store.read() as tx:
            if (existing := tx.vms.find(request.tenant, request.name)) is not None:
                return _repeated(tx, existing, sized_as(existing.spec, request))
            secret = None if request.user_data is None else self.planner.ids.new_uuid()
            plan = self._planned(tx, request, secret, reserve=True, may_ask=may_ask)
            to_make = any(tx.networks.find(name) is None for name in plan.vm.spec.networks)
        try:
            if to_make:
                with self.store.begin() as tx:
                    self.networks.make_default(tx, request.tenant)
            with self.store.claim() as tx:
                return self._claim(tx, request, plan)
        finally:
            self.planner.release(plan)

    def _claim(self, tx: Transaction, request: CreateVm, plan: VmPlan) -> Started:
        """VM, claims and operation.

        :raises ClaimLost: what was planned is true no more
        """
        if tx.vms.find(request.tenant, request.name) is not None:
            raise ClaimLost(f"VM {request.name} was made meanwhile")
        known_tenant(tx, request.tenant)
        if not is_as_planned(tx, plan.vm):
            raise ClaimLost(f"a network of VM {request.name} was deleted or converted meanwhile")
        check_still_open(tx, plan.vm)
        check_stays(tx, plan.source)
        if plan.vm.spec.user_data is not None and request.user_data is not None:
            tx.secrets.put(plan.vm.spec.user_data, request.user_data)
        (kind, more), goes_first = request.begins, plan.victims or plan.leaving
        started = self.making_way.begin(tx, plan) if goes_first else self._begin(tx, kind, plan.vm, plan, more)
        tx.networks.take(plan.vm)
        if plan.run is None:
            return started
        plan.run.begin(tx, plan.vm, str(started.operation))
        return replace(started, provisioning=plan.run.operation.id)

    def _planned(
        self, tx: Transaction, request: CreateVm, secret: str | None, *, reserve: bool,
        may_ask: bool, coarse: bool = False,
    ) -> VmPlan:  # fmt: skip
        """Within what the tenant's policy and quota allow."""
        known_tenant(tx, request.tenant)
        policy = tx.policies.get(request.tenant)
        check_priority(request.priority, policy.max_priority, request.tenant)
        if request.preempt:
            check_may_preempt(policy.preempt, request.tenant)
        networks = tuple(network.name for network in self.networks.of(tx, request.tenant, request.networks))
        volumes = volumes_for(tx, request.tenant, request.volumes, request.host, self.planner.ids)
        known = self.planner.index.known.of_tenants({request.tenant})
        offering = known.resolve(request.profile)
        on_hosts = tuple(volume.on_hosts for volume in volumes)
        pool = pool_on_hosts(tx, request.pool, request.tenant, offering)
        check_disk_encryption(tx, request, pool)
        sized = sized_for(source := source_of(tx, request, pool), known.sized(request, offering), request.disk_bytes)
        spec = spec_of(sized, secret, networks, on_hosts, pool)
        spec = limited(replace(spec, disk_limits=offering.disk_limits), volumes)
        check_pool_has(tx, pool, spec.disk_bytes)
        roles = wanted_roles(request, offering)
        fitting = self.making_way.fitting(tx, request, may_ask=may_ask)
        plan = replace(self.planner, coarse=coarse).plan(
            tx, spec, volumes=volumes, others=Others(request.preempt, fitting), bound=source
        )
        end = new_lease_end(policy, request.end, tx.time.no_earlier(plan.vm.created_at))
        plan = replace(plan, vm=with_ports(tx, replace(plan.vm, lease_end=end), request.addresses))
        new_within_quota(tx, plan.vm)
        plan = replace(plan, run=planned_run(tx, plan.vm, roles, clock=self.planner.clock, ids=self.planner.ids))
        return self.making_way.with_places(tx, plan, reserve=self.planner.reserve if reserve else None)

    def _begin(
        self, tx: Transaction, kind: str, vm: Vm, plan: VmPlan | None = None, more: Mapping[str, object] | None = None
    ) -> Started:
        operation = new_operation(kind, vm, clock=self.planner.clock, ids=self.planner.ids)
        if plan is None:
            tx.vms.update(held_by(operation, vm))
        else:
            add_vm(tx, held_by(operation, vm))
            plan.take(tx)
        inputs = {"vm": vm.spec.name, **undo_inputs(vm), **(more or {}), **(plan.inputs if plan is not None else {})}
        record(tx, operation, host=vm.host, inputs=inputs)
        return Started(operation=operation.id, name=vm.spec.name)

    def plan(self, request: CreateVm, *, coarse: bool = False) -> DryRun:
        """What :meth:`create` would do; raises what it would raise. ``coarse``: for who does not watch the pool."""
        wanted = checked(request)
        moves = self.making_way.moving.moves
        return asking(moves, lambda may_ask: self._plan(wanted, may_ask=may_ask, coarse=coarse))

    def _plan(self, wanted: CreateVm, *, may_ask: bool, coarse: bool) -> DryRun:
        with self.planner.index.current(), self.store.read() as tx:
            existing = tx.vms.find(wanted.tenant, wanted.name)
            if existing is not None:
                raise already_there(existing)
            plan = self._planned(tx, wanted, None, reserve=False, may_ask=may_ask, coarse=coarse)
            networks = self.networks.of(tx, wanted.tenant, wanted.networks)
            image = tx.images.get(plan.vm.spec.image)
            actions = actions_of(plan.vm, image, networks, plan.volumes, plan.source)
        return DryRun(
            host=plan.vm.host,
            gpus=tuple(device.gpu for device in plan.claim.devices),
            why=plan.why,
            actions=actions,
            domain_xml=xml_of(plan.vm, image, actions),
            preempts=tuple(vm.full_name for vm in plan.victims),
            moves=tuple(vm.full_name for vm, _ in plan.leaving),
            provision=() if plan.run is None else plan.run.wanted.roles,
        )

    def extend(self, tenant: str, name: str, end: WantedEnd) -> Vm:
        """A later end of its lease. A VM whose lease was over is started by :meth:`start`.

        :raises NotFound: ``vm.unknown``; :raises InvalidInput, QuotaExceeded: ``lease.…``
        """
        with self.store.begin() as tx:
            vm = known_vm(tx, tenant, name)
            now = tx.time.no_earlier(self.planner.clock.now())
            later = extended_lease_end(tx.policies.get(tenant), end, now, vm.lease_end)
            if later != vm.lease_end:
                tx.vms.update(replace(vm, lease_end=later))
                outcome = f"until {show_moment(later)}"
                tx.audit.append(at=now, actor=actor(), action="extend_lease", subject=vm.full_name, outcome=outcome)
        return replace(vm, lease_end=later)

    def change(self, tenant: str, name: str, change: VmChange) -> Vm:
        """:raises InvalidInput: ``label.…``; :raises NotFound: ``vm.unknown``"""
        with self.store.begin() as tx:
            vm = known_vm(tx, tenant, name)
            protected = vm.spec.protected if change.protected is None else change.protected
            spec = replace(vm.spec, labels=changed_labels(vm.spec.labels, change.labels), protected=protected)
            if (spec.labels, spec.protected) != (vm.spec.labels, vm.spec.protected):
                tx.vms.set_spec(vm.id, spec)
                at, action = self.planner.clock.now(), f"label_vm {change.words}"
                tx.audit.append(at=at, actor=actor(), action=action, subject=vm.full_name, outcome="done")
        return replace(vm, spec=spec)

    def delete(self, tenant: str, name: str, word: str | None = None) -> Started:
        """Give everything back. A create that still runs is cancelled and undone first. ``word``: on its GPUs."""
        with self.store.begin() as tx:
            vm = known_vm(tx, tenant, name)
            running = running_operation(tx, vm)
            if vm.state == "deleting" and running is not None:
                with_word(tx, vm, word, running)
                return Started(operation=running, name=name, existing=True)
            check_may_delete(tx, vm)
            inputs = with_word(tx, vm, word, None)
            if running is not None:
                tx.operations.request_cancel(running)
            started = self._begin(tx, "delete_lost_vm" if vm.state == "lost" else "delete_vm", vm, more=inputs)
            self._set_state(tx, vm.id, "deleting")
        return self._submitted(started)

    def start(self, tenant: str, name: str) -> Started:
        """One that has no place claims it anew, on the host where its disk is; one that is suspended goes on.

        :raises Conflict: ``vm.busy``, ``vm.running``, ``lease.over``, ``vm.not_resumable``, ``gpu.out_of_service``
        :raises NoCapacity, QuotaExceeded: as :meth:`create` does
        """
        with self.store.read() as tx:
            vm = known_vm(tx, tenant, name)
        if vm.state == "stopped" and vm.suspended_bytes is not None:
            return self.suspension.resume(tenant, name)
        return self._raced(lambda: self._restart(tenant, name))

    def _restart(self, tenant: str, name: str) -> Started:
        with self.planner.index.current(), self.store.read() as tx:
            vm = known_vm(tx, tenant, name)
            if vm.deallocated is None or vm.state != "stopped":
                plan = None
            else:
                check_lease(vm, self.planner.clock.now())
                plan = self.planner.plan(tx, replace(vm.spec, host=vm.host), vm)
                self.planner.reserve(plan)
        try:
            return self._begin_start(tenant, name, plan)
        finally:
            self.planner.index.release(vm.id)

    def _begin_start(self, tenant: str, name: str, plan: VmPlan | None) -> Started:
        """:raises ClaimLost: it has got its place back meanwhile, or lost it"""
        with self.store.begin() as tx:
            vm = known_vm(tx, tenant, name)
            if vm.state in {"running", "starting"}:
                check_runs_well(tx, vm)
                return self._wanted(tx, vm, "running", "start_vm", settled="running")
            check_state(vm, "stopped")
            if is_held(tx, vm) and gets_driver(tx, tx.hosts.get(vm.host)):
                return self._wanted(tx, vm, "running", "start_vm", settled="stopped")
            check_host(tx, vm)
            if vm.deallocated is None:
                check_gpus(tx, vm)
            check_lease(vm, self.planner.clock.now())
            check_guest_driver(tx, vm)
            if plan is not None and vm.deallocated is not None:
                started = self._placed_again(tx, vm, plan)
            elif plan is None and vm.deallocated is None:
                started = self._begin(tx, "start_vm", vm)
            else:
                raise ClaimLost(f"VM {name} was changed meanwhile")
            self._set_state(tx, vm.id, "starting")
        return started

    def _placed_again(self, tx: Transaction, vm: Vm, plan: VmPlan) -> Started:
        """Claimed like a new VM, on the host where its disk is. :raises ClaimLost: its snapshots are others now"""
        if plan.claim.disk_bytes != vm.spec.host_disk_bytes + vm.snapshot_bytes:
            raise ClaimLost(f"VM {vm.full_name} was changed meanwhile")
        placed = replace(vm, devices=plan.vm.devices, cpus=plan.vm.cpus, nic=plan.vm.nic, deallocated=None)
        within_quota(tx, placed, vm)
        check_still_open(tx, vm)
        plan.take(tx)
        before = [asdict(device) for device in vm.devices]
        return self._begin(
            tx, "start_freed_vm", placed, more={"freed": vm.deallocated, "devices": before, "why_there": plan.why}
        )

    def stop(self, tenant: str, name: str, *, force: bool = False) -> Started:
        """Shut down (power off after a grace time, at once with ``force``) and remove the device; the claim stays.

        :raises Conflict: ``vm.busy``"""
        with self.store.begin() as tx:
            vm = known_vm(tx, tenant, name)
            if vm.state in {"stopping", "stopped"} and (vm.wanted == "stopped" or is_held(tx, vm)):
                return self._wanted(tx, vm, "stopped", "stop_vm", settled="stopped")
            if vm.state != "stopped":  # a guest that has shut itself down: from now on that is wanted
                check_state(vm, "running")
            started = self._begin(tx, "stop_vm", vm, more={"force": True} if force else None)
            self._set_state(tx, vm.id, "stopping")
        return self._submitted(started)

    def _wanted(self, tx: Transaction, vm: Vm, wanted: WantedState, action: str, *, settled: VmState) -> Started:
        """Of one that is so, or is stopped for a driver upgrade, which starts it again if its user wants it then."""
        if vm.wanted != wanted:
            tx.vms.update(replace(vm, wanted=wanted))
            at = self.planner.clock.now()
            tx.audit.append(at=at, actor=actor(), action=action, subject=vm.full_name, outcome="accepted")
        return _so_already(vm, settled=settled)

    def restart(self, tenant: str, name: str, *, force: bool = False) -> Started:
        """Shut down as :meth:`stop` does, and start again in its place.

        :raises Conflict: ``vm.busy``, ``lease.over``"""
        with self.store.begin() as tx:
            vm = known_vm(tx, tenant, name)
            check_state(vm, "running")
            check_lease(vm, self.planner.clock.now())
            started = self._begin(tx, "restart_vm", vm, more={"force": True} if force else None)
            self._set_state(tx, vm.id, "stopping")
        return self._submitted(started)

    def rename(self, tenant: str, name: str, new: str) -> Started:
        """Another name for one that is stopped; what was done to it is kept under the names that it had then.

        :raises Conflict: ``vm.exists``, ``vm.running``, ``vm.busy``; :raises InvalidInput: ``vm.name_invalid``"""
        check_name(new, what="vm")
        with self.store.begin() as tx:
            vm = known_vm(tx, tenant, name)
            if vm.spec.name == new:
                return Started(operation=None, name=new, existing=True)
            check_may_rename(tx, vm)
            tx.vms.rename(vm.id, new)
            operation = new_operation("rename_vm", vm, clock=self.planner.clock, ids=self.planner.ids)
            tx.vms.update(held_by(operation, replace(vm, spec=replace(vm.spec, name=new))))
            inputs: dict[str, object] = {"vm": new, **undo_inputs(vm), "name_before": vm.spec.name}
            record(tx, operation, host=vm.host, inputs=inputs, said=f"to {new}")
        return self._submitted(Started(operation=operation.id, name=new))

    def _set_state(self, tx: Transaction, vm_id: str, state: VmState) -> None:
        vm = tx.vms.find_id(vm_id)
        if vm is not None:
            tx.vms.update(replace(vm, state=state))

    def _submitted(self, started: Started) -> Started:
        for operation in (*started.first, started.operation, started.provisioning):
            if operation is not None:
                self.engine.submit(operation)
        return started


def _so_already(vm: Vm, *, settled: VmState) -> Started:
    """What made it so is over and is nobody's news; what is on its way there is worth following."""
    return Started(operation=None if vm.state == settled else vm.operation, name=vm.spec.name, existing=True)


def _repeated(tx: Transaction, vm: Vm, request: CreateVm) -> Started:
    """The same VM asked for again. How it is started, for how long, and who keeps it in a file, is no part of it."""
    kept = vm.spec.user_data
    user_data = None if kept is None else tx.secrets.get(kept)
    if short_of(vm.spec.image, request.tenant) == request.image:
        request = replace(request, image=vm.spec.image)
    networks = vm.spec.networks if tuple(map(short_name, vm.spec.networks)) == request.networks else request.networks
    volumes = vm.spec.volumes if attached_names(vm) == request.volumes else request.volumes
    pool = vm.spec.pool if request.pool in {None, short_of_pool(vm.spec.pool or NO_POOL)} else request.pool
    wanted: VmSpec = replace(spec_of(request, kept, networks, volumes, pool), start=vm.spec.start, label=vm.spec.label)
    as_it_is = vm.spec == wanted and user_data == request.user_data and not is_of_another(request, vm.spec)
    if not as_it_is or not check_addresses(vm, request.addresses):
        raise already_there(vm, wanted)
    check_labelled(vm, request.labels, protected=request.protected)
    if vm.state == "deleting":
        raise Conflict("vm.being_deleted", f"VM {vm.spec.name} is being deleted", hint="wait until it is gone")
    running = running_operation(tx, vm)
    then = None if running is None else tx.operations.get(running).inputs.get("provisioning")
    provisioning = then if isinstance(then, str) else None
    return Started(operation=running, name=vm.spec.name, existing=True, provisioning=provisioning)
