# SPDX-License-Identifier: Apache-2.0
"""What is read on hosts now, for people and for whoever scrapes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from orchestrator.core.hosts.host import Host
from orchestrator.core.readings.frame import Reading
from orchestrator.core.readings.quantities import SubjectKind
from orchestrator.core.readings.received import KEPT_FRAMES, ReceivedFrame
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.readings import OtherControllers
from orchestrator.services.readings.believed import BelievedReading, StoredHost, believed, of_vm
from orchestrator.services.readings.kept import KeptReadings
from orchestrator.services.readings.known_gpus import KnownGpus
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vm_checks import known_vm
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class HostReadings:
    """Of one host."""

    known: StoredHost
    received: ReceivedFrame | None
    """None: no controller has heard anything of it lately."""
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
    """Reads only. Frames are joined with what the database says at this moment; what this controller does not hear
    the others are asked for."""

    store: Store
    kept: KeptReadings
    others: OtherControllers
    gpus: KnownGpus = field(default_factory=KnownGpus)

    @property
    def site(self) -> str:
        """Id of the database."""
        return self.store.site

    def of_host(self, name: str) -> HostReadings:
        """:raises NotFound: ``host.unknown``"""
        with self.store.read() as tx:
            known = self._stored(tx, name)
        return self._received([known], KEPT_FRAMES)[0]

    def of_hosts(self) -> tuple[HostReadings, ...]:
        """Of all, by name, with the last moment alone."""
        with self.store.read() as tx:
            known = self._stored_hosts(tx)
        return self._received(known, 1)

    def of_vm(self, tenant: str, name: str) -> VmReadings:
        """:raises NotFound: ``vm.unknown``"""
        with self.store.read() as tx:
            vm = known_vm(tx, tenant, name)
            known = self._stored(tx, vm.host)
        return _of_vms([vm], self._received([known], KEPT_FRAMES))[0]

    def of_tenant(self, tenant: str) -> tuple[VmReadings, ...]:
        """Of all its VMs, by name.

        :raises NotFound: ``tenant.unknown``
        """
        with self.store.read() as tx:
            known_tenant(tx, tenant)
        return self.of_tenants((tenant,))

    def of_tenants(self, tenants: Collection[str] | None) -> tuple[VmReadings, ...]:
        """Of their VMs (None: of all), by tenant and name, with the last moment alone."""
        with self.store.read() as tx:
            vms = [vm for vm in tx.vms.list() if tenants is None or vm.spec.tenant in tenants]
            known = self._stored_hosts(tx, {vm.host for vm in vms})
        return _of_vms(vms, self._received(known, 1))

    def of_gpus(self, hosts: Collection[str]) -> dict[tuple[str, str], Reading]:
        """What GPUs of these hosts do now, by host and PCI address; a host can say something of its own alone."""
        return {
            (host, reading.facts.get("pci_address", reading.id)): reading
            for host, received in self._frames(hosts, 1).items()
            if received is not None
            for reading in received.frame.readings
            if reading.kind == "gpu"
        }

    def frames_with_flows(self, hosts: Collection[str]) -> dict[str, ReceivedFrame | None]:
        """Of these; None: nothing was heard lately."""
        return self._frames(hosts, 0)

    def hosts(self) -> tuple[Host, ...]:
        """All that may be scraped, by name: nobody is to be alerted of one that was given up."""
        with self.store.read() as tx:
            return _kept_hosts(tx)

    def _stored(self, tx: Transaction, name: str) -> StoredHost:
        vms = {vm.id: vm for vm in tx.vms.list(host=name)}
        return StoredHost(host=tx.hosts.get(name), seen=self.gpus.of(tx, name), vms=vms)

    def _stored_hosts(self, tx: Transaction, names: Collection[str] | None = None) -> list[StoredHost]:
        """Those of them (None: all) that were not given up, by name."""
        vms, gpus = dict[str, dict[str, Vm]](), self.gpus.of_all(tx)
        for vm in tx.vms.list():
            vms.setdefault(vm.host, {})[vm.id] = vm
        hosts = (host for host in _kept_hosts(tx) if names is None or host.name in names)
        return [StoredHost(host=host, seen=gpus.get(host.name, ()), vms=vms.get(host.name, {})) for host in hosts]

    def _received(self, known: Collection[StoredHost], moments: int) -> tuple[HostReadings, ...]:
        frames = self._frames([stored.host.name for stored in known], moments)
        return tuple(_joined(stored, frames[stored.host.name]) for stored in known)

    def _frames(self, hosts: Collection[str], moments: int) -> dict[str, ReceivedFrame | None]:
        """No transaction may be open: other controllers are asked."""
        frames = {host: self.kept.last(host) for host in hosts}
        unheard = [host for host, received in frames.items() if received is None]
        others = self.others.readings(unheard, moments=moments) if unheard else {}
        return {host: received or others.get(host) for host, received in frames.items()}


def _kept_hosts(tx: Transaction) -> tuple[Host, ...]:
    kept = (host for host in tx.hosts.list() if host.state != "forgotten")
    return tuple(sorted(kept, key=lambda host: host.name))


def _joined(known: StoredHost, received: ReceivedFrame | None) -> HostReadings:
    readings = () if received is None else believed(known, received.frame)
    return HostReadings(known=known, received=received, readings=readings)


def _of_vms(vms: Iterable[Vm], hosts: Iterable[HostReadings]) -> tuple[VmReadings, ...]:
    """Without those whose host was given up."""
    by_name = {host.known.host.name: (host, _by_vm(host.readings)) for host in hosts}
    shown = ((vm, *by_name[vm.host]) for vm in vms if vm.host in by_name)
    return tuple(
        VmReadings(vm=vm, received=host.received, readings=of_vm(readings.get(vm.id, ()), host.known.vms))
        for vm, host, readings in shown
    )


def _by_vm(readings: Iterable[BelievedReading]) -> dict[str, list[BelievedReading]]:
    of: dict[str, list[BelievedReading]] = {}
    for item in readings:
        if item.vm is not None:
            of.setdefault(item.vm.id, []).append(item)
    return of
