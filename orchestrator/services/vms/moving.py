# SPDX-License-Identifier: Apache-2.0
"""Moving VMs to other hosts: a VM goes with its disk, and one that runs with its memory and the state of its devices.
Where it may go, services/vms/moves.py says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from orchestrator.core.advice.outlook import NEVER_FITS
from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, Reason
from orchestrator.core.hosts.nic import nic_mac
from orchestrator.core.maintenance.leaving import WAIT
from orchestrator.core.moves.forecast import Forecast, bounds_of, copy_time
from orchestrator.core.moves.moves import Moving, barred, barred_hosts, limits_onto_its, of_dead_host, own_verdicts
from orchestrator.core.moves.verdicts import MoveKind, MoveLimit, limits_on
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.steps.move_forecast import forecast_of
from orchestrator.operations.steps.moving import stop_awaits
from orchestrator.ports.engine import Engine
from orchestrator.services.begin import held_by, new_operation, record, undo_inputs
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.messages import MovePlan, MoveVm, Started
from orchestrator.services.tenancy.quotas import within_quota
from orchestrator.services.vm_checks import check_idle, check_lease, check_state, known_vm
from orchestrator.services.vms.moves import MoveService
from orchestrator.services.vms.planning import Leaving, Planner, VmPlan, check_still_open
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction

_RACES = 5
"""How often a lost race for a place is planned again."""
_CANDIDATES = 3
"""Hosts that may refuse a VM's state before nobody looks for another."""

_STAYS = frozenset({"vm.stays", "gpu.no_capacity", NEVER_FITS})
"""What a VM that runs may be refused with, and one that is shut down not."""

T = TypeVar("T")


class _Refused(Exception):
    """By the host that placement chose: the VM's state goes onto none of the GPUs that it would get there."""

    def __init__(self, vm: Vm, host: str, limits: tuple[MoveLimit, ...]) -> None:
        super().__init__(host)
        self.vm, self.host, self.limits = vm, host, limits


