# SPDX-License-Identifier: Apache-2.0
"""What VMs' disks and their snapshots, which are part of the VM's row, may take of hosts and pools."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import update

from orchestrator.core.vms.claim import Claim
from orchestrator.core.vms.disk_snapshot import DiskSnapshot, TakenOf
from orchestrator.core.vms.vm import Vm
from orchestrator.store.pools import Pools, let_go_of_pool
from orchestrator.store.records import ClaimLost
from orchestrator.store.statements import Statements
from orchestrator.store.tables import host_claims
from orchestrator.store.usage import ANY, Usage
from orchestrator.store.vms import Vms


class DiskSnapshots:
    """Of one transaction."""

    def __init__(self, db: Statements, usage: Usage, vms: Vms) -> None:
        self._db, self._usage, self._vms = db, usage, vms

    def add(self, vm: Vm, snapshot: DiskSnapshot, disk_bytes: int) -> None:
        """``disk_bytes``: the most that is claimed of its host's disk.

        :raises ClaimLost: so much is not left there"""
        self._claim(vm, snapshot.size_bytes, disk_bytes)
        self._vms.change(vm.id, snapshots=(*vm.snapshots, snapshot))

    def taken(self, vm_id: str, snapshot_id: str, taken_of: TakenOf, quiesced: str | None) -> None:
        """Its file is there. A VM that is gone is fine."""
        vm = self._vms.find_id(vm_id)
        if vm is not None:
            taken = {its.id: replace(its, taken_of=taken_of, quiesced=quiesced) for its in vm.snapshots}
            known = (taken[its.id] if its.id == snapshot_id else its for its in vm.snapshots)
            self._vms.change(vm_id, snapshots=tuple(known))

    def remove(self, vm_id: str, snapshot_id: str) -> None:
        """Gone already is fine."""
        vm = self._vms.find_id(vm_id)
        for snapshot in () if vm is None else vm.snapshots:
            if vm is not None and snapshot.id == snapshot_id:
                self._claim(vm, -snapshot.size_bytes, ANY)
                self._vms.change(vm_id, snapshots=tuple(its for its in vm.snapshots if its.id != snapshot_id))

    def claim_disk(self, vm: Vm, size_bytes: int, disk_bytes: int) -> None:
        """What the VM's own disk may take where it lies, from now on. ``disk_bytes``: as in :meth:`add`.

        :raises ClaimLost: so much is not left there"""
        if vm.spec.pool is None:
            self._claim(vm, size_bytes - vm.spec.disk_bytes, disk_bytes)
        else:
            let_go_of_pool(self._db, vm.id)
            Pools(self._db).take(vm.spec.pool, vm.id, size_bytes)

    def _claim(self, vm: Vm, more_bytes: int, disk_bytes: int) -> None:
        """With what the VM claims; one whose host was given up claims nothing."""
        its = update(host_claims).where(host_claims.c.vm == vm.id)
        if not self._db.execute(its.values(disk_bytes=host_claims.c.disk_bytes + more_bytes)).rowcount:
            return
        share = Claim(vm="", host=vm.host, devices=(), vcpus=0, memory_mib=0, disk_bytes=more_bytes)
        if not self._usage.take_disk(share, disk_bytes):
            raise ClaimLost(f"{vm.host} has too little disk left for VM {vm.id}")
