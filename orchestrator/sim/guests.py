# SPDX-License-Identifier: Apache-2.0
"""Guests of simulated VMs: whatever is run in them is there already, at a console they send back what they get, and
behind ports there is none.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.errors import Conflict
from orchestrator.core.guest.guest import Guest, GuestRun, RoleResult, WantedRoles
from orchestrator.core.hosts.snapshot import DomainSnapshot

_KEY = "ssh-ed25519 AAAA"
SLOW_S = 5.0
"""Somebody at a console who took nothing for so long loses it, as on a host."""


class SimulatedGuests:
    """Implements ports.guests.Guests."""

    def reach(self, guest: Guest, stop: Callable[[], bool]) -> GuestRun:
        return GuestRun(host_key=_KEY)

    def provision(
        self, guest: Guest, wanted: WantedRoles, progress: Callable[[str], None], stop: Callable[[], bool]
    ) -> GuestRun:
        for role in wanted.roles:
            progress(role)
        return GuestRun(
            host_key=_KEY,
            results=tuple(ran(role, guest.run, time.time()) for role in wanted.roles),
            facts=GuestFacts(system="simulated") if "guest_check" in wanted.roles else None,
        )


def ran(role: str, operation: str, at: float) -> RoleResult:
    """A role that found everything as it should be."""
    return RoleResult(role=role, state="ok", tasks_ok=1, tasks_changed=0, failed_task=None, at=at, operation=operation)


def no_guest(domain: DomainSnapshot | None) -> Conflict:
    """``domain``: of the VM; it is called as core/vms/vm.py says, an adopted one as it was."""
    name = None if domain is None else domain.name.rpartition(".")[2]
    return Conflict(
        "vm.simulated",
        "a simulated VM has no guest that answers on a port",
        hint=None if name is None else f"only its console is there: 'vgpuctl console {name}'",
    )


class Echo:
    """Greets, sends back what it gets, and hangs up on Ctrl-D. All who are at the same console see the same."""

    def __init__(self, greeting: bytes = b"", console: set[Echo] | None = None) -> None:
        self._guest, self._ours = socket.socketpair()
        self._guest.setblocking(False)
        self._show(greeting)
        self._console = set() if console is None else console
        self._console.add(self)

    def fileno(self) -> int:
        return self._ours.fileno()

    def send(self, data: bytes, /) -> int:
        if data == b"\x04":
            self._guest.shutdown(socket.SHUT_WR)
            return 1
        sent = self._show(data)
        for other in self._console - {self}:
            with suppress(OSError, ValueError):  # it has just left
                if not other._shown(data[:sent]):
                    other._guest.shutdown(socket.SHUT_WR)
        return sent

    def receive(self, size: int, /) -> bytes:
        return self._ours.recv(size)

    def close(self) -> None:
        self._console.discard(self)
        self._guest.close()
        self._ours.close()

    def _shown(self, data: bytes) -> bool:
        """Whether it took all of it."""
        ready = select.poll()
        ready.register(self._guest, select.POLLOUT)
        while data:
            if not ready.poll(SLOW_S * 1000):
                return False
            data = data[self._show(data) :]
        return True

    def _show(self, data: bytes) -> int:
        try:
            return self._guest.send(data)
        except BlockingIOError:
            return 0


class Consoles:
    """Serial consoles of VMs, by id."""

    def __init__(self) -> None:
        self._at: dict[str, set[Echo]] = {}

    def open(self, vm: str, greeting: str) -> Echo:
        return Echo(greeting.encode(), self._at.setdefault(vm, set()))
