# SPDX-License-Identifier: Apache-2.0
"""Ways into guests that exist in memory."""

from __future__ import annotations

from typing import Protocol

from orchestrator.adapters.ansible.ssh_proxy import TcpStream
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.host import ByteStream
from orchestrator.sim.guests import Echo
from orchestrator.sim.screen import Screen


class VmsOfFakes(Protocol):
    guest_port: int | None
    """Of this machine, where ports of guests are; None: they echo."""

    def get(self, tenant: str, name: str) -> Vm: ...


class GuestAccess:
    """Consoles that echo, screens of one colour, and ports."""

    def __init__(self, vms: VmsOfFakes) -> None:
        self._vms = vms

    def running(self, tenant: str, name: str) -> Vm:
        vm = self._vms.get(tenant, name)
        if vm.state != "running":
            raise Conflict("vm.not_running", f"{name} is not running")
        return vm

    def open_console(self, tenant: str, name: str) -> ByteStream:
        self.running(tenant, name)
        return Echo()

    def open_display(self, tenant: str, name: str) -> ByteStream:
        self.open_console(tenant, name).close()
        return Screen(name)

    def console_log(self, tenant: str, name: str, most: int) -> bytes:
        return f"\x1b[1m{self._vms.get(tenant, name).spec.name}\x1b[0m\tboots\x07\r\n\xe9 login: ".encode()[-most:]

    def open_tcp(self, tenant: str, name: str, port: int) -> ByteStream:
        if port == 1:
            raise Fatal("guest.refused", "the guest refuses connections to this port")
        stream = self.open_console(tenant, name)
        return stream if self._vms.guest_port is None else TcpStream("127.0.0.1", self._vms.guest_port)
