# SPDX-License-Identifier: Apache-2.0
"""One run of one seed: users ask, the nemesis strikes, invariants are watched, then everything must settle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from orchestrator.api.use_cases import Services
from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.operation import Operation
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.step import Definition
from orchestrator.sim.fleet import enrolled, new_machine
from orchestrator.sim.hardware import gpu_kind
from orchestrator.sim.in_memory import record_enrolled
from orchestrator.sim.observing import snapshot_of
from orchestrator.store.database import Store
from tests.fakes.recount import miscounted
from tests.simulated.controller import Controller, Surroundings, start
from tests.simulated.databases import SITE, fresh_database
from tests.simulated.invariants import HostView, Memory, broken
from tests.simulated.nemesis import Nemesis
from tests.simulated.network import FaultyFleet
from tests.simulated.schedule import Schedule
from tests.simulated.settled import (
    host_is_as_wanted,
    host_is_empty,
    i4_every_operation_has_ended,
    i5_a_request_made_twice_made_one_vm,
    i20_leases_that_are_over_have_ended,
    nothing_is_found_where_nothing_differs,
)
from tests.simulated.small_ports import EPOCH_S
from tests.simulated.workload import IN_INSTANCES, TENANT, Users

_PROFILES = ("GRID T4-2Q", "GRID T4-4Q", "GRID T4-8Q", "NVIDIA L40S-12Q", "NVIDIA L40S-24Q")
_PAIRS = tuple(
    Offering(name=name, origin="site", kind="time_sliced", vgpu_type=vgpu_type, vgpu_count=2)
    for name, vgpu_type in (("two-of-4q", "GRID T4-4Q"), ("two-of-12q", "NVIDIA L40S-12Q"))
)
_IN_PAIRS = (*(one.name for one in _PAIRS), "l40s-2x48q")
_MODELS = ("Tesla T4", "L40S")
_MIG_MODELS = ("A100 PCIe 80GB", "RTX PRO 6000 Blackwell Server Edition")
_SETTLE_ROUNDS = 12
_ROUND_S = 900.0
_OBSERVE_EVERY_S = 30.0
_AFTER_A_REQUEST_S = ((0.0, 0.3), (0.0, 6.0), (0.0, 60.0))
"""When faults strike: mostly while what was asked for is under way."""
_MADE_BEFORE = (0, 1, 2)
"""So many domains run on the hosts that nobody asked us for."""
_OBSERVED_AT_ONCE = 8
"""Hosts of a large fleet that are looked at on one tick."""


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """How large a run is. ``definitions`` and ``fenced``: see controller.Surroundings.
    ``alone``: nobody else makes domains, and no lease ends, so that what is left happens more often.
    ``mig``: GPUs have vGPUs in GPU instances, alone or several in one, as typed functions and as mediated devices.
    ``urgent``: users also ask for VMs for which others are stopped. ``pairs``: VMs have two vGPUs each.
    All the time wall clocks jump (``clocks``), controllers are stopped and connections are slow (``pauses``)."""

    hosts: int = 3
    requests: int = 24
    faults: int = 10
    seconds: float = 150.0
    definitions: Mapping[str, Definition] = field(default_factory=lambda: DEFINITIONS)
    fenced: bool = True
    alone: bool = False
    urgent: bool = False
    pairs: bool = False
    mig: bool = False
    clocks: bool = False
    pauses: bool = False


MIG = RunPlan(mig=True, alone=True, hosts=4, requests=60, faults=14, seconds=240.0)
"""Enough VMs for the GPUs to be full."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """``broken`` is empty when everything held."""

    seed: int
    broken: tuple[str, ...]
    log: tuple[str, ...]
    operations: int
    virtual_s: float


class Broken(Exception):
    """An invariant does not hold; the arguments say which."""


def simulate(seed: int, plan: RunPlan | None = None) -> Report:
    """The same report for the same arguments, always."""
    return report_of(seed, plan or RunPlan(), Run)


def report_of(seed: int, plan: RunPlan, kind: Callable[[int, RunPlan, Store], Run]) -> Report:
    """Of a run of that kind."""
    with fresh_database() as store:
        return played(kind(seed, plan, store))


def played(run: Run) -> Report:
    """What came of it."""
    found: tuple[str, ...] = ()
    try:
        run.play()
    except Broken as error:
        found = tuple(str(text) for text in error.args)
    finally:
        operations = len(run.operations())
        run.end()
    return Report(
        seed=run.seed, broken=found, log=tuple(run.schedule.log), operations=operations, virtual_s=run.schedule.time
    )


class Run:
    """Implements nemesis.Stage."""

    def __init__(self, seed: int, plan: RunPlan, store: Store) -> None:
        self.seed = seed
        self.schedule = Schedule(seed)
        self._plan = plan
        self._store = store
        self._fleet = FaultyFleet()
        self._memory = Memory()
        self._disturbed: set[str] = set()
        self._touched: set[str] = set()
        """Addresses of hosts that were asked for something or struck."""
        self._skew = 0.0
        self._names: dict[str, str] = {}
        self._around = Surroundings(
            schedule=self.schedule,
            fleet=self._fleet,
            store=store,
            on_change=self._observe,
            definitions=plan.definitions,
            fenced=plan.fenced,
        )
        spare = self._build()
        vms = tuple(f"vm{number}" for number in range(max(8, plan.requests // 3)))
        self._nemesis = Nemesis(
            self.schedule, self._fleet, self, alone=plan.alone, clocks=plan.clocks, pauses=plan.pauses
        )
        by_hand = None if plan.alone else self._nemesis.by_hand
        profiles = _IN_PAIRS if plan.pairs else IN_INSTANCES if plan.mig else _PROFILES
        self._users = Users(self.schedule, vms, profiles, spare, by_hand, urgent=plan.urgent)
        self._controllers: list[Controller] = []
        self._striking = True
        self._observed_at = 0.0
        """When the last look at all hosts began."""

    def _build(self) -> tuple[str, ...]:
        """Enrolled hosts and one that is not; its name."""
        kinds = [gpu_kind(shipped(), model) for model in (_MIG_MODELS if self._plan.mig else _MODELS)]
        kinds += [replace(kind, mediated=True) for kind in kinds] if self._plan.mig else []
        ready = []
        for number in range(self._plan.hosts + 1):
            name = f"h{number}"
            address, kind = f"{name}.test", kinds[number % len(kinds)]
            gpus = [kind] * self.schedule.random.choice((1, 2))
            machine = new_machine(number, gpus, vcpus=16, memory_mib=32768)
            machine.keep_effects = True
            self._fleet.add(address, machine)
            self._names[address] = name
            if number < self._plan.hosts:
                ready.append((name, address, snapshot_of(enrolled(machine, SITE))))
        record_enrolled(self._store, ready, EPOCH_S)
        if self._plan.pairs:
            with self._store.begin() as tx:
                for one in _PAIRS:
                    tx.offerings.put(one)
        return (f"h{self._plan.hosts}",)

    def play(self) -> None:
        """:raises Broken: with everything that was found"""
        self._start()
        self._plan_events()
        self.schedule.run(until=self._plan.seconds)
        self._heal()
        self._settle()
        self._check_settled()
        self._delete_everything()

    def end(self) -> None:
        """Let go of all threads."""
        for controller in self._controllers:
            self.schedule.kill(controller.process)

    def _plan_events(self) -> None:
        draw, plan = self.schedule.random, self._plan
        requests = [draw.uniform(0, plan.seconds) for _ in range(plan.requests)]
        for moment in requests:
            self.schedule.at(moment, self._request)
        for _ in range(plan.faults):
            early = draw.uniform(*draw.choice(_AFTER_A_REQUEST_S))
            self.schedule.at(draw.choice(requests) + early, self._strike)
        for _ in range(0 if plan.alone else draw.choice(_MADE_BEFORE)):
            self._nemesis.make_domain(draw.choice(sorted(self._fleet.machines)))
        self.schedule.at(_OBSERVE_EVERY_S, self._tick)

    def _request(self) -> None:
        now = self._now()
        if now is not None:
            self.schedule.spawn(now.process, "user", lambda: self._users.one_request(now.services))

    def _strike(self) -> None:
        if self._striking:
            address = self._an_address()
            self._touched.add(address)
            self._nemesis.strike(address)
            self._observe_everywhere()

    def _tick(self) -> None:
        """The refresh timer of the controller."""
        now = self._now()
        if now is not None:
            names = sorted(self._names.values())
            if len(names) > _OBSERVED_AT_ONCE:
                names = self.schedule.random.sample(names, _OBSERVED_AT_ONCE)
            for name in names:
                self.schedule.spawn(now.process, "look", partial(now.reconciler.observe, name))
        if self._striking:
            self.schedule.at(_OBSERVE_EVERY_S, self._tick)

    def _an_address(self) -> str:
        """Of a host where something is, more often than of another."""
        busy = sorted(a for a, machine in self._fleet.machines.items() if machine.volumes)
        everywhere = sorted(self._fleet.machines)
        return self.schedule.random.choice(busy if busy and self.schedule.random.random() < 0.8 else everywhere)

    def _now(self) -> Controller | None:
        """The controller that users reach, if one is up."""
        return self._controllers[-1] if self._controllers and self._controllers[-1].process.alive else None

    def _start(self) -> None:
        number = len(self._controllers)
        controller = start(self._around, f"controller-{number}")
        controller.clock.skew = self._skew if number % 2 == 0 else -self._skew  # two machines never agree
        self._controllers.append(controller)
        self.schedule.spawn(controller.process, "recover", partial(self._recover, controller))

    def crash(self) -> None:
        """kill -9 of the controller; another one starts a little later."""
        now = self._now()
        if now is not None:
            self.schedule.kill(now.process)
            self.schedule.at(self.schedule.random.uniform(0.1, 20.0), self._start)

    def pause(self) -> None:
        """SIGSTOP of the controller, long enough for another one to take over; then it wakes up."""
        now = self._now()
        if now is not None and not now.process.paused:
            process = now.process
            self.schedule.pause(process)
            self.schedule.at(10.0, lambda: self._start() if self._now() is now and process.alive else None)
            self.schedule.at(self.schedule.random.uniform(11.0, 60.0), lambda: self.schedule.go_on(process))
            self.schedule.at(90.0, lambda: self.schedule.kill(process) if self._now() is not now else None)

    def jump(self, seconds: float) -> None:
        """The wall clock of the controller that works jumps; those that are paused keep theirs."""
        self._skew += seconds
        now = self._now()
        if now is not None:
            now.clock.skew += seconds

    def disturbed(self, address: str) -> None:
        """Somebody powered domains of that host off."""
        self._disturbed.add(address)

    def _heal(self) -> None:
        self._striking = False
        self._nemesis.heal()
        for controller in self._controllers:
            self.schedule.kill(controller.process)
        self.schedule.note("healed")
        self._skew = 0.0
        self._start()

    def _settle(self) -> None:
        """Give it time; the operator tries stuck operations again."""
        for _ in range(_SETTLE_ROUNDS):
            self._in_fiber(self._observe_all)
            self._until_idle()
            stuck = self._operations("stuck")
            if not stuck and not self._operations("queued", "running", "undoing"):
                break
            for operation in stuck:
                self._in_fiber(partial(self._retry, operation))
            self._until_idle()
        self._observed_at = self.schedule.time
        self._in_fiber(self._observe_all)
        self._until_idle()

    def _until_idle(self) -> None:
        now, limit = self._controllers[-1], self.schedule.time + _ROUND_S
        self.schedule.run(until=limit, quiet=lambda: not now.process.fibers)

    def _in_fiber(self, action: Callable[[], None]) -> None:
        self.schedule.spawn(self._controllers[-1].process, "settle", action)

    def _observe_all(self) -> None:
        """In a large fleet: where anything has happened at all."""
        large = len(self._names) > _OBSERVED_AT_ONCE
        names = (name for address, name in self._names.items() if not large or address in self._touched)
        for name in sorted(names):
            self._controllers[-1].reconciler.observe(name)

    def _retry(self, operation: Operation) -> None:
        try:
            self._controllers[-1].services.operations.retry(operation.id)
        except VgpuctlError as error:
            self.schedule.note(f"retry {operation.id[:8]}: {error.code}")

    def _delete(self, services: Services, name: str) -> None:
        services.vms.delete(TENANT, name)

    def _recover(self, controller: Controller) -> None:
        controller.engine.recover()
        controller.guests.begin()

    def operations(self) -> tuple[Operation, ...]:
        """All that the database has."""
        with self._store.read() as tx:
            return tx.operations.list(limit=100_000)

    def _operations(self, *states: str) -> list[Operation]:
        return [one for one in self.operations() if one.state in states]

    def _observe(self, address: str) -> None:
        self._touched.add(address)
        found = broken(self._view(address), self._memory)
        if found:
            raise Broken(*found)

    def _observe_everywhere(self) -> None:
        for address in self._busy():
            self._observe(address)

    def _busy(self) -> list[str]:
        """Hosts with something on them or in the database."""
        with self._store.read() as tx:
            claimed = {vm.host for vm in tx.vms.list()}
        return [
            address
            for address, machine in self._fleet.machines.items()
            if machine.volumes or machine.ledger.owners or self._names[address] in claimed or machine.foreign
        ]

    def _view(self, address: str) -> HostView:
        machine, name = self._fleet.machine(address), self._names[address]
        with self._store.read() as tx:
            vms = {vm.id: vm for vm in tx.vms.list(host=name)}
            claims = tx.claims.of_host(name)
        effects, machine.effects = tuple(machine.effects), []
        return HostView(host=name, machine=machine, vms=vms, claims=claims, effects=effects, operation=self._operation)

    def _operation(self, operation_id: str) -> Operation:
        with self._store.read() as tx:
            return tx.operations.get(operation_id).operation

    def _check_settled(self) -> None:
        with self._store.read() as tx:
            operations, standing = tx.operations.list(limit=100_000), tx.findings.list()
            found = list(miscounted(tx))
        views = [self._view(address) for address in self._busy()]
        found += [*i4_every_operation_has_ended(operations), *i5_a_request_made_twice_made_one_vm(views)]
        for view in views:
            found += host_is_as_wanted(view, f"{view.host}.test" in self._disturbed)
        with_foreign = {self._names[one] for one in self._nemesis.made_on}
        disturbed = {self._names[one] for one in self._disturbed}
        found += nothing_is_found_where_nothing_differs(standing, disturbed, with_foreign)
        found += i20_leases_that_are_over_have_ended(views, EPOCH_S + self._observed_at)
        if found:
            raise Broken(*found)

    def _delete_everything(self) -> None:
        self.schedule.note("delete everything")
        with self._store.read() as tx:
            names = [vm.spec.name for vm in tx.vms.list()]
        services = self._controllers[-1].services
        for name in names:
            self._in_fiber(partial(self._delete, services, name))
        self._settle()
        found = [*i4_every_operation_has_ended(tuple(self._operations("queued", "running", "undoing", "stuck")))]
        for address in self._busy():
            found += host_is_empty(self._view(address))
        with self._store.read() as tx:
            found += miscounted(tx)
        if found:
            raise Broken(*found)
