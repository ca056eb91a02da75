# SPDX-License-Identifier: Apache-2.0
"""Snapshots of VMs' disks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.errors import Conflict, NoCapacity
from orchestrator.core.names import check_name
from orchestrator.core.tenancy.quota import volume_amounts
from orchestrator.core.units import show_size
from orchestrator.core.vms.disk_snapshot import MAX_OF_VM, DiskSnapshot, find_snapshot
from orchestrator.core.vms.image import check_one_more, stored_name
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import written
from orchestrator.operations.steps.disk_snapshots import CopyOfVolume
from orchestrator.ports.engine import Engine
from orchestrator.services.begin import held_by, new_operation, record, undo_inputs
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.messages import Started
from orchestrator.services.tenancy.quotas import more_within_quota
from orchestrator.services.vm_checks import check_idle, check_settled, check_state, known_vm
from orchestrator.services.vms.planning import Planner
from orchestrator.services.vms.vm_volumes import check_may_change
from orchestrator.services.vms.volume_snapshots import VolumeSnapshots
from orchestrator.services.vms.volumes import VolumeService
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class VmSnapshots:
    """Each holds room for the whole disk, on its VM's host."""

    store: Store
    engine: Engine
    planner: Planner

    def list(self, tenant: str, vm_name: str) -> tuple[DiskSnapshot, ...]:
        """Oldest first. :raises NotFound: ``vm.unknown``"""
        with self.store.read() as tx:
            return known_vm(tx, tenant, vm_name).snapshots

    @property
    def of_volumes(self) -> VolumeSnapshots:
        return VolumeSnapshots(volumes=VolumeService(store=self.store, engine=self.engine, planner=self.planner))

    def create(self, tenant: str, vm_name: str, name: str, *, volumes: bool = False) -> Started:
        """Of one that runs, or is stopped. ``volumes``: at the same moment of the data volumes that it writes.

        :raises NotFound: ``vm.unknown``; :raises InvalidInput: ``snapshot.name_invalid``
        :raises Conflict: ``vm.busy``, ``vm.suspended``, ``vm.adopted``, ``snapshot.exists``, ``snapshot.too_many``,
            ``snapshot.in_pool``, ``snapshot.encrypted``, and of volumes ``volume.encrypted``, ``volume.busy``
        :raises QuotaExceeded: ``quota.exceeded``
        :raises NoCapacity: ``host.disk``, ``volume.no_capacity``, ``pool.full``"""
        check_name(name, what="snapshot")
        with self.planner.index.current() as fleet, self.store.begin() as tx:
            vm = known_vm(tx, tenant, vm_name)
            check_may_change(vm)
            check_settled(tx, vm)
            copies = self.of_volumes.with_disk(tx, vm, name, written(vm)) if volumes else ()
            vm, made = self.claim(tx, fleet, vm, name, copies)
            started = self.begin(tx, "create_snapshot", vm, made, inputs_of_copies(copies))
        return self._submitted(started)

    def claim(
        self, tx: Transaction, fleet: FleetIndex, vm: Vm, name: str, copies: tuple[CopyOfVolume, ...] = ()
    ) -> tuple[Vm, DiskSnapshot]:
        """The VM with one that is still to be taken, for which there is room. ``copies``: taken with it.

        :raises Conflict: ``snapshot.exists``, ``snapshot.too_many``, ``snapshot.in_pool``, ``snapshot.encrypted``
        :raises QuotaExceeded: ``quota.exceeded``; :raises NoCapacity: ``host.disk``"""
        _check_one_more(vm, name)
        volumes = tuple(f"{copy.made.name.partition('/')[0]}.{copy.made.id}" for copy in copies)
        made = replace(self._drawn(vm, name), volumes=volumes)
        size = made.size_bytes + sum(copy.made.size_bytes for copy in copies)
        more_within_quota(tx, vm.spec.tenant, volume_amounts(size))
        return self._added(tx, fleet, vm, made), made

    def claim_copy(self, tx: Transaction, fleet: FleetIndex, vm: Vm) -> tuple[Vm, DiskSnapshot]:
        """Room for what is put in its disk's place, whatever its tenant's quota is.

        :raises NoCapacity: ``host.disk``"""
        copy = self._drawn(vm, "")
        return self._added(tx, fleet, vm, copy), copy

    def _drawn(self, vm: Vm, name: str) -> DiskSnapshot:
        """``name``: "": as its id begins."""
        drawn = self.planner.ids.new_uuid()
        name, size = name or f"copy-{drawn[:8]}", vm.spec.disk_bytes
        return DiskSnapshot(id=drawn, name=name, size_bytes=size, created_at=self.planner.clock.now())

    def _added(self, tx: Transaction, fleet: FleetIndex, vm: Vm, snapshot: DiskSnapshot) -> Vm:
        """With its room claimed. :raises NoCapacity: ``host.disk``"""
        capacity = fleet.capacity(vm.host)
        if capacity is None:
            raise _no_disk(vm)
        try:
            tx.disk_snapshots.add(vm, snapshot, capacity.disk_bytes)
        except ClaimLost as error:
            raise _no_disk(vm) from error
        return tx.vms.find_id(vm.id) or vm

    def delete(self, tenant: str, vm_name: str, name: str) -> Started:
        """:raises NotFound: ``vm.unknown``, ``snapshot.unknown``; :raises Conflict: ``vm.busy``, ``vm.suspended``"""
        with self.store.begin() as tx:
            vm = known_vm(tx, tenant, vm_name)
            snapshot = find_snapshot(vm.snapshots, name, vm.spec.name)
            check_settled(tx, vm)
            copies = self.of_volumes.to_delete(tx, snapshot)
            started = self.begin(tx, "delete_snapshot", vm, snapshot, inputs_of_copies(copies))
        return self._submitted(started)

    def restore(self, tenant: str, vm_name: str, name: str) -> Started:
        """What was written to the VM's disk since is gone, and to the volumes that it was taken of. The snapshot stays.
        Until it is done, what is copied is one more that is unfinished, and has its room on the host whatever the
        tenant's quota is.

        :raises NotFound: ``vm.unknown``, ``snapshot.unknown``
        :raises Conflict: ``vm.busy``: it runs; ``vm.suspended``, ``snapshot.unfinished``, ``volume.not_attached``,
            ``volume.busy``
        :raises NoCapacity: ``host.disk``, ``volume.no_capacity``, ``pool.full``"""
        with self.planner.index.current() as fleet, self.store.begin() as tx:
            vm = known_vm(tx, tenant, vm_name)
            snapshot = find_snapshot(vm.snapshots, name, vm.spec.name)
            check_state(vm, "stopped")
            check_idle(tx, vm)
            snapshot = taken_snapshot(vm, name)
            copies = self.of_volumes.to_put_back(tx, vm, snapshot)
            vm, copy = self.claim_copy(tx, fleet, vm)
            started = self.begin(tx, "restore_snapshot", vm, snapshot, {"copy_id": copy.id, **inputs_of_copies(copies)})
        return self._submitted(started)

    def image(self, tenant: str, vm_name: str, name: str, image: str) -> Started:
        """The tenant's own, of a VM that runs or is stopped. Until the server has it, a copy has its room on the host.

        :raises NotFound: ``vm.unknown``, ``snapshot.unknown``; :raises InvalidInput: ``image.name_invalid``
        :raises Conflict: ``vm.busy``, ``vm.suspended``, ``snapshot.unfinished``, ``image.exists``, ``image.too_many``
        :raises QuotaExceeded: ``quota.exceeded``; :raises NoCapacity: ``host.disk``"""
        stored = stored_name(tenant, image)
        with self.planner.index.current() as fleet, self.store.begin() as tx:
            vm = known_vm(tx, tenant, vm_name)
            snapshot = taken_snapshot(vm, name)
            check_settled(tx, vm)
            check_one_more(stored, tx.images.list())
            more_within_quota(tx, tenant, {"images": 1})  # MiB: how large its file becomes is seen when it is there
            vm, copy = self.claim_copy(tx, fleet, vm)
            more: dict[str, object] = {"copy_id": copy.id, "image": stored}
            started = self.begin(tx, "create_image", vm, snapshot, more, audited=stored)
        return self._submitted(started)

    def begin(
        self, tx: Transaction, kind: str, vm: Vm, snapshot: DiskSnapshot, more: dict[str, object] | None = None,
        *, audited: str | None = None,
    ) -> Started:  # fmt: skip
        """An operation on the VM that has it. ``more``: inputs; ``audited``: of what; None: the snapshot."""
        operation = new_operation(kind, vm, clock=self.planner.clock, ids=self.planner.ids)
        tx.vms.update(held_by(operation, vm))
        inputs = {"vm": vm.spec.name, **undo_inputs(vm), "snapshot": snapshot.name, "snapshot_id": snapshot.id}
        record(tx, operation, host=vm.host, inputs=inputs | (more or {}), said=audited or snapshot.name)
        return Started(operation=operation.id, name=vm.spec.name)

    def _submitted(self, started: Started) -> Started:
        self.engine.submit(str(started.operation))
        return started


