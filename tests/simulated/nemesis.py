# SPDX-License-Identifier: Apache-2.0
"""What goes wrong: faults drawn from the seed, each over a while or a number of calls."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol

from tests.simulated.foreign import make_domain, make_vgpu, remove_domain
from tests.simulated.network import FaultyFleet
from tests.simulated.schedule import Schedule

_ERRNOS = (errno.EBUSY, errno.EAGAIN, errno.EIO, errno.ENOSPC, errno.ENODEV, errno.ENOMEM)
_CLOCK_JUMPS_S = (-3600.0, -30.0, 30.0, 3600.0)


class Stage(Protocol):
    """What the nemesis can do to controllers (run.Run)."""

    def crash(self) -> None:
        """kill -9 of the controller; another one starts a little later."""

    def pause(self) -> None:
        """SIGSTOP of the controller, long enough for another one to take over; then it wakes up."""

    def jump(self, seconds: float) -> None:
        """The controller's wall clock jumps."""

    def disturbed(self, address: str) -> None:
        """Somebody powered domains of that host off."""


class Nemesis:
    """Strikes until it is told to stop."""

    def __init__(
        self, schedule: Schedule, fleet: FaultyFleet, stage: Stage, *, alone: bool, clocks: bool, pauses: bool
    ) -> None:
        """``alone``: no domains of others. More often than anything else happens that wall clocks jump (``clocks``),
        that controllers are stopped for a while and connections are slow (``pauses``)."""
        self._schedule = schedule
        self._random = schedule.random
        self._fleet = fleet
        self._stage = stage
        self._alone = alone
        self._clock_weight = 8.0 if clocks else 0.5
        self._pause_weight, self._slow_weight = (12.0, 8.0) if pauses else (1.0, 0.5)
        self.by_hand: list[tuple[str, str]] = []
        """(address, name) of the domains that somebody else made."""
        self.made_on: set[str] = set()
        """Addresses of hosts where somebody else made a vGPU, be it gone by now."""

    def strike(self, address: str) -> None:
        """One fault, at that host or at the controller."""
        faults: tuple[tuple[Callable[[str], None], float], ...] = (
            (self._crash, 2.0),
            (self._pause, self._pause_weight),
            (self._partition, 1.0),
            (self._reboot, 1.0),
            (self._lose, 2.0),
            (self._repeat, 1.0),
            (self._driver_refuses, 2.0),
            (self._slow, self._slow_weight),
            (self._disk_full, 0.7),
            (self._clock, self._clock_weight),
            (self._power_off, 0.7),
            (self._foreign_device, 0.7),
            (self._agent_dies, 1.5),
        )
        if not self._alone:
            faults += ((self._foreign_domain, 0.7), (self._take_domain_away, 0.3))
        fault = self._random.choices([one for one, _ in faults], [weight for _, weight in faults])[0]
        self._schedule.note(f"nemesis {fault.__name__.strip('_')} {address}")
        fault(address)

    def heal(self) -> None:
        """No fault is left, but what they have done."""
        for address, machine in self._fleet.machines.items():
            faults = self._fleet.network[address]
            faults.cut, faults.slow = False, 0.0
            faults.lose_requests = faults.lose_answers = faults.repeat = 0
            machine.up, machine.disk_full, machine.agent_deaths = True, False, 0
            machine.kernel.next_errno = 0

    def _crash(self, _: str) -> None:
        self._stage.crash()

    def _pause(self, _: str) -> None:
        self._stage.pause()

    def _partition(self, address: str) -> None:
        faults = self._fleet.network[address]
        faults.cut = True
        self._later(5.0, 200.0, lambda: setattr(faults, "cut", False))

    def _reboot(self, address: str) -> None:
        machine = self._fleet.machine(address)
        machine.up = False
        machine.reboot()
        self._stage.disturbed(address)
        self._later(20.0, 120.0, lambda: setattr(machine, "up", True))

    def _lose(self, address: str) -> None:
        faults = self._fleet.network[address]
        faults.lose_requests += self._random.randint(0, 1)
        faults.lose_answers += self._random.randint(1, 2)

    def _repeat(self, address: str) -> None:
        self._fleet.network[address].repeat += self._random.randint(1, 10)

    def _driver_refuses(self, address: str) -> None:
        self._fleet.machine(address).kernel.next_errno = self._random.choice(_ERRNOS)

    def _slow(self, address: str) -> None:
        faults = self._fleet.network[address]
        faults.slow = self._random.choice((2.0, 30.0, 150.0))
        self._later(10.0, 100.0, lambda: setattr(faults, "slow", 0.0))

    def _disk_full(self, address: str) -> None:
        machine = self._fleet.machine(address)
        machine.disk_full = True
        self._later(10.0, 100.0, lambda: setattr(machine, "disk_full", False))

    def _clock(self, _: str) -> None:
        self._stage.jump(self._random.choice(_CLOCK_JUMPS_S))

    def _power_off(self, address: str) -> None:
        machine = self._fleet.machine(address)
        running = sorted(uuid for uuid, domain in machine.domains.items() if domain.running)
        if running:
            machine.power_off(self._random.choice(running))
            self._stage.disturbed(address)

    def _foreign_device(self, address: str) -> None:
        device = make_vgpu(self._fleet.machine(address), self._random)
        self.made_on.add(address)
        self._schedule.note(f"{address} somebody else made {device}")

    def _foreign_domain(self, address: str) -> None:
        self.make_domain(address)

    def make_domain(self, address: str) -> None:
        """Somebody runs a domain with a vGPU there; users may take it over."""
        name = f"hand{len(self.by_hand)}"
        if make_domain(self._fleet.machine(address), name, self._random):
            self.made_on.add(address)
            self.by_hand.append((address, name))
            self._schedule.note(f"{address} somebody else runs {name}")

    def _take_domain_away(self, _: str) -> None:
        if self.by_hand:
            address, name = self._random.choice(self.by_hand)
            gone = remove_domain(self._fleet.machine(address), name)
            self._schedule.note(f"{address} its maker {'removed' if gone else 'left'} {name}")

    def _agent_dies(self, address: str) -> None:
        self._fleet.machine(address).agent_deaths = 1

    def _later(self, least: float, most: float, action: Callable[[], None]) -> None:
        self._schedule.at(self._random.uniform(least, most), action)
