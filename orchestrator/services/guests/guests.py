# SPDX-License-Identifier: Apache-2.0
"""What is put into the guests of VMs: the operation that runs roles there, and what came of it. Ways into a VM through
its host: the serial console, what it wrote, the display, a connection to one of its ports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from orchestrator.core.errors import Conflict, InvalidInput, Retryable
from orchestrator.core.gpu.licence import GuestLicence, licence_of
from orchestrator.core.guest.guest import GuestRecord
from orchestrator.core.guest.settings import SettingValue, check_roles, check_secrets, check_settings, check_token_given
from orchestrator.core.hosts.host import Host
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.ports.host import ByteStream, HostLink
from orchestrator.services.acting import actor
from orchestrator.services.begin import held_by, new_operation, record, running_operation
from orchestrator.services.guests.runs import GuestRoles
from orchestrator.services.messages import Started
from orchestrator.services.vm_checks import known_vm
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class GuestService:
    """Of any tenant: who may ask is the API's to say."""

    store: Store
    engine: Engine
    clock: Clock
    ids: Ids

    def provision(
        self,
        tenant: str,
        name: str,
        roles: tuple[str, ...],
        *,
        new_host_key: bool = False,
        settings: Mapping[str, SettingValue] = NONE,
        secrets: Mapping[str, str] = NONE,
    ) -> Started:
        """Run roles in the guest of a VM that runs. A second time changes nothing there.

        ``new_host_key``: what the guest showed so far is forgotten, and what it shows next counts. ``settings`` and
        ``secrets``: of core/guest/settings.py, by name; a secret is forgotten when the run is over.

        :raises InvalidInput: ``guest.role_unknown``, ``guest.no_roles``, ``guest.setting_…``, ``guest.secret_…``
        :raises NotFound: ``vm.unknown``
        :raises Conflict: ``vm.not_running``, ``vm.no_address``, ``vm.busy``, ``vm.driver_forbidden``
        :raises Conflict: ``guest.cuda_forbidden``; :raises NotFound: ``bundle.missing``
        """
        wanted = check_roles(roles)
        typed, handed = check_settings(wanted, settings), check_secrets(wanted, secrets)
        with self.store.begin() as tx:
            vm = known_vm(tx, tenant, name)
            _check_reachable(tx, vm)
            busy = running_operation(tx, vm)
            if busy is not None:
                hint = f"'vgpuctl operation wait {busy}' waits for it"
                raise Conflict("vm.busy", f"operation {busy} works on VM {vm.spec.name}", hint=hint)
            check_token_given(wanted, handed, _done(tx.guests.get(vm.id)))
            run = GuestRoles(roles=wanted, settings=typed, secrets=handed)
            inputs = run.inputs(tx, vm)
            if new_host_key:
                tx.guests.put(replace(tx.guests.get(vm.id), host_key=None))
            run.keep_secrets(tx, vm)
            operation = new_operation("provision_vm", vm, clock=self.clock, ids=self.ids)
            tx.vms.update(held_by(operation, vm))
            record(tx, operation, host=vm.host, inputs=inputs, said=", ".join(wanted))
        self.engine.submit(operation.id)
        return Started(operation=operation.id, name=vm.spec.name)

    def get(self, tenant: str, name: str) -> GuestRecord:
        """What is known of it. :raises NotFound: ``vm.unknown``"""
        with self.store.read() as tx:
            return tx.guests.get(known_vm(tx, tenant, name).id)

    def licence(self, tenant: str, name: str) -> GuestLicence:
        """What its host's driver said last of its guest's licence. :raises NotFound: ``vm.unknown``"""
        with self.store.read() as tx:
            vm = known_vm(tx, tenant, name)
            snapshot = tx.hosts.snapshot(vm.host) if vm.state == "running" else None
        gpus = () if snapshot is None else snapshot.gpus
        return licence_of(vm.id, (licence for gpu in gpus for licence in gpu.licences))


def _done(record: GuestRecord) -> tuple[str, ...]:
    return tuple(result.role for result in record.results if result.state != "failed")


def _check_reachable(tx: Transaction, vm: Vm) -> None:
    """:raises Conflict: ``vm.not_running``, ``vm.no_address``"""
    if vm.state != "running":
        hint = f"'vgpuctl start-vm {vm.spec.name}' starts it"
        raise Conflict("vm.not_running", f"VM {vm.spec.name} is {vm.state}", hint=hint)
    if not vm.addresses and not tx.floating_addresses.list(vm.spec.tenant, vm=vm.id):
        raise Conflict(
            "vm.no_address",
            f"VM {vm.spec.name} has no address that is known",
            hint=f"wait until its guest has booted: 'vgpuctl show-vm {vm.spec.name}' shows it then",
        )


