# SPDX-License-Identifier: Apache-2.0
"""A soak in which everything is in the mix: the database goes back, wall clocks jump by days, drivers are upgraded.

A database goes back to a copy: of a while ago, as when a backup is restored, or of a moment ago, as when its server
failed over. Controllers end at once then (what a server does until it has noticed: tests/contract/engine), and an
operator settles what is newer, as ``server settle-restored`` lists it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from sqlalchemy import make_url

from orchestrator.api.routes.findings import FindingAnswer
from orchestrator.api.use_cases import Services
from orchestrator.cli.restored import Item, items_of, remove, take_over
from orchestrator.client.client import Client
from orchestrator.core.errors import NotFound, VgpuctlError
from orchestrator.core.operation import Operation
from orchestrator.core.units import GIB
from orchestrator.server.backup import settle_in
from orchestrator.services.messages import AdoptVm, Started
from orchestrator.services.vms.vms import VmService
from orchestrator.store.database import Store
from tests.operations.resettable import ResettableDatabase, ResettablePostgres, ResettableSqlite
from tests.simulated.controller import Controller, start
from tests.simulated.databases import open_database
from tests.simulated.invariants import (
    HostView,
    i1_a_slot_belongs_to_one_vm,
    i6_an_adoption_writes_the_ledger_alone,
    i6_nothing_in_use_is_taken_away,
    i8_a_controller_that_was_replaced_does_not_act,
    i9_a_vm_runs_on_one_host,
    i19_only_a_wish_stops_a_running_vm,
    objects_on,
)
from tests.simulated.run import Broken, Report, RunPlan, played
from tests.simulated.small_ports import EPOCH_S
from tests.simulated.upgrades import UpgradingRun
from tests.simulated.workload import TENANT

SOAK: Final = RunPlan(hosts=4, requests=40, faults=16, seconds=400.0, alone=True)
_DAY_S: Final = 86_400.0
_JUMPS_S: Final = (-100 * _DAY_S, -_DAY_S, _DAY_S, 100 * _DAY_S)
_OF_ITS_OWN: Final = 0.5
"""How often a strike is one of these rather than one of the nemesis."""
_ROUNDS: Final = 12
_MAKING: Final = frozenset({"create_vm", "create_stopped_vm", "preempt_for_vm"})
_STRIKE: Final = re.compile(r" nemesis (\w+)")
_TRUE_WHATEVER_THE_DATABASE_SAYS: Final = (
    i1_a_slot_belongs_to_one_vm,
    i6_nothing_in_use_is_taken_away,
    i6_an_adoption_writes_the_ledger_alone,
    i8_a_controller_that_was_replaced_does_not_act,
    i9_a_vm_runs_on_one_host,
    i19_only_a_wish_stops_a_running_vm,
)
"""Of a host whose database was restored, until it is settled."""


def soak(seed: int, url: str, *, two: bool) -> Report:
    """``url``: of a furnished database. ``two``: users reach two controllers."""
    return played(SoakRun(seed, SOAK, open_database(url), url, two=two))


def strikes_of(report: Report) -> Counter[str]:
    """By what it was."""
    return Counter(match[1] for line in report.log if (match := _STRIKE.search(line)))


class SoakRun(UpgradingRun):
    """Each host has a VM with a data volume, which nobody deletes; leases end; what is restored is settled."""

    def __init__(self, seed: int, plan: RunPlan, store: Store, url: str, *, two: bool) -> None:
        super().__init__(seed, plan, store)
        self._url = url
        self._two = two
        self._users = replace(self._users, by_hand=())
        self._operations_before: dict[str, Operation] = {}
        """What the database knew when it went back."""
        self._known_operations: set[str] = set()
        self._disks: dict[str, dict[str, str]] = {address: {} for address in self._names}
        """Address → disk → its VM."""
        self._data: dict[str, dict[str, int]] = {address: {} for address in self._names}
        self._made: set[str] = set()
        """VMs that were once whole."""
        self._removed: set[str] = set()
        """What the operator said that nobody needs."""

    def _create_kept(self, number: int) -> None:
        services = self._controllers[-1].services
        services.volumes.create(TENANT, f"data{number}", GIB)
        services.vms.create(replace(self._kept_wish(number), volumes=(f"data{number}",)))

    def _prepare(self) -> None:
        super()._prepare()
        for address in self._names:
            self._data[address] = dict(self._fleet.machine(address).data)
        if not any(self._data.values()):
            raise Broken("no data volume was made")

    def _strike(self) -> None:
        if not self._striking:
            return
        draw = self.schedule.random
        if draw.random() >= _OF_ITS_OWN:
            super()._strike()
            return
        strikes: tuple[tuple[str, Callable[[], None]], ...] = (
            ("restore", partial(self._go_back_after, draw.uniform(10.0, 60.0))),
            ("failover", partial(self._go_back_after, draw.uniform(0.05, 3.0))),
            ("clock", partial(self.jump, 0.0)),
            ("upgrade", self._begin),
        )
        name, strike = draw.choice(strikes)
        self.schedule.note(f"nemesis {name}")
        strike()

    def _begin(self) -> None:
        """A host that failed in an earlier upgrade is known as one after a later one, too."""
        upgrade = self._newest()
        failed = () if upgrade is None else (one.host for one in upgrade.hosts if one.phase == "failed")
        self._disturbed |= {f"{host}.test" for host in failed}
        super()._begin()

    def jump(self, _seconds: float) -> None:
        """For a while, by days."""
        seconds = self.schedule.random.choice(_JUMPS_S)
        super().jump(seconds)
        self.schedule.at(self.schedule.random.uniform(20.0, 90.0), partial(self._jump_back, -seconds))

    def _jump_back(self, seconds: float) -> None:
        if self._striking:
            super().jump(seconds)

    def _go_back_after(self, seconds: float) -> None:
        """A copy is made now."""
        copy = _database(self._url)
        copy.keep()
        self.schedule.at(seconds, partial(self._go_back, copy))

    def _go_back(self, copy: ResettableDatabase) -> None:
        if self._striking:
            self.schedule.note("the database goes back")
            for controller in self._controllers:
                self.schedule.kill(controller.process)
            with self._store.read() as tx:
                self._operations_before |= {one.id: one for one in tx.operations.list(limit=100_000)}
            self._store.close()
            copy.restore()
            self._store = open_database(self._url)
            self._around = replace(self._around, store=self._store)
            settle_in(self._store, EPOCH_S + self.schedule.time + self._skew)
            self._known_operations = set()
            self._disturbed |= set(self._names)
            self.schedule.at(self.schedule.random.uniform(0.1, 20.0), self._start)
        copy.close()

    def end(self) -> None:
        super().end()
        self._store.close()

    def _start(self) -> None:
        """Of two, one takes up what has not ended."""
        if self._two and not self._others():
            self._controllers.append(start(self._around, f"controller-{len(self._controllers)}"))
        super()._start()

    def _others(self) -> list[Controller]:
        return [one for one in self._controllers if one.process.alive and not one.process.paused]

    def _now(self) -> Controller | None:
        up = self._others()
        return self.schedule.random.choice(up) if self._two and self._striking and up else super()._now()

    def _tick(self) -> None:
        super()._tick()
        for controller in self._others():
            self.schedule.spawn(controller.process, "time", controller.time.look)
            self.schedule.spawn(controller.process, "retention", partial(_forget, controller))
        with self._store.read() as tx:
            known = {one.id for one in tx.operations.list(limit=100_000)}
        if self._known_operations - known:
            raise Broken(f"operations were forgotten early: {sorted(self._known_operations - known)}")
        self._known_operations = known

    def _operation(self, operation_id: str) -> Operation:
        try:
            return super()._operation(operation_id)
        except NotFound:
            if operation_id not in self._operations_before:
                raise
            return self._operations_before[operation_id]

    def _observe(self, address: str) -> None:
        with self._store.read() as tx:
            restored = tx.hosts.get(self._names[address]).restored
        if restored is None:
            super()._observe(address)
            return
        self._touched.add(address)
        view = self._view(address)
        found = [text for check in _TRUE_WHATEVER_THE_DATABASE_SAYS for text in check(view, self._memory)]
        if found:
            raise Broken(*found)

    def _view(self, address: str) -> HostView:
        view = super()._view(address)
        found = [*self._lost(address, view), *self._ended_early(view)]
        if found:
            raise Broken(*(f"{view.host}: {text}" for text in found))
        self._made |= {vm.id for vm in view.vms.values() if vm.state in {"running", "stopped"}}
        machine = view.machine
        self._disks[address] = {name: machine.owner(f"volume:{name}") or "" for name in machine.volumes}
        others = tuple(one for one in view.effects if not (one.stopped and one.vm in self._removed))
        return replace(view, effects=others)

    def _lost(self, address: str, view: HostView) -> Iterator[str]:
        machine = view.machine
        for name, size in self._data[address].items():
            if machine.data.get(name) != size:
                yield f"data volume {name} is lost"
        kinds = Counter((effect.vm, view.operation(effect.token.operation).kind) for effect in view.effects)
        for name, vm in self._disks[address].items():
            wanted = kinds[vm, "delete_vm"] or vm in self._removed
            undone = vm not in self._made and any(kinds[vm, kind] for kind in _MAKING)
            moved = any(name in disks for other, disks in self._disks.items() if other != address)
            if name not in machine.volumes and not (wanted or undone or moved):
                yield f"disk {name} of VM {vm} is lost: {sorted(kind for one, kind in kinds if one == vm)}"

    def _ended_early(self, view: HostView) -> Iterator[str]:
        now = EPOCH_S + self.schedule.time
        for vm in view.vms.values():
            if vm.deallocated == "lease_over" and vm.lease_end is not None and vm.lease_end > now:
                operation = next(iter(self._extensions(vm.full_name)), None)
                if operation is None:
                    yield f"the lease of {vm.full_name} ended {vm.lease_end - now:.0f} s early"

    def _extensions(self, name: str) -> Iterator[str]:
        """It was made longer after it had ended."""
        with self._store.read() as tx:
            yield from (one.action for one in tx.audit.newest(limit=1000, subject=name) if one.action == "extend_lease")

    def _finish(self) -> None:
        """An operator settles what is newer than the database, then the upgrade goes on."""
        self._settle()
        for number in range(_ROUNDS):
            left: list[Item] = []
            self._in_fiber(partial(self._settle_restored, left, number > _ROUNDS // 2))
            self._until_idle()
            if not left:
                break
            self._settle()
        else:
            raise Broken(f"what is newer than the database does not get settled: {left}")
        super()._finish()

    def _settle_restored(self, left: list[Item], by_force: bool) -> None:
        controller = self._controllers[-1]
        for name in sorted(self._names.values()):
            controller.reconciler.observe(name)
        client = cast("Client", Operator(controller.services))
        left.extend(items_of(client))
        for item in left:
            try:
                self._settle_item(controller.services, client, item, by_force)
            except VgpuctlError as error:
                self.schedule.note(f"settle {item.kind} {item.id[:8]}: {error.code}")

    def _settle_item(self, services: Services, client: Client, item: Item, by_force: bool) -> None:
        self.schedule.note(f"settle {item.kind} {item.id[:8]}: {item.what}")
        if item.kind in {"gone", "runs", "differs"}:
            self._say_what_is_wanted(services.vms, item, by_force)
        elif item.kind == "left" or (item.kind == "vm" and by_force):
            self._removed.add(item.id)
            remove(client, item)
        else:
            take_over(client, item, TENANT)

    def _say_what_is_wanted(self, vms: VmService, item: Item, by_force: bool) -> None:
        """Of one that the database has. ``by_force``: it cannot be started, as when its lease is over."""
        with self._store.read() as tx:
            vm = tx.vms.find_id(item.id)
        if vm is None:
            return
        act: Callable[[str, str], Started]
        if item.kind == "gone" or (item.kind == "differs" and by_force):
            act = vms.delete
        elif item.kind == "differs":
            act = vms.stop if vm.state == "running" else vms.start
        else:
            act = vms.start if vm.wanted == "running" and not by_force else vms.stop
        act(vm.spec.tenant, vm.spec.name)

    def _check_upgraded(self) -> None:
        """Who ran and who was stopped before is not known where the database went back. What an operation announced
        in a ledger and never made stays there when it is forgotten: nothing has that name."""
        known = {vm.id for vm in self._vms()}
        for machine in self._fleet.machines.values():
            there = {*objects_on(machine), *(f"data:{name}" for name in machine.data)}
            owners = machine.ledger.owners
            machine.ledger.owners = {key: owners[key] for key in owners if key in there or owners[key][0] in known}


class Operator:
    """As much of the client as ``server settle-restored`` needs."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def observe_findings(self, _host: str | None) -> list[dict[str, Any]]:
        return [FindingAnswer.of(one).model_dump() for one in self._services.findings.list(host=None)]

    def operations(self, *, state: str, limit: int | None) -> list[dict[str, Any]]:
        found = self._services.operations.list(unfinished=False, limit=limit or 100_000)
        return [
            {"id": one.id, "state": one.state, "error": one.error, "kind": one.kind, "subject_name": one.subject_name}
            for one in found
            if one.state == state
        ]

    def retry_operation(self, operation: str) -> dict[str, str]:
        return {"state": self._services.operations.retry(operation).state}

    def adopt_vm(self, wanted: dict[str, str]) -> dict[str, str]:
        adopted = AdoptVm(host=wanted["host"], domain=wanted["domain"], tenant=wanted["tenant"])
        return {"name": self._services.adoption.adopt(adopted).name}

    def repair_findings(self, host: str, *, remove: str) -> dict[str, tuple[str, ...]]:
        return {"operations": self._services.findings.remove(host=host, owner=remove)}


def _forget(controller: Controller) -> None:
    controller.retention.round()


def _database(url: str) -> ResettableDatabase:
    place = make_url(url)
    if place.get_backend_name() == "sqlite":
        return ResettableSqlite(Path(str(place.database)).parent)
    return ResettablePostgres(url)