def inputs_of_copies(copies: tuple[CopyOfVolume, ...]) -> dict[str, object]:
    """Of an operation. ``copy_ids``: for who looks for the operation by one of them."""
    if not copies:
        return {}
    return {"copies": [copy.fields() for copy in copies], "copy_ids": " ".join(copy.made.id for copy in copies)}


def taken_snapshot(vm: Vm, name: str) -> DiskSnapshot:
    """:raises NotFound: ``snapshot.unknown``; :raises Conflict: ``snapshot.unfinished``"""
    snapshot = find_snapshot(vm.snapshots, name, vm.spec.name)
    if snapshot.taken_of is None:
        hint = f"delete it with 'vgpuctl vm snapshot delete {_named(vm)} {snapshot.name}' and take another"
        raise Conflict("snapshot.unfinished", f"snapshot {name} was not taken to its end", hint=hint)
    return snapshot


def _check_one_more(vm: Vm, name: str) -> None:
    """:raises Conflict: ``snapshot.exists``, ``snapshot.too_many``, ``snapshot.in_pool``, ``snapshot.encrypted``"""
    named = _named(vm)
    if vm.spec.encrypted:
        words = f"the disk of VM {vm.spec.name} is encrypted, and has no snapshots and no backups"
        hint = "copy what is to be kept in its guest, to a data volume or to another machine"
        raise Conflict("snapshot.encrypted", words, hint=hint)
    if vm.spec.pool is not None:
        hint = "a VM made with '--pool none' has its disk on its host's own, and takes snapshots"
        raise Conflict("snapshot.in_pool", f"the disk of VM {vm.spec.name} lies in a pool", hint=hint)
    if any(snapshot.name == name for snapshot in vm.snapshots):
        hint = f"'vgpuctl vm snapshot list {named}' shows it; choose another name"
        raise Conflict("snapshot.exists", f"VM {vm.spec.name} has a snapshot {name}", hint=hint)
    if len(vm.snapshots) >= MAX_OF_VM:
        hint = f"'vgpuctl vm snapshot delete {named} {vm.snapshots[0].name}' removes the oldest one"
        raise Conflict("snapshot.too_many", f"VM {vm.spec.name} has {MAX_OF_VM} snapshots", hint=hint)


def _named(vm: Vm) -> str:
    return f"{vm.spec.name} --tenant {vm.spec.tenant}"


def _no_disk(vm: Vm) -> NoCapacity:
    size = show_size(vm.spec.disk_bytes)
    words = f"the host of VM {vm.spec.name} has no {size} of disk for a snapshot"
    hint = f"'vgpuctl vm snapshot list {_named(vm)}' shows those that can be deleted"
    return NoCapacity("host.disk", words, hint=hint)
