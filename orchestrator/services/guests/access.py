# SPDX-License-Identifier: Apache-2.0
"""Ways into a VM through its host: the serial console, what it wrote, a connection to one of its ports."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.hosts.host import Host
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.clock import Clock
from orchestrator.ports.host import ByteStream, HostLink
from orchestrator.services.acting import actor
from orchestrator.services.vm_checks import known_vm
from orchestrator.store.database import Store


@dataclass(frozen=True, kw_only=True)
class GuestAccessService:
    """Open its console, read what that wrote, reach its ports. Each is on record before the first byte."""

    store: Store
    link: HostLink
    clock: Clock

    def open_console(self, tenant: str, name: str) -> ByteStream:
        """:raises Conflict: ``vm.not_running``"""
        vm = self._running(tenant, name)
        return self.link.open_console(self._opening(vm, "open_console"), vm.id)

    def console_log(self, tenant: str, name: str, most: int) -> bytes:
        """The last bytes that its serial console wrote, at most so many; also of one that is stopped. b"": nothing was
        kept, as of one that was adopted, or was started last by an agent that kept nothing."""
        vm = self._vm(tenant, name)
        return self.link.console_log(self._opening(vm, "read_console_log"), vm.id, most)

    def open_tcp(self, tenant: str, name: str, port: int) -> ByteStream:
        """A connection to a port of the VM, made from its host.

        :raises InvalidInput: ``port.out_of_range``; :raises Conflict: ``vm.not_running``"""
        if not 1 <= port <= 65535:
            raise InvalidInput("port.out_of_range", f"{port} is not a TCP port", hint="1 to 65535")
        vm = self._running(tenant, name)
        return self.link.open_tcp(self._opening(vm, f"open_tcp {port}"), vm.id, port)

    def _opening(self, vm: Vm, action: str) -> Host:
        """Its host. Who reaches into a guest is on record before the first byte."""
        with self.store.begin() as tx:
            at = self.clock.now()
            tx.audit.append(at=at, actor=actor(), action=action, subject=vm.full_name, outcome="accepted")
            return tx.hosts.get(vm.host)

    def _running(self, tenant: str, name: str) -> Vm:
        vm = self._vm(tenant, name)
        if vm.state not in {"running", "starting", "creating"}:
            raise Conflict("vm.not_running", f"VM {name} is {vm.state}", hint=f"'vgpuctl start-vm {name}' starts it")
        return vm

    def _vm(self, tenant: str, name: str) -> Vm:
        """:raises NotFound: ``vm.unknown``"""
        with self.store.read() as tx:
            return known_vm(tx, tenant, name)
