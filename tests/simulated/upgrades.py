# SPDX-License-Identifier: Apache-2.0
"""A rolling driver upgrade in the middle of it all: users go on with their VMs, and whatever can fails.

Whoever ran before, was touched by no user and whose hosts have not failed runs afterwards; whoever was stopped by his
user is stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from orchestrator.api.use_cases import Services
from orchestrator.core.drivers.bundle import BundleContent, DriverBundle
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.maintenance.maintenance import Maintenance, is_over
from orchestrator.core.vms.vm import Vm
from orchestrator.services.acting import act_for
from orchestrator.services.drivers.upgrades import WantedUpgrade
from orchestrator.services.messages import CreateVm
from tests.simulated.moves import RunWithMoves
from tests.simulated.run import Broken, Report, RunPlan, report_of
from tests.simulated.small_ports import EPOCH_S
from tests.simulated.workload import TENANT

OLD, NEW = "580.95.02", "580.105.06"
UPGRADING: Final = RunPlan(hosts=4, requests=40, faults=12, seconds=400.0, alone=True)
_BEGINS_S: Final = 30.0
_AGAIN_S: Final = 10.0
_ROUNDS: Final = 40
_USER: Final = "user"
_PROFILES: Final = ("GRID T4-4Q", "NVIDIA L40S-12Q")


def simulate_upgrade(seed: int) -> Report:
    """The same report for the same seed, always."""
    return report_of(seed, UPGRADING, UpgradingRun)


class UpgradingRun(RunWithMoves):
    """Each host has a VM that no user touches, and that may move to another one; one host of some runs has a driver
    that it does not load."""

    _kept: frozenset[str] = frozenset()
    """Ids of the VMs that ran before and that no user touches."""

    def play(self) -> None:
        """:raises Broken: with everything that was found"""
        self._start()
        self._prepare()
        self._plan_events()
        self.schedule.at(_BEGINS_S, self._begin)
        self.schedule.run(until=self.schedule.time + self._plan.seconds)
        self._heal()
        self._finish()
        self._check_settled()
        self._delete_everything()

    def _build(self) -> tuple[str, ...]:
        """No host comes or goes: what somebody else makes on one would keep it."""
        super()._build()
        return ()

    def _prepare(self) -> None:
        with self._store.begin() as tx:
            for number, version in enumerate((OLD, NEW)):
                tx.driver_bundles.add(_bundle(str(number), version))
        for number in range(self._plan.hosts):
            self._in_fiber(partial(self._create_kept, number))
        self._until_idle()
        self._kept = frozenset(vm.id for vm in self._vms() if vm.state == "running")
        if self.schedule.random.random() < 0.5:
            address = self.schedule.random.choice(sorted(self._fleet.machines))
            self._fleet.machine(address).refuses_drivers = frozenset({NEW})

    def _create_kept(self, number: int) -> None:
        self._controllers[-1].services.vms.create(self._kept_wish(number))

    def _kept_wish(self, number: int) -> CreateVm:
        return CreateVm(
            name=f"kept{number}", tenant=TENANT, profile=_PROFILES[number % len(_PROFILES)], image="guest", vcpus=1,
            memory_mib=512, disk_bytes=2**30, host=f"h{number}",
        )  # fmt: skip

    def _begin(self) -> None:
        """By an operator who tries until it is taken."""
        now = self._now()
        if now is not None:
            self.schedule.spawn(now.process, "upgrade", partial(self._upgrade, now.services))
        elif self._striking:
            self.schedule.at(_AGAIN_S, self._begin)

    def _upgrade(self, services: Services) -> None:
        hosts = tuple(f"h{number}" for number in range(self._plan.hosts))
        try:
            services.driver_upgrades.start(WantedUpgrade(version=NEW, hosts=hosts, canary=0, failure_budget=9))
            self.schedule.note("upgrade: begun")
        except VgpuctlError as error:
            self.schedule.note(f"upgrade: {error.code}")
            if self._striking and error.code != "upgrade.active":
                self.schedule.at(_AGAIN_S, self._begin)

    def _request(self) -> None:
        now = self._now()
        if now is not None:
            self.schedule.spawn(now.process, "user", partial(self._ask, now.services))

    def _ask(self, services: Services) -> None:
        act_for(_USER)
        self._users.one_request(services)

    def _tick(self) -> None:
        super()._tick()
        now = self._now()
        if now is not None:
            self.schedule.spawn(now.process, "upgrade", now.keeper.round)

    def _finish(self) -> None:
        """An operator lets it go on where it has halted, until it is over."""
        self._settle()
        for _ in range(_ROUNDS):
            upgrade = self._newest()
            if upgrade is None or is_over(upgrade):
                return
            services = self._controllers[-1].services
            if upgrade.state in {"halted", "paused"}:
                self._in_fiber(partial(_resume, services))
            self._in_fiber(self._controllers[-1].keeper.round)
            self._settle()
        raise Broken(f"the upgrade does not end: {self._newest()}")

    def _check_settled(self) -> None:
        upgrade = self._newest()
        phases = {} if upgrade is None else {one.host: one.phase for one in upgrade.hosts}
        self.schedule.note(f"phases {phases}")
        failed = {host for host, phase in phases.items() if phase == "failed"}
        self._disturbed |= {f"{host}.test" for host in failed}
        self._check_upgraded()
        super()._check_settled()

    def _check_upgraded(self) -> None:
        found = [text for vm in self._vms() for text in self._wrong(vm)]
        if found:
            raise Broken(*found)

    def _wrong(self, vm: Vm) -> Iterator[str]:
        address = f"{vm.host}.test"
        runs = self._fleet.machine(address).domains[vm.id].running
        failed = address in self._disturbed or vm.id in self._struck
        if not failed and vm.id in self._kept and not runs:
            yield f"{vm.full_name} on {vm.host} ran before, nobody touched it, and it is stopped"
        if self._said_last(vm) == "stop_vm" and runs and not self._was_undone(vm, "stop_vm"):
            yield f"{vm.full_name} on {vm.host} was stopped by its user and runs"

    def _said_last(self, vm: Vm) -> str | None:
        """What a user has last asked for and got, of creating, starting and stopping one of that name."""
        with self._store.read() as tx:
            records = tx.audit.newest(limit=1000, subject=vm.full_name)
        theirs = (one.action for one in records if one.actor == _USER)
        return next((action for action in theirs if action in {"create_vm", "start_vm", "stop_vm"}), None)

    def _was_undone(self, vm: Vm, kind: str) -> bool:
        with self._store.read() as tx:
            return any((one.kind, one.state) == (kind, "undone") for one in tx.operations.of_subject(vm.id))

    def _vms(self) -> tuple[Vm, ...]:
        with self._store.read() as tx:
            return tx.vms.list()

    def _newest(self) -> Maintenance | None:
        with self._store.read() as tx:
            return tx.maintenances.newest()


def _resume(services: Services) -> None:
    services.maintenances.resume()


def _bundle(digit: str, version: str) -> DriverBundle:
    content = BundleContent(
        kind="vgpu_host", package="NVIDIA-Linux", version=version, architecture="x86_64", format="run"
    )  # fmt: skip
    return DriverBundle(
        sha256=digit * 64, content=content, size_bytes=1, key_id="0" * 16, comment="", created_at=EPOCH_S
    )
