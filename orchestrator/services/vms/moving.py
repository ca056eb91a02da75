# SPDX-License-Identifier: Apache-2.0
"""Moving VMs to other hosts: a VM goes with its disk, and one that runs with its memory and the state of its devices.
Where it may go, services/vms/moves.py says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.errors import Conflict, NoCapacity, Reason
from orchestrator.core.hosts.nic import nic_mac
from orchestrator.core.maintenance.leaving import WAIT, wait_of
from orchestrator.core.moves.forecast import Forecast, copy_time
from orchestrator.core.moves.moves import Moving, barred, limits_onto, own_verdicts
from orchestrator.core.moves.verdicts import MoveKind, MoveLimit, limits_on
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.engine import Engine
from orchestrator.services.begin import held_by, new_operation, record, undo_inputs
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.messages import MovePlan, MoveVm, Started
from orchestrator.services.vm_checks import check_idle, check_lease, check_state, known_vm
from orchestrator.services.vms.moves import MoveService
from orchestrator.services.vms.planning import Leaving, Planner, VmPlan, check_still_open
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction

_ASKED = 200
"""Hosts whose drivers are asked where no host was named."""
_RACES = 5
"""How often a lost race for a place is planned again."""


@dataclass(frozen=True, kw_only=True)
class VmMoves:
    """A place is claimed where a VM goes before anything is done; what it has where it is stays its until the end."""

    store: Store
    engine: Engine
    planner: Planner
    moves: MoveService

    def plan(self, request: MoveVm) -> MovePlan:
        """What :meth:`move` would do; raises what it would raise."""
        self._ask_drivers(request)
        with self.planner.index.current() as fleet, self.store.read() as tx:
            vm = self._settled(tx, request)
            plan = self._planned(tx, fleet, vm, request)
            forecast = _forecast(tx, request, _disk_file(tx, vm), vm.host, plan.vm.host)
            return MovePlan(
                source=vm.host,
                target=plan.vm.host,
                gpus=tuple(device.gpu for device in plan.vm.devices),
                why=plan.why,
                disk_bytes=vm.spec.disk_bytes,
                copy_low_s=None if forecast is None else forecast.low_s,
                copy_high_s=None if forecast is None else forecast.high_s,
            )

    def move(self, request: MoveVm) -> Started:
        """:raises NotFound: ``vm.unknown``, ``host.unknown``
        :raises Conflict: ``vm.busy``, ``vm.stays``, ``vm.not_now``, ``lease.over``
        :raises NoCapacity: ``gpu.no_capacity`` with reasons"""
        self._ask_drivers(request)
        for _ in range(_RACES):
            try:
                started = self._move(request)
            except ClaimLost:
                continue
            self.engine.submit(str(started.operation))
            return started
        hint = "many VMs are being made at once; try again"
        raise NoCapacity("gpu.no_capacity", "others were faster at every try", hint=hint)

    def _ask_drivers(self, request: MoveVm) -> None:
        """Where the VM's state may go: nobody is asked while the fleet is held."""
        with self.store.read() as tx:
            way = _way_of(known_vm(tx, request.tenant, request.name), request)
        if way == "cold":
            return
        if request.host is None:
            self.moves.of_vm(request.tenant, request.name, most=_ASKED)
        else:
            self.moves.to_host(request.tenant, request.name, request.host)

    def _move(self, request: MoveVm) -> Started:
        with self.planner.index.current() as fleet, self.store.read() as tx:
            vm = self._settled(tx, request)
            plan = self._planned(tx, fleet, vm, request)
            self.planner.reserve(plan)
        try:
            with self.store.begin() as tx:
                return self._begin(tx, request, vm, plan)
        finally:
            self.planner.index.release(plan.vm.id)

    def _planned(self, tx: Transaction, fleet: FleetIndex, vm: Vm, request: MoveVm) -> VmPlan:
        """:raises Conflict: ``vm.stays``; :raises NoCapacity: with reasons"""
        moving, way, host = self.moves.moving(tx, fleet, vm), _way_of(vm, request), request.host
        of_hosts = {
            viewed.view.name: barred(moving, way, viewed.view.name, viewed.facts)
            for viewed in (fleet.fleet().hosts if host is None else filter(None, (fleet.host(host),)))
        }
        own = (verdict.limits for verdict in own_verdicts(moving.traveller) if verdict.kind == way)
        limits = next(own) if host is None else of_hosts.get(host, ())
        if limits:
            raise _stays(vm, limits)
        leaving = Leaving(vm, frozenset(name for name, limits in of_hosts.items() if limits))
        plan = self.planner.plan(tx, replace(vm.spec, host=host, gpu=None), leaving=leaving)
        target = fleet.host(plan.vm.host)
        if way == "live" and target is not None and (limits := _of_its_gpus(moving, plan.vm, target.facts)):
            raise _stays(vm, limits)
        return plan

    def _settled(self, tx: Transaction, request: MoveVm) -> Vm:
        """:raises NotFound: ``vm.unknown``
        :raises Conflict: ``vm.busy``, ``vm.not_now``, ``lease.over``"""
        vm = known_vm(tx, request.tenant, request.name)
        if vm.state != "running":
            check_state(vm, "stopped")
        check_idle(tx, vm)
        if vm.state == "running" and request.cold:
            now = self.planner.clock.now()
            check_lease(vm, now)
            if not request.force:
                _check_consent(tx, vm, now)
        return vm

    def _begin(self, tx: Transaction, request: MoveVm, planned_for: Vm, plan: VmPlan) -> Started:
        """:raises ClaimLost: what was planned is true no more"""
        vm = self._settled(tx, request)
        if vm != planned_for:
            raise ClaimLost(f"VM {vm.full_name} has changed")
        check_still_open(tx, plan.vm)
        kind = "move_vm" if vm.state == "stopped" else "move_vm_cold" if request.cold else "move_running_vm"
        operation = new_operation(kind, vm, clock=self.planner.clock, ids=self.planner.ids, why=request.why)
        tx.places.hold(_place_for(vm, plan.vm, operation.id))
        plan.take(tx)
        tx.vms.update(replace(held_by(operation, vm), state="moving"))
        copy_bytes = _disk_file(tx, vm)
        forecast = _forecast(tx, request, copy_bytes, vm.host, plan.vm.host)
        inputs: dict[str, object] = {
            "vm": vm.spec.name,
            **undo_inputs(vm),
            "source": vm.host,
            "target": plan.vm.host,
            "place": plan.vm.id,
            "max_bytes_per_s": request.max_bytes_per_s,
            "why_there": plan.why,
            "copy_bytes": copy_bytes,
            "forecast_s": None if forecast is None else [forecast.low_s, forecast.high_s],
        }
        record(tx, operation, host=plan.vm.host, inputs=inputs, said=f"from {vm.host} to {plan.vm.host}")
        return Started(operation=operation.id, name=vm.spec.name)


