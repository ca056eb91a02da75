# SPDX-License-Identifier: Apache-2.0
"""Readings of hosts in a dictionary: each has sent two frames, the last one three seconds ago."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from orchestrator.core.errors import NotFound
from orchestrator.core.hosts.host import Host
from orchestrator.core.readings.frame import HostFrame, Reading
from orchestrator.core.readings.received import ReceivedFrame, moment_of
from orchestrator.ports.clock import Clock
from orchestrator.services.readings.believed import StoredHost, believed, of_vm
from orchestrator.services.readings.kept import KeptReadings
from orchestrator.services.readings.known_gpus import KnownGpu
from orchestrator.services.readings.networks import NetworkFlows, NetworkSums, NetworkTraffic
from orchestrator.services.readings.readings import HostReadings, ReadingService, VmReadings
from orchestrator.store.database import Store
from tests.fakes.fleet_services import Networks
from tests.fakes.frames import VM_NUMBERS, frame_of, vm_reading
from tests.fakes.world import World

CPUS = 1.5
"""That each VM has kept busy."""
PERIOD_S = 10.0
CPU_SECONDS = ("vm_cpu_seconds_total", "")


class Nobody:
    """The other controllers where there are none."""

    def readings(self, hosts: Collection[str], *, moments: int) -> Mapping[str, ReceivedFrame]:
        del hosts, moments
        return {}


def silent_readings(store: Store, clock: Clock) -> ReadingService:
    """Of hosts that nothing is heard of."""
    return ReadingService(store=store, kept=KeptReadings(clock), others=Nobody())


class Readings:
    site = "site"

    def __init__(self, world: World) -> None:
        self._world = world

    def of_host(self, name: str) -> HostReadings:
        info = self._world.hosts.get(name)
        if info is None:
            raise NotFound("host.unknown", f"no host is called {name[:63]!a}")
        vms = {vm.id: vm for vm in self._world.vms.values() if vm.host == name}
        gpus = () if info.snapshot is None else info.snapshot.gpus
        seen = tuple(KnownGpu(gpu.address, gpu.uuid, gpu.model) for gpu in gpus)
        known = StoredHost(host=info.host, seen=seen, vms=vms)
        if info.snapshot is None:
            return HostReadings(known=known, received=None)
        received = received_twice(frame_of(info.snapshot, *vms.values()))
        return HostReadings(known=known, received=received, readings=believed(known, received.frame))

    def of_hosts(self) -> tuple[HostReadings, ...]:
        return tuple(self.of_host(name) for name in sorted(self._world.hosts))

    def of_gpus(self, hosts: Collection[str]) -> dict[tuple[str, str], Reading]:
        return {
            (host, reading.facts.get("pci_address", reading.id)): reading
            for host in hosts
            if (received := self.of_host(host).received) is not None
            for reading in received.frame.readings
            if reading.kind == "gpu"
        }

    def of_vm(self, tenant: str, name: str) -> VmReadings:
        vm = self._world.vms.get((tenant, name))
        if vm is None:
            raise NotFound("vm.unknown", f"no VM is called {name[:63]!a}")
        host = self.of_host(vm.host)
        own = [item for item in host.readings if item.vm is not None and item.vm.id == vm.id]
        return VmReadings(vm=vm, received=host.received, readings=of_vm(own, host.known.vms))

    def of_tenant(self, tenant: str) -> tuple[VmReadings, ...]:
        return self.of_tenants((tenant,))

    def of_tenants(self, tenants: Collection[str] | None) -> tuple[VmReadings, ...]:
        return tuple(self.of_vm(*key) for key in sorted(self._world.vms) if tenants is None or key[0] in tenants)

    def hosts(self) -> tuple[Host, ...]:
        return tuple(info.host for _, info in sorted(self._world.hosts.items()))


class NetworkReadings:
    """Nothing passes."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks

    def traffic(self, tenant: str, name: str) -> NetworkTraffic:
        self._networks.usable(tenant, name)
        return NetworkTraffic(vms=(), silent=(), numbers={})

    def sums(self, tenant: str, vms: object) -> tuple[NetworkSums, ...]:
        del tenant, vms
        return ()

    def flows(self, tenant: str, name: str, since_s: float) -> NetworkFlows:
        del since_s
        overlay = self._networks.usable(tenant, name).overlay
        return NetworkFlows(flow_log="off" if overlay is None else overlay.flow_log)


def received_twice(frame: HostFrame) -> ReceivedFrame:
    """With the moment before, since when each VM has kept :data:`CPUS` busy."""
    before = HostFrame(frame.taken_at - PERIOD_S, tuple(map(_earlier, frame.readings)))
    first = moment_of(-13.0, before, None, ())
    moments = (first, moment_of(-3.0, frame, before, first.columns))
    return ReceivedFrame(frame=frame, received_at=-3.0, now=0.0, clock_ahead_s=0.0, moments=moments)


def _earlier(reading: Reading) -> Reading:
    if reading.kind != "vm":
        return reading
    then = VM_NUMBERS[CPU_SECONDS] - CPUS * PERIOD_S
    return replace(vm_reading(reading.id, {**VM_NUMBERS, CPU_SECONDS: then}), vm=reading.vm)
