# SPDX-License-Identifier: Apache-2.0
"""VMs' own disks become larger."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.errors import InvalidInput, NoCapacity
from orchestrator.core.units import show_size
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.engine import Engine
from orchestrator.services.begin import held_by, new_operation, record
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.messages import Started
from orchestrator.services.pools import check_pool_has
from orchestrator.services.tenancy.quotas import within_quota
from orchestrator.services.vm_checks import check_settled, known_vm
from orchestrator.services.vms.planning import Planner
from orchestrator.services.vms.requirements import check_disk_size
from orchestrator.services.vms.vm_volumes import check_may_change
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class DiskGrowth:
    """A disk never shrinks: its guest may have written behind the new end."""

    store: Store
    engine: Engine
    planner: Planner

    def resize(self, tenant: str, vm_name: str, size_bytes: int) -> Started:
        """Of a VM that is stopped, or runs: its guest learns of it then. Done again it is the same once more.

        :raises NotFound: ``vm.unknown``; :raises InvalidInput: ``disk.out_of_range``, ``disk.shrinks``
        :raises Conflict: ``vm.busy``, ``vm.suspended``, ``vm.adopted``; :raises QuotaExceeded: ``quota.exceeded``
        :raises NoCapacity: ``host.disk``, ``pool.full``"""
        check_disk_size(size_bytes)
        with self.planner.index.current() as fleet, self.store.begin() as tx:
            vm = known_vm(tx, tenant, vm_name)
            check_may_change(vm)
            check_settled(tx, vm)
            if size_bytes == vm.spec.disk_bytes:
                return Started(operation=None, name=vm.spec.name, existing=True)
            operation = new_operation("grow_disk", vm, clock=self.planner.clock, ids=self.planner.ids)
            tx.vms.update(held_by(operation, self._grown(tx, fleet, vm, size_bytes)))
            inputs: dict[str, object] = {"vm": vm.spec.name, "size": size_bytes, "size_before": vm.spec.disk_bytes}
            record(tx, operation, host=vm.host, inputs=inputs, said=show_size(size_bytes))
        self.engine.submit(operation.id)
        return Started(operation=operation.id, name=vm.spec.name)

    def _grown(self, tx: Transaction, fleet: FleetIndex, vm: Vm, size_bytes: int) -> Vm:
        """With what is claimed for it."""
        more = size_bytes - vm.spec.disk_bytes
        if more < 0:
            words = f"the disk of VM {vm.spec.name} has {show_size(vm.spec.disk_bytes)}, and no disk shrinks"
            hint = "its end may hold what its guest wrote: make another VM with a smaller disk, and copy what you need"
            raise InvalidInput("disk.shrinks", words, hint=hint)
        grown = replace(vm, spec=replace(vm.spec, disk_bytes=size_bytes))
        within_quota(tx, grown, vm)
        check_pool_has(tx, vm.spec.pool, more)
        capacity = fleet.capacity(vm.host)
        try:
            tx.disk_snapshots.claim_disk(vm, size_bytes, 0 if capacity is None else capacity.disk_bytes)
        except ClaimLost as error:
            hint = "ask for less, or move the VM: 'vgpuctl host list -o wide' shows what is free"
            words = f"the host of VM {vm.spec.name} has no {show_size(more)} of disk left"
            raise NoCapacity("host.disk", words, hint=hint) from error
        return grown