@dataclass(frozen=True, kw_only=True)
class VmMoves:
    """A place is claimed where a VM goes before anything is done; what it has where it is stays its until the end."""

    store: Store
    engine: Engine
    planner: Planner
    moves: MoveService

    def plan(self, request: MoveVm) -> MovePlan:
        """What :meth:`move` would do; raises what it would raise."""
        plan, running = self._or_cold(request, lambda request: self._among(request, partial(self._plan, request)))
        if running is None:
            return plan
        with self.store.read() as tx:
            host, disk_bytes = tx.hosts.get(running.host), _disk_file(tx, running)
        load = self.moves.load(host, running)  # nobody is asked while the fleet is held
        if load is None:
            return plan
        of_pair = (plan.source, plan.target, request.max_bytes_per_s)
        forecast = forecast_of(self.store, load, disk_bytes, *of_pair)
        (low_s, high_s), (least_s, most_s) = bounds_of(forecast.takes), bounds_of(forecast.pause)
        return replace(plan, live_low_s=low_s, live_high_s=high_s, pause_low_s=least_s, pause_high_s=most_s)

    def _plan(self, request: MoveVm, off: frozenset[str]) -> tuple[MovePlan, Vm | None]:
        """And the VM where it moves while it runs."""
        with self.planner.index.current() as fleet, self.store.read() as tx:
            vm = self._settled(tx, request)
            plan = self._planned(tx, fleet, vm, request, off)
            if request.spec is not None:
                within_quota(tx, _place_for(replace(vm, spec=request.spec), plan.vm), vm)
            live = _way_of(vm, request) == "live"
            forecast = None if live else _forecast(tx, request, _disk_file(tx, vm), vm.host, plan.vm.host)
            return MovePlan(
                source=vm.host,
                target=plan.vm.host,
                gpus=tuple(device.gpu for device in plan.vm.devices),
                why=plan.why,
                disk_bytes=vm.spec.host_disk_bytes,
                copy_low_s=None if forecast is None else forecast.low_s,
                copy_high_s=None if forecast is None else forecast.high_s,
                live=live,
            ), vm if live else None

    def move(self, request: MoveVm) -> Started:
        """:raises NotFound: ``vm.unknown``, ``host.unknown``
        :raises Conflict: ``vm.busy``, ``vm.stays``, ``vm.not_now``, ``lease.over``
        :raises NoCapacity: ``gpu.no_capacity`` with reasons"""
        for _ in range(_RACES):
            try:
                started = self._or_cold(request, lambda request: self._among(request, partial(self._move, request)))
            except ClaimLost:
                continue
            self.engine.submit(str(started.operation))
            return started
        hint = "many VMs are being made at once; try again"
        raise NoCapacity("gpu.no_capacity", "others were faster at every try", hint=hint)

    def _or_cold(self, request: MoveVm, act: Callable[[MoveVm], T]) -> T:
        """What ``act`` returns, of the VM as it runs; else shut down for it, where whoever asks would have that."""
        try:
            return act(request)
        except (Conflict, NoCapacity, InvalidInput) as error:
            if not request.or_cold or error.code not in _STAYS:
                raise
        return act(replace(request, cold=True))

    def _among(self, request: MoveVm, act: Callable[[frozenset[str]], T]) -> T:
        """What ``act`` returns, which gets the hosts that it leaves out. Where placement's choice does not take the
        VM's state, or has not been asked, it is asked; where it refuses, another is chosen. Nobody is asked while the
        fleet is held."""
        refused: dict[str, _Refused] = {}
        questioned = set[str]()
        while True:
            try:
                return act(frozenset(refused))
            except NoCapacity as error:
                if not refused:
                    raise
                raise _stays_off(refused) from error
            except _Refused as error:
                if error.host not in questioned:
                    questioned.add(error.host)
                    self.moves.to_host(request.tenant, request.name, error.host)
                    continue
                refused[error.host] = error
                if request.host is not None or len(refused) == _CANDIDATES:
                    raise _stays_off(refused) from error

    def _move(self, request: MoveVm, off: frozenset[str]) -> Started:
        with self.planner.index.current() as fleet, self.store.read() as tx:
            vm = self._settled(tx, request)
            plan = self._planned(tx, fleet, vm, request, off)
            self.planner.reserve(plan)
        try:
            with self.store.begin() as tx:
                return self.begin(tx, request, vm, plan)
        finally:
            self.planner.release(plan)

    def _planned(self, tx: Transaction, fleet: FleetIndex, vm: Vm, request: MoveVm, off: frozenset[str]) -> VmPlan:
        """``off``: hosts that it does not go to.

        :raises Conflict: ``vm.stays``; :raises NoCapacity: with reasons; :raises _Refused: by the one that is best"""
        moving, way, host = self.moves.moving(tx, fleet, vm), _way_of(vm, request), request.host
        other_drivers = frozenset[str]()
        if host is None:
            limits = next(verdict.limits for verdict in own_verdicts(moving.traveller) if verdict.kind == way)
            hosts = [(viewed.view.name, viewed.facts) for viewed in fleet.fleet().hosts]
            off |= barred_hosts(moving, way, hosts)
            if way == "live" and moving.source is not None:
                other_drivers = frozenset(name for name, facts in hosts if facts.driver != moving.source.driver)
        else:
            viewed = fleet.host(host)
            limits = barred(moving, way, host, None if viewed is None else viewed.facts)
        if request.evacuate:
            limits = of_dead_host(vm, limits)
        if limits:
            raise _stays(vm, {vm.host if host is None else host: limits})
        try:  # those are likely to refuse its state
            plan = self._placed(tx, vm, request, off | other_drivers)
        except (NoCapacity, InvalidInput):
            if other_drivers <= off:
                raise
            plan = self._placed(tx, vm, request, off)
        target = fleet.host(plan.vm.host)
        if way == "live" and target is not None and (limits := _of_its_gpus(moving, plan.vm, target.facts)):
            raise _Refused(vm, plan.vm.host, limits)
        return plan

    def planned(self, tx: Transaction, fleet: FleetIndex, vm: Vm, request: MoveVm) -> VmPlan:
        """Of a move that was found legal in this moment.

        :raises Conflict: ``vm.stays``; :raises NoCapacity: with reasons"""
        try:
            return self._planned(tx, fleet, vm, request, frozenset())
        except _Refused as error:
            raise _stays_off({error.host: error}) from error

    def _placed(self, tx: Transaction, vm: Vm, request: MoveVm, off: frozenset[str]) -> VmPlan:
        spec = replace(request.spec or vm.spec, host=request.host, gpu=request.gpu)
        return self.planner.plan(tx, spec, bound=Leaving(vm, off))

    def _settled(self, tx: Transaction, request: MoveVm) -> Vm:
        """:raises NotFound: ``vm.unknown``
        :raises Conflict: ``vm.busy``, ``vm.not_now``, ``lease.over``"""
        vm = known_vm(tx, request.tenant, request.name)
        if vm.state != "running":
            check_state(vm, "stopped", suspended=request.evacuate)
        check_idle(tx, vm)
        if vm.state == "running" and request.cold:
            now = self.planner.clock.now()
            check_lease(vm, now)
            if not request.force:
                _check_consent(tx, vm, now)
        return vm

    def begin(self, tx: Transaction, request: MoveVm, planned_for: Vm, plan: VmPlan) -> Started:
        """Not submitted yet.

        :raises ClaimLost: what was planned is true no more"""
        vm = self._settled(tx, request)
        if vm != planned_for:
            raise ClaimLost(f"VM {vm.full_name} has changed")
        check_still_open(tx, plan.vm)
        arrived = _place_for(replace(vm, spec=request.spec or vm.spec), plan.vm)
        within_quota(tx, arrived, vm)
        kind = _kind_of(vm, request)
        operation = new_operation(kind, vm, clock=self.planner.clock, ids=self.planner.ids, why=request.why)
        tx.places.hold(replace(arrived, operation=operation.id))
        plan.take(tx)
        tx.vms.update(replace(held_by(operation, vm), state="moving"))
        copy_bytes = _disk_file(tx, vm)
        live = _way_of(vm, request) == "live"
        forecast = None if live else _forecast(tx, request, copy_bytes, vm.host, plan.vm.host)
        inputs: dict[str, object] = {
            "vm": vm.spec.name,
            **undo_inputs(vm),
            "source": vm.host,
            "target": plan.vm.host,
            "place": plan.vm.id,
            "max_bytes_per_s": request.max_bytes_per_s,
            "or_cold": request.or_cold,
            "force": request.force,
            "why_there": plan.why,
            "copy_bytes": copy_bytes,
            "forecast_s": None if forecast is None else [forecast.low_s, forecast.high_s],
        }
        record(tx, operation, host=plan.vm.host, inputs=inputs, said=f"from {vm.host} to {plan.vm.host}")
        return Started(operation=operation.id, name=vm.spec.name)


