# SPDX-License-Identifier: Apache-2.0
"""What is read on hosts now, for people and for whoever scrapes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.core.hosts.host import Host
from orchestrator.core.readings.quantities import SubjectKind
from orchestrator.core.vms.vm import Vm
from orchestrator.services.readings.believed import BelievedReading, StoredHost, believed, of_vm
from orchestrator.services.readings.kept import History, KeptReadings, ReceivedFrame
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vm_checks import known_vm
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class HostReadings:
    """Of one host."""

    known: StoredHost
    received: ReceivedFrame | None
    """None: this process has heard nothing of it lately."""
    readings: tuple[BelievedReading, ...] = ()

    def only(self, gpu: str | None, kind: SubjectKind | None) -> HostReadings:
        """Of the GPU with this PCI address and what lies on it, and of one kind; None: of all."""
        picked = (
            item
            for item in self.readings
            if (gpu is None or (item.gpu is not None and item.gpu.address == gpu)) and kind in {None, item.reading.kind}
        )
        return replace(self, readings=tuple(picked))


@dataclass(frozen=True, kw_only=True)
class VmReadings:
    """Of one VM: itself, its vGPUs and GPU instances."""

    vm: Vm
    received: ReceivedFrame | None
    """None: nothing was heard of its host lately."""
    readings: tuple[BelievedReading, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReadingService:
    """Reads only. Frames are joined with what the database says at this moment."""

    store: Store
    kept: KeptReadings

    @property
    def site(self) -> str:
        """Id of the database."""
        return self.store.site

    def of_host(self, name: str) -> HostReadings:
        """:raises NotFound: ``host.unknown``"""
        with self.store.read() as tx:
            return self._of_host(tx, name)

    def of_vm(self, tenant: str, name: str) -> VmReadings:
        """:raises NotFound: ``vm.unknown``"""
        with self.store.read() as tx:
            vm = known_vm(tx, tenant, name)
            return _of_vm(vm, self._of_host(tx, vm.host))

    def of_tenant(self, tenant: str) -> tuple[VmReadings, ...]:
        """Of all its VMs, by name.

        :raises NotFound: ``tenant.unknown``
        """
        with self.store.read() as tx:
            known_tenant(tx, tenant)
            vms = tx.vms.list(tenant=tenant)
            hosts = {name: self._of_host(tx, name) for name in sorted({vm.host for vm in vms})}
        return tuple(_of_vm(vm, hosts[vm.host]) for vm in vms)

    def history(self, host: str) -> Callable[[BelievedReading], History]:
        """The last minutes of each reading of :meth:`of_host`, all of the same moments."""
        histories = self.kept.histories(host)
        return lambda item: histories.of(item.reading.kind, item.reading.id)

    def hosts(self) -> tuple[Host, ...]:
        """All that may be scraped, by name: nobody is to be alerted of one that was given up."""
        with self.store.read() as tx:
            kept = (host for host in tx.hosts.list() if host.state != "forgotten")
            return tuple(sorted(kept, key=lambda host: host.name))

    def _of_host(self, tx: Transaction, name: str) -> HostReadings:
        vms = {vm.id: vm for vm in tx.vms.list(host=name)}
        known = StoredHost(host=tx.hosts.get(name), snapshot=tx.hosts.snapshot(name), vms=vms)
        received = self.kept.last(name)
        readings = () if received is None else believed(known, received.frame)
        return HostReadings(known=known, received=received, readings=readings)


def _of_vm(vm: Vm, host: HostReadings) -> VmReadings:
    return VmReadings(vm=vm, received=host.received, readings=of_vm(host.readings, vm, host.known.vms))
