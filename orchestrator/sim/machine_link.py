# SPDX-License-Identifier: Apache-2.0
"""HostLink and Configurator over machines in memory: what each request does there. How it gets there is for
subclasses.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from orchestrator.core.actions.host_actions import ActionResult, FencingToken, HostAction, ImageFormat
from orchestrator.core.actions.live_move import LiveMove, MovedVm, MoveLoad
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.attachments.host_facts import things_of
from orchestrator.core.drivers.host_drivers import DueReboot, HostDrivers
from orchestrator.core.errors import Conflict, Fatal, Retryable, naming
from orchestrator.core.gpu.vgpu_metadata import Answers, VgpuQuestion
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot, Unchanged
from orchestrator.core.ovn import HostInOvn
from orchestrator.core.readings.frame import PERIOD_S, HostFrame
from orchestrator.core.wire import unless_known
from orchestrator.ports.host import ByteStream
from orchestrator.sim.agent import perform
from orchestrator.sim.disk_snapshots import read_snapshot
from orchestrator.sim.guests import Consoles, no_guest
from orchestrator.sim.machine import SimulatedMachine, in_ovn
from orchestrator.sim.observing import domain_of, snapshot_of
from orchestrator.sim.readings import frames, sent_frame
from orchestrator.sim.screen import Screen
from orchestrator.sim.vgpu_metadata import compatibility
from orchestrator.sim.vm_actions import give_volume, receive_image, take_volume
from orchestrator.sim.vm_moves import await_vm, leave_vm, load_of


def swap(machine: SimulatedMachine, wanted: HostDrivers) -> DueReboot | None:
    """A module is not unloaded under its users, and one that does not come up leaves none loaded."""
    version = wanted.driver.version
    if machine.driver_version == version:
        return None
    if machine.kernel.opened:
        raise Conflict(
            "driver.module_busy", f"{len(machine.kernel.opened)} devices are open", hint="stop the VMs first"
        )
    if version in machine.sticky_drivers and machine.driver_version:
        return _reboot(machine, wanted)
    if version in machine.refuses_drivers:
        machine.driver_version = ""
        raise Fatal("driver.not_loaded", f"the module of {version} does not load here", hint="dmesg says why")
    machine.driver_version = version
    return None


def _reboot(machine: SimulatedMachine, wanted: HostDrivers) -> DueReboot:
    """No driver is loaded after it; what the agent brings back then is never gone here."""
    why = "module nvidia is in use by somebody that shows no open file"
    if not wanted.reboot:
        raise Conflict("driver.module_busy", why, hint="end what uses the driver; nothing was changed")
    due = DueReboot(why=why, boot_id=machine.boot_id)
    machine.reboot_in_order()
    machine.driver_version = ""
    return due


T = TypeVar("T")

OBSERVE = "observe"


class MachineLink(ABC):
    """Implements ports.host.HostLink and Configurator but for the way to a machine."""

    def __init__(self, *, site: str, fenced: bool = True) -> None:
        """``fenced``: see agent.perform."""
        self._consoles = Consoles()
        self._site = site
        self._fenced = fenced
        self.period_s = PERIOD_S
        self.ended = threading.Event()
        """Set: nothing is watched any more."""

    @abstractmethod
    def _call(self, host: Host, name: str, work: Callable[[SimulatedMachine], T]) -> T:
        """Do ``work`` on the host's machine; ``name`` is for logs, :data:`OBSERVE` changes nothing there."""

    def observe(self, host: Host) -> HostSnapshot:
        """A fresh observation of the whole host."""
        return self._call(host, OBSERVE, lambda machine: snapshot_of(self._ours(machine)))

    def look(self, host: Host, known: str) -> HostSnapshot | Unchanged:
        """Unchanged when ``known`` is what it would show."""
        return unless_known(self.observe(host), known)

    def observe_domain(self, host: Host, vm: str) -> DomainSnapshot | None:
        """A fresh observation of one domain."""
        return self._call(host, OBSERVE, lambda machine: domain_of(self._ours(machine), vm))

    def things_of(self, host: Host, vm: str) -> tuple[str, ...]:
        """What it shows of the VM."""
        return self._call(host, OBSERVE, lambda machine: things_of(snapshot_of(self._ours(machine)), vm))

    def vgpu_compatibility(self, host: Host, questions: Sequence[VgpuQuestion]) -> Answers:
        """What its driver says of them."""
        self._call(host, OBSERVE, self._ours)
        return tuple(map(compatibility, questions))

    def perform(self, host: Host, action: HostAction, token: FencingToken) -> ActionResult:
        name = f"{type(action).__name__} {getattr(action, 'vm', '')} {token.operation[:8]}/{token.attempt}"
        return self._call(host, name, lambda machine: perform(machine, action, token, fenced=self._fenced))

    def send_image(
        self, host: Host, path: Path, sha256: str, image_format: ImageFormat, token: FencingToken
    ) -> ActionResult:
        """Put a base image on the host."""

        def receive(machine: SimulatedMachine) -> ActionResult:
            machine.ledger.admit(token)
            return receive_image(machine, f"{sha256}.{image_format}")

        return self._call(host, "send_image", receive)

    def copy_volume(
        self,
        source: Host,
        source_token: FencingToken,
        target: Host,
        target_token: FencingToken,
        copy: VolumeCopy,
        progress: Callable[[int], None],
    ) -> ActionResult:
        """One host gives it, then the other takes it."""
        given = self.give_volume(source, copy, source_token)
        progress(copy.size_bytes)
        return self.take_volume(target, copy, target_token, variables=given)

    def give_volume(self, source: Host, copy: VolumeCopy, token: FencingToken) -> bool:
        """Whether UEFI variables go with it."""

        def give(machine: SimulatedMachine) -> bool:
            machine.ledger.admit(token)
            return give_volume(self._ours(machine), copy)

        return self._call(source, "give_volume", give)

    def take_volume(self, target: Host, copy: VolumeCopy, token: FencingToken, *, variables: bool) -> ActionResult:
        """The other half."""

        def take(machine: SimulatedMachine) -> ActionResult:
            machine.ledger.admit(token)
            return take_volume(self._ours(machine), copy, variables=variables)

        return self._call(target, "take_volume", take)

    def read_snapshot(self, host: Host, vm: str, volume: str, token: FencingToken) -> Generator[bytes]:
        """All at once."""

        def read(machine: SimulatedMachine) -> bytes:
            machine.ledger.admit(token)
            return read_snapshot(self._ours(machine), vm, volume)

        yield self._call(host, "read_snapshot", read)

    def move_vm(
        self,
        source: Host,
        source_token: FencingToken,
        target: Host,
        target_token: FencingToken,
        move: LiveMove,
        progress: Callable[[int, int], None],
    ) -> MovedVm:
        """The one awaits it, then the other lets it go."""
        with naming(target.name):
            self.await_vm(target, move, target_token)
        progress(0, 1)
        with naming(source.name):
            return self.leave_vm(source, move, source_token)

    def await_vm(self, target: Host, move: LiveMove, token: FencingToken) -> ActionResult:
        """Whether it may come."""

        def awaits(machine: SimulatedMachine) -> ActionResult:
            machine.ledger.admit(token)
            return await_vm(self._ours(machine), move)

        return self._call(target, "await_vm", awaits)

    def leave_vm(self, source: Host, move: LiveMove, token: FencingToken) -> MovedVm:
        """The other half."""

        def leaves(machine: SimulatedMachine) -> MovedVm:
            machine.ledger.admit(token)
            return leave_vm(self._ours(machine), move)

        return self._call(source, "leave_vm", leaves)

    def move_load(self, host: Host, vm: str) -> MoveLoad:
        """All of its memory."""
        return self._call(host, OBSERVE, lambda machine: load_of(self._ours(machine), vm))

    def watch(self, host: Host) -> Iterator[dict[str, object] | HostFrame]:
        """Readings and no events: what changed is seen at the next observation."""
        pace = self._call(host, OBSERVE, self._ours).readings
        return frames(lambda: self.readings(host), slow=pace == "slow", period_s=self.period_s, ended=self.ended)

    def readings(self, host: Host) -> HostFrame | None:
        """What its agent would send now; None: it sends none."""
        return self._call(host, OBSERVE, lambda machine: sent_frame(self._ours(machine)))

    def open_console(self, host: Host, vm: str) -> ByteStream:
        """A guest that sends back what it gets."""
        return self._consoles.open(vm, f"console of {vm}\r\n")

    def open_display(self, host: Host, vm: str) -> ByteStream:
        """A screen that shows one colour, another with each key."""
        return Screen(vm)

    def console_log(self, host: Host, vm: str, most: int) -> bytes:
        """What its domain printed at every start."""
        return self._call(host, OBSERVE, lambda machine: self._ours(machine).consoles.get(vm, "").encode()[-most:])

    def open_tcp(self, host: Host, vm: str, port: int) -> ByteStream:
        """:raises Conflict: ``vm.simulated``"""
        raise no_guest(self.observe_domain(host, vm))

    def forget(self, host: Host) -> None:  # noqa: B027 - the same for all
        """No connections are kept."""

    def install_agent(
        self, host: Host, gpus: tuple[str, ...], progress: Callable[[str], None], *, take_over: bool = False
    ) -> None:
        """The playbook's effect."""
        progress("install")

        def install(machine: SimulatedMachine) -> None:
            if machine.ledger.site not in {None, self._site} and not take_over:
                raise Conflict("host.other_site", "the host serves another site", hint="use --take-over")
            machine.ledger.site = self._site

        self._call(host, "install_agent", install)

    def remove_agent(self, host: Host, progress: Callable[[str], None]) -> None:
        """The playbook's effect."""
        progress("remove")

        def remove(machine: SimulatedMachine) -> None:
            if machine.ledger.site not in {None, self._site}:
                raise Conflict("host.other_site", "the host serves another site")
            machine.ledger.site = None

        self._call(host, "remove_agent", remove)

    def provision(self, host: Host, wanted: HostDrivers, progress: Callable[[str], None]) -> DueReboot | None:
        """The playbook's effect: modes and functions are back as the agent puts them back."""
        progress("install the driver")
        return self._call(host, "provision", lambda machine: swap(self._ours(machine), wanted))

    def join_ovn(self, host: Host, wanted: HostInOvn, progress: Callable[[str], None]) -> None:
        """The playbook's effect."""
        progress("join OVN")

        def join(machine: SimulatedMachine) -> None:
            machine.bridges = in_ovn(self._ours(machine).bridges, host.name)

        self._call(host, "join_ovn", join)

    def _ours(self, machine: SimulatedMachine) -> SimulatedMachine:
        machine.ledger.check_site(self._site)
        if machine.now < machine.up_at:
            raise Retryable("host.unreachable", "the host is booting")
        return machine