def _forecast(tx: Transaction, request: MoveVm, copy_bytes: int, source: str, target: str) -> Forecast | None:
    return copy_time(copy_bytes, tx.disk_copies.measured(source, target), max_bytes_per_s=request.max_bytes_per_s)


def _disk_file(tx: Transaction, vm: Vm) -> int:
    """Bytes of the file that is copied, as last observed; none of one in a pool."""
    if vm.spec.pool is not None:
        return 0
    snapshot = tx.hosts.snapshot(vm.host)
    files = () if snapshot is None else snapshot.volumes
    return next((file.size_bytes for file in files if file.name == vm.volume), vm.spec.disk_bytes)


def _place_for(vm: Vm, planned: Vm) -> Vm:
    """What is held for it. Its guest keeps the hardware address of its function of a network card."""
    nic = None if planned.nic is None else replace(planned.nic, mac=nic_mac(vm.id))
    arrived = replace(vm, host=planned.host, devices=planned.devices, cpus=planned.cpus, nic=nic)
    return replace(arrived, id=planned.id, state="moving", lease_end=None)


def _way_of(vm: Vm, request: MoveVm) -> MoveKind:
    return "live" if _kind_of(vm, request) == "move_running_vm" else "cold"


def _kind_of(vm: Vm, request: MoveVm) -> str:
    """Of the operation."""
    if request.evacuate:
        return "evacuate_stopped_vm" if vm.state == "stopped" else "evacuate_vm"
    return "move_vm" if vm.state == "stopped" else "move_vm_cold" if request.cold else "move_running_vm"


def _of_its_gpus(moving: Moving, planned: Vm, target: HostFacts) -> tuple[MoveLimit, ...]:
    """What keeps the state of its devices from the GPUs that it would get."""
    return limits_on("live", limits_onto_its(moving, planned.devices, target, planned.host))


def _check_consent(tx: Transaction, vm: Vm, now: float) -> None:
    """A tenant's VMs are stopped when it lets them be, for a move as for maintenance.

    :raises Conflict: ``vm.not_now``"""
    tenant = vm.spec.tenant
    awaited = stop_awaits(tx, tenant, now)
    if awaited is not None:
        when = "by its users alone" if awaited.policy == WAIT else f"at {awaited.policy} UTC"
        name = f"{vm.spec.name} --tenant {tenant}"
        hint = f"'vgpuctl vm move {name} --cold --force' moves it now all the same"
        raise Conflict("vm.not_now", f"VMs of tenant {tenant} are stopped {when}", hint=hint)


def _stays_off(refused: Mapping[str, _Refused]) -> Conflict:
    """By host."""
    vm = next(iter(refused.values())).vm
    return _stays(vm, {host: refusal.limits for host, refusal in refused.items()})


def _stays(vm: Vm, refused: Mapping[str, tuple[MoveLimit, ...]]) -> Conflict:
    """``refused``: by host, what keeps it from going there."""
    name = f"{vm.spec.name} --tenant {vm.spec.tenant}"
    limits = [limit for of_host in refused.values() for limit in of_host]
    tried = f" to {', '.join(refused)}" if len(refused) > 1 else ""
    cures = "" if tried else "; ".join(dict.fromkeys(limit.cure for limit in limits if limit.cure))
    return Conflict(
        "vm.stays",
        f"VM {vm.spec.name} cannot move{tried}: {'; '.join(dict.fromkeys(limit.message for limit in limits))}",
        hint=cures or f"'vgpuctl show-vm {name} --moves' tells where it may, and how",
        reasons=tuple(
            Reason(code=limit.code, message=limit.message, subjects=(host,) if tried else ())
            for host, limits in refused.items()
            for limit in limits
        ),
    )
