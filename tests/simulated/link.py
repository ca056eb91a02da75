# SPDX-License-Identifier: Apache-2.0
"""The way from one controller's process to machines in virtual time: requests and answers travel, and may not arrive.

A request that is on its way arrives even when the process that sent it has died meanwhile, as with a real network.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from orchestrator.core.errors import Retryable, Unknown, VgpuctlError
from orchestrator.core.hosts.host import Host
from orchestrator.sim.machine import AgentDied, SimulatedMachine
from orchestrator.sim.machine_link import OBSERVE, MachineLink
from tests.simulated.network import FaultyFleet, NetworkFaults
from tests.simulated.schedule import Fiber, Schedule

T = TypeVar("T")

_LATENCY_S = (0.001, 0.02)
_CONNECT_LIMIT_S = 5.0
_ANSWER_LIMIT_S = 120.0


class SimLink(MachineLink):
    """One controller's."""

    def __init__(
        self, schedule: Schedule, fleet: FaultyFleet, *, site: str, on_change: Callable[[str], None], fenced: bool
    ) -> None:
        """``seen(address)``: called after every request that may have changed a host. ``fenced``: see agent.perform."""
        super().__init__(site=site, fenced=fenced)
        self._schedule = schedule
        self._fleet = fleet
        self._on_change = on_change

    def _call(self, host: Host, name: str, work: Callable[[SimulatedMachine], T]) -> T:
        schedule, fiber = self._schedule, self._schedule.current
        if fiber is None:
            raise RuntimeError("a host is only called from a fiber")
        machine, faults = self._fleet.of(host), self._fleet.network[host.address]
        if faults.cut or not machine.up:
            schedule.sleep(_CONNECT_LIMIT_S)
            raise Retryable("host.unreachable", f"{host.address} cannot be reached")
        ticket = schedule.ticket()
        schedule.at(self._latency(), partial(self._arrive, host.address, name, work, fiber, ticket))
        schedule.at(_ANSWER_LIMIT_S, lambda: schedule.wake(fiber, ticket, None))
        answer = schedule.suspend()
        if answer is None:
            raise Unknown("agent.channel_cut", f"{host.address} did not answer")
        if isinstance(answer, VgpuctlError):
            raise answer
        return cast("tuple[T]", answer)[0]

    def _arrive(
        self, address: str, name: str, work: Callable[[SimulatedMachine], T], fiber: Fiber, ticket: int
    ) -> None:
        machine, faults = self._fleet.machine(address), self._fleet.network[address]
        if not machine.up or faults.cut or _used_up(faults, "lose_requests"):
            self._schedule.note(f"{address} {name}: request lost")
            return
        answer: object
        machine.now = self._schedule.time
        try:
            answer = (work(machine),)
            if _used_up(faults, "repeat"):
                work(machine)  # of two answers to one request the first counts
            said = "done"
        except VgpuctlError as error:
            answer, said = error, error.code
        except AgentDied:
            answer, said = None, "agent died"
        self._schedule.note(f"{address} {name}: {said}")
        self._schedule.at(faults.slow + self._latency(), partial(self._return, address, name, fiber, ticket, answer))
        if name != OBSERVE:
            self._on_change(address)

    def _return(self, address: str, name: str, fiber: Fiber, ticket: int, answer: object) -> None:
        faults = self._fleet.network[address]
        if faults.cut or _used_up(faults, "lose_answers"):
            self._schedule.note(f"{address} {name}: answer lost")
            return
        self._schedule.wake(fiber, ticket, answer)

    def _latency(self) -> float:
        return self._schedule.random.uniform(*_LATENCY_S)


def _used_up(faults: NetworkFaults, name: str) -> bool:
    left: int = getattr(faults, name)
    if left:
        setattr(faults, name, left - 1)
    return bool(left)
