# SPDX-License-Identifier: Apache-2.0
"""GPU hosts that live in memory and behave like an agent on a real one: ownership, idempotence, refusals, loss.

Faults strike at numbered effects, before or after them, so that a test can walk through all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from orchestrator.core.actions.backups import UsesRepository
from orchestrator.core.actions.disk_snapshots import LongCopy
from orchestrator.core.actions.host_actions import ActionResult, FencingToken, HostAction, ImageFormat
from orchestrator.core.actions.live_move import LiveMove, MovedVm, MoveLoad
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.attachments.host_facts import things_of
from orchestrator.core.drivers.host_drivers import DueReboot, HostDrivers
from orchestrator.core.errors import Conflict, Fatal, Retryable, Unknown
from orchestrator.core.gpu.vgpu_metadata import Answers, VgpuQuestion
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.readiness import HostReadinessFacts
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot, Unchanged
from orchestrator.core.ovn import HostInOvn
from orchestrator.core.protocol import PROTOCOL_VERSION
from orchestrator.core.readings.frame import HostFrame
from orchestrator.core.units import GIB
from orchestrator.core.wire import unless_known
from orchestrator.ports.host import ByteStream
from orchestrator.sim.guests import Consoles, Echo
from orchestrator.sim.machine import in_ovn
from orchestrator.sim.screen import Screen
from orchestrator.sim.vgpu_metadata import compatibility
from tests.fakes.fake_actions import perform_on
from tests.fakes.fake_data_volumes import copy_volume, move_vm, read_snapshot
from tests.fakes.fake_machine import FakeMachine, snapshot_of
from tests.fakes.fake_metadata import with_metadata
from tests.fakes.fake_reboots import BOOT_CALLS
from tests.fakes.readiness import READY

T = TypeVar("T")


class Crash(BaseException):
    """The control plane dies here (kill -9): nobody catches it."""


Strike = Callable[[int, str, str], BaseException | None]
"""(number of the effect, ``before`` or ``after``, its name) → what happens there."""


def no_fault(_number: int, _moment: str, _name: str) -> BaseException | None:
    return None


class FakeHosts:
    """Implements ports.host.HostLink and Configurator over machines named by their address."""

    def __init__(self, machines: dict[str, FakeMachine], site: str = "site") -> None:
        self._consoles = Consoles()
        self.machines = machines
        self.site = site
        self.strike: Strike = no_fault
        self.effects: list[str] = []
        self.compares = False
        """Drivers say whether vGPUs and GPUs go together."""
        self.told_of_ovn: dict[str, HostInOvn] = {}
        """By the host's name."""
        self.without_screen: set[str] = set()
        """Domains that were defined before they had one."""
        self._turn = threading.Lock()
        """Threads of one engine look at a machine while another one changes it."""

    def reset(self, machines: dict[str, FakeMachine]) -> None:
        """Other machines, nothing done yet, no faults."""
        self.machines, self.strike, self.effects = machines, no_fault, []

    def observe(self, host: Host) -> HostSnapshot:
        with self._turn:
            seen = snapshot_of(self._machine(host))
        return with_metadata(seen) if self.compares else seen

    def look(self, host: Host, known: str) -> HostSnapshot | Unchanged:
        return unless_known(self.observe(host), known)

    def observe_domain(self, host: Host, vm: str) -> DomainSnapshot | None:
        found = next((domain for domain in self.observe(host).domains if domain.uuid == vm), None)
        return None if found is None else replace(found, made_as=self._machine(host).described.get(vm))

    def things_of(self, host: Host, vm: str) -> tuple[str, ...]:
        return things_of(self.observe(host), vm)

    def vgpu_compatibility(self, host: Host, questions: Sequence[VgpuQuestion]) -> Answers:
        self._machine(host)
        return self.does("vgpu_compatibility", lambda: tuple(map(compatibility, questions)))

    def perform(self, host: Host, action: HostAction, token: FencingToken) -> ActionResult:
        machine = self._machine(host)
        machine.ledger.admit(token, action)
        if machine.protocol < action.since:
            raise Fatal("agent.too_old", f"the agent on {host.name} is too old for this")
        return self.does(type(action).__name__, lambda: _perform(machine, action, token.operation))

    def send_image(
        self, host: Host, path: Path, sha256: str, image_format: ImageFormat, token: FencingToken
    ) -> ActionResult:
        machine = self._machine(host)
        machine.ledger.admit(token)
        name = f"{sha256}.{image_format}"
        changed = name not in machine.images
        self.does("send_image", lambda: machine.images.add(name))
        return ActionResult(changed=changed)

    def copy_volume(
        self,
        source: Host,
        source_token: FencingToken,
        target: Host,
        target_token: FencingToken,
        copy: VolumeCopy,
        progress: Callable[[int], None],
    ) -> ActionResult:
        ends = self._machine(source), self._machine(target)
        for machine, token in zip(ends, (source_token, target_token), strict=True):
            machine.ledger.admit(token)
        progress(copy.size_bytes)
        return self.does("copy_volume", lambda: copy_volume(*ends, copy))

    def read_snapshot(self, host: Host, vm: str, volume: str, token: FencingToken) -> Generator[bytes]:
        machine = self._machine(host)
        machine.ledger.admit(token)
        yield self.does("read_snapshot", lambda: read_snapshot(machine, vm, volume))

    def move_vm(
        self,
        source: Host,
        source_token: FencingToken,
        target: Host,
        target_token: FencingToken,
        move: LiveMove,
        progress: Callable[[int, int], None],
    ) -> MovedVm:
        ends = self._machine(source), self._machine(target)
        for machine, token in zip(ends, (source_token, target_token), strict=True):
            machine.ledger.admit(token)
        progress(0, 1)
        return self.does("move_vm", lambda: move_vm(*ends, move))

    def move_load(self, host: Host, vm: str) -> MoveLoad:
        self._machine(host)
        return MoveLoad(memory_bytes=GIB)

    def watch(self, host: Host) -> Iterator[dict[str, object] | HostFrame]:
        self._machine(host)
        return iter(())

    def open_console(self, host: Host, vm: str) -> ByteStream:
        return self._consoles.open(vm, f"console of {vm} on {host.name}\n")

    def open_display(self, host: Host, vm: str) -> ByteStream:
        if vm in self.without_screen:
            raise Conflict("vm.no_display", f"domain {vm} has none")
        return Screen(vm)

    def console_log(self, host: Host, vm: str, most: int) -> bytes:
        printed = self._machine(host).written.get("console", f"{vm} on {host.name} printed this\n")
        return printed.encode()[-most:]

    def open_tcp(self, host: Host, vm: str, port: int) -> ByteStream:
        return Echo(f"{vm}:{port}\n".encode())

    def forget(self, host: Host) -> None:
        """No connections are kept."""

    def inspect(self, host: Host, key: str | None) -> HostReadinessFacts:
        """The one at ``bare.test`` has no driver."""
        return replace(READY, driver=None, headers=False) if host.address == "bare.test" else READY

    def install_agent(
        self, host: Host, gpus: tuple[str, ...], progress: Callable[[str], None], *, take_over: bool = False
    ) -> None:
        machine = self.machines[host.address]
        if machine.ledger.site not in {None, self.site} and not take_over:
            raise Conflict("host.other_site", "the host serves another site", hint="use --take-over")
        progress("install")

        def install() -> None:
            machine.ledger.site, machine.protocol = self.site, PROTOCOL_VERSION

        self.does("install_agent", install)

    def remove_agent(self, host: Host, progress: Callable[[str], None]) -> None:
        machine = self.machines[host.address]
        if machine.ledger.site not in {None, self.site}:
            raise Conflict("host.other_site", "the host serves another site")
        progress("remove")

        def remove() -> None:
            machine.ledger.site = None

        self.does("remove_agent", remove)

    def provision(self, host: Host, wanted: HostDrivers, progress: Callable[[str], None]) -> DueReboot | None:
        machine = self._machine(host)
        progress("install the driver")
        return self.does("provision", lambda: _swap(machine, wanted))

    def join_ovn(self, host: Host, wanted: HostInOvn, progress: Callable[[str], None]) -> None:
        machine = self._machine(host)
        progress("join OVN")

        def join() -> None:
            machine.bridges = in_ovn(machine.bridges, host.name)
            self.told_of_ovn[host.name] = wanted

        self.does("join_ovn", join)

    def ovn_changes(self, host: Host, wanted: HostInOvn) -> tuple[str, ...]:
        return () if self.told_of_ovn.get(host.name) == wanted else ("Say its name, its address and where OVN is",)

    def _machine(self, host: Host) -> FakeMachine:
        machine = self.machines[host.address]
        if machine.away > 0:
            machine.away -= 1
            raise Retryable("host.unreachable", f"{host.address} is booting")
        if not machine.answers:
            raise Retryable("host.unreachable", f"{host.address} cannot be reached")
        machine.ledger.check_site(self.site)
        return machine

    def does(self, name: str, effect: Callable[[], T]) -> T:
        number = len(self.effects)
        self.effects.append(name)
        before = self.strike(number, "before", name)
        if before is not None:
            raise before
        with self._turn:
            result = effect()
        after = self.strike(number, "after", name)
        if after is not None:
            raise after
        return result


def _swap(machine: FakeMachine, wanted: HostDrivers) -> DueReboot | None:
    if not machine.held or machine.driver_version == wanted.driver.version:
        machine.driver_version = wanted.driver.version
        return None
    if not wanted.reboot:
        raise Conflict("driver.module_busy", "module nvidia is in use by somebody that shows no open file")
    due = DueReboot(why="module nvidia is in use by somebody that shows no open file", boot_id=f"boot-{machine.boot}")
    machine.held, machine.boot, machine.away, machine.driver_version = False, machine.boot + 1, BOOT_CALLS, None
    return due


def lost_answer(name: str) -> Unknown:
    return Unknown("agent.channel_cut", f"the answer to {name} was lost")


def _perform(machine: FakeMachine, action: HostAction, operation: str) -> ActionResult:
    """A copy of a disk is done when it is asked for again."""
    subject = getattr(action, "vm", getattr(action, "backup", getattr(action, "volume", "")))
    before = machine.copying.pop(subject, None)
    if isinstance(action, LongCopy | UsesRepository) and before != (operation, action):
        machine.copying[subject] = operation, action
        return ActionResult(changed=True, unfinished=True)
    return perform_on(machine, action)
