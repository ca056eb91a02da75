# SPDX-License-Identifier: Apache-2.0
"""Readings of hosts in a dictionary: each has sent one frame, three seconds ago."""

from __future__ import annotations

from orchestrator.core.errors import NotFound
from orchestrator.core.hosts.host import Host
from orchestrator.core.readings.quantities import BY_NAME
from orchestrator.services.readings.believed import BelievedReading, StoredHost, believed, of_vm
from orchestrator.services.readings.kept import History, ReceivedFrame, Series
from orchestrator.services.readings.readings import HostReadings, VmReadings
from tests.fakes.frames import frame_of
from tests.fakes.world import World


class Readings:
    site = "site"

    def __init__(self, world: World) -> None:
        self._world = world

    def of_host(self, name: str) -> HostReadings:
        info = self._world.hosts.get(name)
        if info is None:
            raise NotFound("host.unknown", f"no host is called {name[:63]!a}")
        vms = {vm.id: vm for vm in self._world.vms.values() if vm.host == name}
        known = StoredHost(host=info.host, snapshot=info.snapshot, vms=vms)
        if info.snapshot is None:
            return HostReadings(known=known, received=None)
        received = ReceivedFrame(frame=frame_of(info.snapshot, *vms.values()), age_s=3.0, clock_ahead_s=0.0)
        return HostReadings(known=known, received=received, readings=believed(known, received.frame))

    def of_vm(self, tenant: str, name: str) -> VmReadings:
        vm = self._world.vms.get((tenant, name))
        if vm is None:
            raise NotFound("vm.unknown", f"no VM is called {name[:63]!a}")
        host = self.of_host(vm.host)
        return VmReadings(vm=vm, received=host.received, readings=of_vm(host.readings, vm, host.known.vms))

    def of_tenant(self, tenant: str) -> tuple[VmReadings, ...]:
        return tuple(self.of_vm(*key) for key in sorted(self._world.vms) if key[0] == tenant)

    def history(self, host: str, item: BelievedReading) -> History:
        del host
        growth = 1.5 if item.reading.kind == "vm" else 0.5
        quantity = "vm_cpu_seconds_total" if item.reading.kind == "vm" else "gpu_utilization_ratio"
        return History(
            ages_s=(13.0, 3.0), series=(Series(quantity=BY_NAME[quantity], label="", numbers=(None, growth)),)
        )

    def hosts(self) -> tuple[Host, ...]:
        return tuple(info.host for _, info in sorted(self._world.hosts.items()))
