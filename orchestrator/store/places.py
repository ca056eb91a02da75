# SPDX-License-Identifier: Apache-2.0
"""Places that are held for VMs that move: on the host where one goes, and afterwards on the one that it left.

A place is a row beside the VMs, so that claims refer to it as to any VM and placement sees what it takes. It is called
by its own id: nobody finds it by a name, and no list has it but that of its host. It counts against no quota.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final

from sqlalchemy import delete, insert
from sqlalchemy.exc import IntegrityError

from orchestrator.core.errors import Bug
from orchestrator.core.gpu.device import Device
from orchestrator.core.tenancy.quota import amounts_of
from orchestrator.core.vms.cleaning import Evidence
from orchestrator.core.vms.vm import Vm
from orchestrator.store.cleanings import drop_claims
from orchestrator.store.events import Events
from orchestrator.store.records import ClaimLost
from orchestrator.store.rows import forget_vm, vm_of, vm_values
from orchestrator.store.statements import Statements
from orchestrator.store.tables import cpu_claims, function_claims, host_claims, slot_claims
from orchestrator.store.usage import TenantUsage, Usage
from orchestrator.store.vms import ADD_UNLESS_THERE, BY_ID, CHANGE_VM, REMOVE_VM

_WHERE: Final = ("host", "devices", "cpus", "nic")
"""Columns that say where a VM is and what it has there."""


class HeldPlaces:
    """Of one transaction."""

    def __init__(self, connection: Statements, usage: Usage, tenants: TenantUsage, events: Events) -> None:
        self._db = connection
        self._usage = usage
        self._tenants = tenants
        self._events = events

    def hold(self, place: Vm) -> None:
        """``place``: the VM as it will be there, under an id of its own. Its claims are taken as those of a VM.

        :raises ClaimLost: its image is gone"""
        self._usage.touch(place.host)
        try:
            self._db.execute(ADD_UNLESS_THERE, {**vm_values(place), "name": place.id})
        except IntegrityError as error:
            raise ClaimLost(f"a place for VM {place.spec.name}: {error.orig}") from error

    def let_go(self, place_id: str, evidence: Evidence | None) -> None:
        """It is nobody's any more, nor is what it claims. Gone already is fine."""
        drop_claims(self._db, self._usage, place_id, evidence)
        for gone in map(vm_of, self._db.execute(REMOVE_VM, {"its_id": place_id})):
            self._usage.touch(gone.host)
            forget_vm(place_id)

    def give(self, place_id: str, devices: Sequence[Device]) -> None:
        """Others than it was held with, which no event tells of: it is no VM."""
        self._db.execute(CHANGE_VM, {"its_id": place_id, "devices": [asdict(device) for device in devices]})

    def exchange(self, vm_id: str, place_id: str) -> None:
        """The VM is where its place was held, with the devices it has there, and the place is where the VM was."""
        vm, place = self._found(vm_id), self._found(place_id)
        for new, row_id in ((place, vm_id), (vm, place_id)):
            self._usage.touch(new.host)
            values = vm_values(new)
            self._db.execute(CHANGE_VM, {"its_id": row_id, **{name: values[name] for name in _WHERE}})
        self._exchange_claims(vm_id, place_id)
        arrived = replace(vm, devices=place.devices, nic=place.nic)
        self._tenants.change(vm.spec.tenant, amounts_of(vm), amounts_of(arrived))
        self._events.note(
            "vm", vm.spec.name, "moved", tenant=vm.spec.tenant, host=place.host, subject=vm_id, state=vm.state
        )

    def _found(self, vm_id: str) -> Vm:
        row = self._db.execute(BY_ID, {"its_id": vm_id}).one_or_none()
        if row is None:
            raise Bug("vm.row_missing", f"VM {vm_id}, or the place that it moves to, is not in the database")
        return vm_of(row)

    def _exchange_claims(self, vm_id: str, place_id: str) -> None:
        """Taken out and put back: some are unique by their claimant."""
        both = {vm_id: place_id, place_id: vm_id}
        for table in (host_claims, slot_claims, function_claims, cpu_claims):
            rows = self._db.execute(delete(table).where(table.c.vm.in_(both)).returning(table)).all()
            if rows:
                self._db.execute(insert(table), [{**row._asdict(), "vm": both[row.vm]} for row in rows])
