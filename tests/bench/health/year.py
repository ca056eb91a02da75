# SPDX-License-Identifier: Apache-2.0
"""A fleet in memory, hour by hour of virtual time: the real services over hosts that tell what they are made to."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final

from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.gpu.health_states import CLEAN_S, CLOSED, RELAPSES_WITHIN_S
from orchestrator.core.maintenance.maintenance import Maintenance
from orchestrator.reconcile.ill_gpus import IllGpus
from tests.fakes.control_plane import control_plane, create_vm
from tests.fakes.fake_machine import FakeGpu, FakeMachine, l40s
from tests.operations.moves import MIGRATABLE
from tests.operations.test_driver_upgrades import keeper

DAY_S: Final = 86_400.0
GPUS: Final = 2
"""Of a host."""
VMS: Final = 300
_ROUNDS: Final = 6
"""A GPU is closed, emptied, reset and on watch within so many."""
_STORM_S: Final = 600.0
_REBOOT: Final = 79

Gpu = tuple[str, str]
"""Host and PCI address."""


class Year:
    """``a_day``: GPUs that are emptied by themselves in a day at most."""

    def __init__(self, hosts: int, a_day: int, directory: Path) -> None:
        self.plane = control_plane(directory)
        for number in range(hosts):
            gpus = [l40s(f"0000:8{at}:00.0") for at in range(GPUS)]
            self.plane.hosts.machines[f"h{number}.test"] = FakeMachine(machine_id=f"m{number}-", gpus=gpus)
            self.plane.add_host(f"h{number}")
        with self.plane.store.begin() as tx:
            tx.offerings.put(MIGRATABLE)
        services = self.plane.services
        self.gpus: list[Gpu] = [(f"h{number}", f"0000:8{at}:00.0") for number in range(hosts) for at in range(GPUS)]
        self._ill = IllGpus(self.plane.store, services.maintenances, services.gpu_cards, a_day)
        self._keeper, self._began = keeper(self.plane), self.plane.world.clock.now()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._number, self._vms = count(), list[str]()
        self._falls: dict[Gpu, list[float]] = {}
        self.stormed, self.made, self.on_closed = False, 0, 0
        self.with_open_breaker, self.closed_in_storm = 0, 0

    def __enter__(self) -> Year:
        return self

    def __exit__(self, _1: type[BaseException] | None, _2: BaseException | None, _3: TracebackType | None) -> None:
        self.plane.store.close()

    @property
    def now(self) -> float:
        """Seconds since the year began."""
        return self.plane.world.clock.now() - self._began

    def until(self, at: float) -> None:
        """What is due before then is done in its time."""
        while self._due and self._due[0][0] <= at:
            due, _, act = heapq.heappop(self._due)
            self._sleep(due)
            act()
            self.calm()
        self._sleep(at)

    def strike(self, gpu: Gpu, xid: int) -> None:
        """Its host logs that, and is observed."""
        was = self._state(gpu)
        self._machine_gpu(gpu).signals = (GpuSignal(name=f"xid-{xid}", at=int(self.plane.world.clock.now())),)
        self._observe(gpu[0])
        if was not in CLOSED and self._state(gpu) in CLOSED:
            self._falls.setdefault(gpu, []).append(self.now)
        if xid == _REBOOT:
            self._later(DAY_S, lambda: self._mended(gpu))

    def calm(self) -> None:
        """Rounds, until nothing more is done by itself."""
        for _ in range(_ROUNDS):
            before, is_open = self.emptied + self.resets, self._is_open
            self._ill.round()
            self._keeper.round()
            self.plane.engine.drain()
            begun = self.emptied + self.resets - before
            if not begun:
                return
            self.with_open_breaker += begun if is_open else 0

    def create(self) -> None:
        """A VM comes, and of many the oldest goes."""
        services, name = self.plane.services, f"vm{self.made}"
        services.vms.create(create_vm(name, profile=MIGRATABLE.name))
        self.plane.engine.drain()
        vm = services.vms.get("default", name)
        self.on_closed += any(self._state((vm.host, device.gpu)) in CLOSED for device in vm.devices)
        self.made += 1
        self._vms.append(name)
        if len(self._vms) > VMS:
            services.vms.delete("default", self._vms.pop(0))
            self.plane.engine.drain()

    def storm(self, gpus: Sequence[Gpu], at: float) -> None:
        """All of these hang within ten minutes; a day later a person has put the driver right."""
        self.until(at)
        self.stormed, before = True, self.closed
        for number, gpu in enumerate(gpus):
            self._sleep(at + _STORM_S * number / len(gpus))
            self.strike(gpu, 119)
            if number % 50 == 0:
                self.calm()
        self.closed_in_storm = self.closed - before
        self.until(at + DAY_S)
        for gpu in gpus:
            self._mended(gpu)
        self.plane.services.gpu_health.reset_breaker()

    @property
    def emptied(self) -> int:
        return len(self._drains())

    @property
    def resets(self) -> int:
        with self.plane.store.read() as tx:
            return sum(stored for (kind, _), stored in tx.operations.counts().items() if kind == "reset_gpu")

    @property
    def closed(self) -> int:
        counts = self.plane.services.gpu_health.all().counts
        return sum(counts.get(state, 0) for state in CLOSED)

    @property
    def lost(self) -> int:
        """VMs that do not run."""
        return sum(vm.state != "running" for vm in self.plane.services.vms.list(None))

    @property
    def most_falls(self) -> int:
        """Of one GPU in a week."""
        weeks = (
            [other for other in falls if at <= other < at + RELAPSES_WITHIN_S]
            for falls in self._falls.values()
            for at in falls
        )
        return max(map(len, weeks))

    @property
    def most_in_a_day(self) -> int:
        """GPUs that were emptied."""
        moments = [its.created_at for its in self._drains()]
        return max(sum(at <= other < at + DAY_S for other in moments) for at in moments)

    def _drains(self) -> tuple[Maintenance, ...]:
        with self.plane.store.read() as tx:
            return tx.maintenances.list(most=10_000)

    @property
    def _is_open(self) -> bool:
        """The breaker."""
        return self.plane.services.gpu_health.all().breaker.opened is not None

    def _mended(self, gpu: Gpu) -> None:
        """By a person; what it was quarantined for is over as well."""
        self._machine_gpu(gpu).signals = ()
        self._observe(gpu[0])
        if self._state(gpu) == "quarantined":
            self.plane.services.gpu_health.give_back(*gpu, "it was mended")

    def _observe(self, host: str) -> None:
        self.plane.findings.observe(host)
        self._later(CLEAN_S + 60.0, lambda: self.plane.findings.observe(host))

    def _later(self, seconds: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._number), act))

    def _sleep(self, at: float) -> None:
        self.plane.world.clock.sleep(max(at - self.now, 0.0))

    def _state(self, gpu: Gpu) -> str:
        return self.plane.services.gpu_health.get(*gpu).health.state

    def _machine_gpu(self, gpu: Gpu) -> FakeGpu:
        return next(one for one in self.plane.machine(gpu[0]).gpus if one.address == gpu[1])
