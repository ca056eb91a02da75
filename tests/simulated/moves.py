# SPDX-License-Identifier: Apache-2.0
"""VMs that go from host to host all the time, running and stopped, while whatever can fails: each runs on one host,
and what is claimed for it is claimed once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from orchestrator.api.use_cases import Services
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.vms.vm import Vm
from orchestrator.services.messages import MoveVm
from orchestrator.store.database import Store
from tests.simulated.invariants import HostView
from tests.simulated.run import Broken, Report, Run, RunPlan, report_of
from tests.simulated.workload import TENANT

MOVING: Final = RunPlan(hosts=6, requests=240, faults=30, seconds=1200.0, alone=True)
KINDS: Final = frozenset({"move_vm", "move_vm_cold", "move_running_vm"})
_ASKS: Final = (("move", 0.5), ("cold", 0.12), ("move_and_cancel", 0.12), ("other", 0.26))
_OFFERINGS: Final = tuple(
    Offering(name=f"moves-{number}", origin="site", kind="time_sliced", vgpu_type=vgpu_type, migratable=True)
    for number, vgpu_type in enumerate(("GRID T4-2Q", "GRID T4-4Q", "NVIDIA L40S-12Q"))
)


def simulate_moves(seed: int) -> Report:
    """The same report for the same seed, always."""
    return report_of(seed, MOVING, MovingRun)


def moves_of(report: Report) -> int:
    """That have ended, where they were to go or where they were."""
    lines = (line.split() for line in report.log)
    return sum(words[2] in KINDS and words[-1] in {"done", "undone"} for words in lines if len(words) == 6)


class RunWithMoves(Run):
    """VMs change hosts in it."""

    def __init__(self, seed: int, plan: RunPlan, store: Store) -> None:
        super().__init__(seed, plan, store)
        self._struck: set[str] = set()
        """Ids of VMs that somebody may have powered off; they take it along."""

    def disturbed(self, address: str) -> None:
        """Of that host, and of wherever its VMs go."""
        super().disturbed(address)
        self._struck |= self._fleet.machine(address).domains.keys()

    def _view(self, address: str) -> HostView:
        """A place that is held on the host for a VM that moves is there under the VM's own id."""
        view = super()._view(address)
        subjects = {vm.id: self._operation(vm.operation).subject for vm in view.vms.values() if vm.operation}
        vms = {subjects.get(vm.id, vm.id): replace(vm, id=subjects.get(vm.id, vm.id)) for vm in view.vms.values()}
        claims = tuple(replace(claim, vm=subjects.get(claim.vm, claim.vm)) for claim in view.claims)
        return replace(view, vms=vms, claims=claims)

    def _check_settled(self) -> None:
        with self._store.read() as tx:
            self._disturbed |= {f"{vm.host}.test" for vm in tx.vms.list() if vm.id in self._struck}
        super()._check_settled()


class MovingRun(RunWithMoves):
    """Three hosts of each of two kinds, and none that comes or goes."""

    def __init__(self, seed: int, plan: RunPlan, store: Store) -> None:
        super().__init__(seed, plan, store)
        self._users = replace(self._users, profiles=tuple(offering.name for offering in _OFFERINGS))

    def _build(self) -> tuple[str, ...]:
        super()._build()
        with self._store.begin() as tx:
            for offering in _OFFERINGS:
                tx.offerings.put(offering)
        return ()

    def _request(self) -> None:
        now = self._now()
        if now is not None:
            self.schedule.spawn(now.process, "user", partial(self._ask, now.services))

    def _ask(self, services: Services) -> None:
        draw = self.schedule.random
        ask = draw.choices([ask for ask, _ in _ASKS], [weight for _, weight in _ASKS])[0]
        movable = [vm.spec.name for vm in services.vms.list(None) if vm.state in {"running", "stopped"}]
        if ask == "other" or not movable:
            self._users.one_request(services)
            return
        name, answer = draw.choice(sorted(movable)), "accepted"
        try:
            begun = services.moving.move(MoveVm(name=name, tenant=TENANT, cold=ask == "cold", force=ask == "cold"))
            if ask == "move_and_cancel":
                self.schedule.sleep(draw.random())
                services.operations.cancel(str(begun.operation))
        except VgpuctlError as error:
            answer = error.code
        self.schedule.note(f"user {ask} {name}: {answer}")

    def _check_settled(self) -> None:
        found = list(self._elsewhere())
        if found:
            raise Broken(*found)
        super()._check_settled()

    def _elsewhere(self) -> Iterator[str]:
        """What is not as it has to be once nothing moves any more."""
        names = sorted(self._names.values())
        with self._store.read() as tx:
            vms = tx.vms.list()
            held = [vm for name in names for vm in tx.vms.list(host=name) if vm.id not in {one.id for one in vms}]
        yield from (f"a place of VM {vm.full_name} is held on {vm.host}" for vm in held)
        for vm in vms:
            yield from self._copies(vm)

    def _copies(self, vm: Vm) -> Iterator[str]:
        defined = [self._names[at] for at, machine in self._fleet.machines.items() if vm.id in machine.domains]
        if defined != [vm.host]:
            yield f"VM {vm.full_name} is on {vm.host} and defined on {defined}"