def _no_display(vm: Vm) -> Conflict:
    name = vm.spec.name
    hint = f"'vgpuctl restart-vm {name}' starts it anew with one; 'vgpuctl console {name}' is there now"
    if vm.spec.adopted is not None:
        hint = f"an adopted VM keeps the definition it came with; 'vgpuctl console {name}' opens its serial console"
    return Conflict("vm.no_display", f"VM {name} runs without a graphical console", hint=hint)


def _connected(connect: Callable[[str, int], ByteStream], address: str, port: int) -> ByteStream:
    """:raises Retryable: ``vm.unreachable``"""
    try:
        return connect(address, port)
    except Retryable as error:
        hint = "do its security groups let it in ('vgpuctl security-group list'), and is this server let there?"
        raise Retryable(
            "vm.unreachable", f"the VM does not answer on port {port} of {address}", hint=hint, details=error.message
        ) from error


@dataclass(frozen=True, kw_only=True)
class GuestPorts:
    """TCP ports of VMs, for whoever comes from this machine: people's ssh, and runs of roles."""

    store: Store
    link: HostLink
    connect: Callable[[str, int], ByteStream] | None
    """From this machine to an address and a port, raising Retryable; None: it does not."""

    def open_tcp(self, host: Host, vm: str, port: int) -> ByteStream:
        """A connection to a port of the VM, made from its host; where that is on none of its networks, from here to its
        floating address. ``vm``: its id.

        :raises Conflict: ``vm.no_address``; :raises Retryable: ``vm.unreachable``"""
        try:
            return self.link.open_tcp(host, vm, port)
        except Conflict as error:
            with self.store.read() as tx:
                floating = tx.floating_addresses.list(vm=vm)
            if error.code != "vm.no_address" or self.connect is None or not floating:
                raise
            return _connected(self.connect, floating[0].address, port)


@dataclass(frozen=True, kw_only=True)
class GuestAccessService:
    """Open its console or its display, read what the first wrote, reach its ports. Each is on record before the first
    byte."""

    store: Store
    link: HostLink
    clock: Clock
    connect: Callable[[str, int], ByteStream] | None = None
    """As :class:`GuestPorts` has it."""

    def open_console(self, tenant: str, name: str) -> ByteStream:
        """:raises Conflict: ``vm.not_running``"""
        vm = self.running(tenant, name)
        return self.link.open_console(self._opening(vm, "open_console"), vm.id)

    def open_display(self, tenant: str, name: str) -> ByteStream:
        """RFB. :raises Conflict: ``vm.not_running``, ``vm.no_display``"""
        vm = self.running(tenant, name)
        try:
            return self.link.open_display(self._opening(vm, "open_display"), vm.id)
        except Conflict as error:
            if error.code != "vm.no_display":
                raise
            raise _no_display(vm) from error

    def console_log(self, tenant: str, name: str, most: int) -> bytes:
        """The last bytes that its serial console wrote, at most so many; also of one that is stopped. b"": nothing was
        kept, as of one that was adopted, or was started last by an agent that kept nothing."""
        vm = self._vm(tenant, name)
        return self.link.console_log(self._opening(vm, "read_console_log"), vm.id, most)

    def open_tcp(self, tenant: str, name: str, port: int) -> ByteStream:
        """A connection to a port of the VM, as :class:`GuestPorts` has it.

        :raises InvalidInput: ``port.out_of_range``; :raises Conflict: ``vm.not_running``, ``vm.no_address``
        :raises Retryable: ``vm.unreachable``"""
        if not 1 <= port <= 65535:
            raise InvalidInput("port.out_of_range", f"{port} is not a TCP port", hint="1 to 65535")
        vm = self.running(tenant, name)
        host = self._opening(vm, f"open_tcp {port}")
        return GuestPorts(store=self.store, link=self.link, connect=self.connect).open_tcp(host, vm.id, port)

    def _opening(self, vm: Vm, action: str) -> Host:
        """Its host. Who reaches into a guest is on record before the first byte."""
        with self.store.begin() as tx:
            at = self.clock.now()
            tx.audit.append(at=at, actor=actor(), action=action, subject=vm.full_name, outcome="accepted")
            return tx.hosts.get(vm.host)

    def running(self, tenant: str, name: str) -> Vm:
        """:raises NotFound: ``vm.unknown``; :raises Conflict: ``vm.not_running``"""
        vm = self._vm(tenant, name)
        if vm.state not in {"running", "starting", "creating"}:
            own = vm.spec.name
            raise Conflict("vm.not_running", f"VM {own} is {vm.state}", hint=f"'vgpuctl start-vm {own}' starts it")
        return vm

    def _vm(self, tenant: str, name: str) -> Vm:
        """:raises NotFound: ``vm.unknown``"""
        with self.store.read() as tx:
            return known_vm(tx, tenant, name)