def _forecast(tx: Transaction, request: MoveVm, copy_bytes: int, source: str, target: str) -> Forecast | None:
    return copy_time(copy_bytes, tx.disk_copies.measured(source, target), max_bytes_per_s=request.max_bytes_per_s)


def _disk_file(tx: Transaction, vm: Vm) -> int:
    """Bytes of the file that is copied, as last observed."""
    snapshot = tx.hosts.snapshot(vm.host)
    files = () if snapshot is None else snapshot.volumes
    return next((file.size_bytes for file in files if file.name == vm.volume), vm.spec.disk_bytes)


def _place_for(vm: Vm, planned: Vm, operation: str) -> Vm:
    """What is held for it. Its guest keeps the hardware address of its function of a network card."""
    nic = None if planned.nic is None else replace(planned.nic, mac=nic_mac(vm.id))
    arrived = replace(vm, host=planned.host, devices=planned.devices, cpus=planned.cpus, nic=nic)
    return replace(arrived, id=planned.id, state="moving", operation=operation, lease_end=None)


def _way_of(vm: Vm, request: MoveVm) -> MoveKind:
    return "live" if vm.state == "running" and not request.cold else "cold"


def _of_its_gpus(moving: Moving, planned: Vm, target: HostFacts) -> tuple[MoveLimit, ...]:
    """What keeps the state of its devices from the GPUs that it would get."""
    gpus = {gpu.address: gpu for gpu in target.gpus}
    bars = (
        bar
        for device, arrived in zip(moving.traveller.vm.devices, planned.devices, strict=True)
        for bar in limits_onto(moving, device, gpus.get(arrived.gpu), target, planned.host)
    )
    return limits_on("live", bars)


def _check_consent(tx: Transaction, vm: Vm, now: float) -> None:
    """A tenant's VMs are stopped when it lets them be, for a move as for maintenance.

    :raises Conflict: ``vm.not_now``"""
    tenant = vm.spec.tenant
    awaited = wait_of({tenant: 1}, tx.policies.maintenance(), None, now)
    if awaited is not None:
        policy = awaited.tenants[0].policy
        when = "by its users alone" if policy == WAIT else f"at {policy} UTC"
        name = f"{vm.spec.name} --tenant {tenant}"
        hint = f"'vgpuctl vm move {name} --cold --force' moves it now all the same"
        raise Conflict("vm.not_now", f"VMs of tenant {tenant} are stopped {when}", hint=hint)


def _stays(vm: Vm, limits: Sequence[MoveLimit]) -> Conflict:
    name = f"{vm.spec.name} --tenant {vm.spec.tenant}"
    return Conflict(
        "vm.stays",
        f"VM {vm.spec.name} cannot move: {limits[0].message}",
        hint=limits[0].cure or f"'vgpuctl show-vm {name} --moves' tells where it may, and how",
        reasons=tuple(Reason(code=limit.code, message=limit.message, subjects=()) for limit in limits),
    )
