# SPDX-License-Identifier: Apache-2.0
"""HostLink and Configurator of one controller's process: requests and answers travel, and may not arrive.

A request that is on its way arrives even when the process that sent it has died meanwhile, as with a real network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from orchestrator.core.errors import Conflict, Denied, Retryable, Unknown, VgpuctlError
from orchestrator.core.host import Host
from orchestrator.core.host_actions import ActionResult, HostAction, ImageFormat, Token
from orchestrator.core.snapshot import HostSnapshot
from orchestrator.ports.host import ByteStream
from orchestrator.sim.agent import perform
from orchestrator.sim.console import Echo
from orchestrator.sim.fleet import Fleet, Weather
from orchestrator.sim.look import snapshot_of
from orchestrator.sim.machine import Machine
from orchestrator.sim.schedule import Fiber, Schedule
from orchestrator.sim.upkeep import AgentDied, admit
from orchestrator.sim.vm_actions import receive_image

T = TypeVar("T")

_LATENCY_S = (0.001, 0.02)
_LOOK = "observe"
_CONNECT_LIMIT_S = 5.0
_ANSWER_LIMIT_S = 120.0


class SimLink:
    """Implements ports.host.HostLink and Configurator."""

    def __init__(
        self, schedule: Schedule, fleet: Fleet, *, site: str, seen: Callable[[str], None], fenced: bool
    ) -> None:
        """``seen(address)``: called after every request that may have changed a host. ``fenced``: see agent.perform."""
        self._schedule = schedule
        self._fleet = fleet
        self._site = site
        self._seen = seen
        self._fenced = fenced

    def observe(self, host: Host) -> HostSnapshot:
        """A fresh look at the whole host."""
        return self._call(host, _LOOK, lambda machine: snapshot_of(self._ours(machine)))

    def perform(self, host: Host, action: HostAction, token: Token) -> ActionResult:
        """Do one thing."""
        name = f"{type(action).__name__} {getattr(action, 'vm', '')} {token.operation[:8]}/{token.attempt}"
        return self._call(host, name, lambda machine: perform(machine, action, token, fenced=self._fenced))

    def send_image(self, host: Host, path: Path, sha256: str, image_format: ImageFormat, token: Token) -> ActionResult:
        """Put a base image on the host."""

        def receive(machine: Machine) -> ActionResult:
            admit(machine, token)
            return receive_image(machine, f"{sha256}.{image_format}")

        return self._call(host, "send_image", receive)

    def watch(self, host: Host) -> Iterator[dict[str, object]]:
        """No events: what changed is seen at the next look."""
        self._call(host, "watch", self._ours)
        return iter(())

    def open_console(self, host: Host, vm: str) -> ByteStream:
        """A guest that sends back what it gets."""
        return Echo(f"console of {vm} on {host.name}\r\n".encode())

    def open_tcp(self, host: Host, vm: str, port: int) -> ByteStream:
        """A guest that sends back what it gets."""
        return Echo(f"{vm}:{port}\r\n".encode())

    def forget(self, host: Host) -> None:
        """No connections are kept."""

    def install_agent(
        self, host: Host, gpus: tuple[str, ...], progress: Callable[[str], None], *, take_over: bool = False
    ) -> None:
        """The playbook's effect."""
        progress("install")

        def install(machine: Machine) -> None:
            if machine.ledger.site not in {None, self._site} and not take_over:
                raise Conflict("host.other_site", "the host serves another site", hint="use --take-over")
            machine.ledger.site = self._site

        self._call(host, "install_agent", install)

    def remove_agent(self, host: Host, progress: Callable[[str], None]) -> None:
        """The playbook's effect."""
        progress("remove")

        def remove(machine: Machine) -> None:
            if machine.ledger.site not in {None, self._site}:
                raise Conflict("host.other_site", "the host serves another site")
            machine.ledger.site = None

        self._call(host, "remove_agent", remove)

    def _ours(self, machine: Machine) -> Machine:
        if machine.ledger.site is None:
            raise Retryable("host.unreachable", "no agent answers")
        if machine.ledger.site != self._site:
            raise Denied("agent.other_site", "the host obeys another site")
        return machine

    def _call(self, host: Host, name: str, work: Callable[[Machine], T]) -> T:
        schedule, fiber = self._schedule, self._schedule.current
        if fiber is None:
            raise RuntimeError("a host is only called from a fiber")
        machine, weather = self._fleet.of(host), self._fleet.weather[host.address]
        if weather.cut or not machine.up:
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

    def _arrive(self, address: str, name: str, work: Callable[[Machine], T], fiber: Fiber, ticket: int) -> None:
        machine, weather = self._fleet.machine(address), self._fleet.weather[address]
        if not machine.up or weather.cut or _used_up(weather, "lose_requests"):
            self._schedule.note(f"{address} {name}: request lost")
            return
        answer: object
        machine.now = self._schedule.time
        try:
            if _used_up(weather, "repeat"):
                work(machine)
            answer = (work(machine),)
            said = "done"
        except VgpuctlError as error:
            answer, said = error, error.code
        except AgentDied:
            answer, said = None, "agent died"
        self._schedule.note(f"{address} {name}: {said}")
        self._schedule.at(weather.slow + self._latency(), partial(self._return, address, name, fiber, ticket, answer))
        if name != _LOOK:
            self._seen(address)

    def _return(self, address: str, name: str, fiber: Fiber, ticket: int, answer: object) -> None:
        weather = self._fleet.weather[address]
        if weather.cut or _used_up(weather, "lose_answers"):
            self._schedule.note(f"{address} {name}: answer lost")
            return
        self._schedule.wake(fiber, ticket, answer)

    def _latency(self) -> float:
        return self._schedule.random.uniform(*_LATENCY_S)


def _used_up(weather: Weather, name: str) -> bool:
    left: int = getattr(weather, name)
    if left:
        setattr(weather, name, left - 1)
    return bool(left)
