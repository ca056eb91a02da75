# SPDX-License-Identifier: Apache-2.0
"""VMs and what they have claimed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from orchestrator.adapters.store.rows import AnyRow, claim_of, vm_of, vm_values
from orchestrator.adapters.store.tables import function_claims, gpu_cuts, host_claims, slot_claims, vms
from orchestrator.core.claim import Claim, HostCapacity
from orchestrator.core.errors import Conflict
from orchestrator.core.vm import Vm
from orchestrator.ports.store import ClaimLost


class SqlVms:
    def __init__(self, connection: Connection) -> None:
        self._db = connection

    def add(self, vm: Vm) -> None:
        """:raises Conflict: ``vm.exists``"""
        if self.find(vm.spec.tenant, vm.spec.name) is not None:
            raise Conflict("vm.exists", f"there is already a VM {vm.spec.name}")
        self._db.execute(insert(vms).values(vm_values(vm)))

    def find(self, tenant: str, name: str) -> Vm | None:
        query = select(vms).where(vms.c.tenant == tenant, vms.c.name == name)
        row = self._db.execute(query).one_or_none()
        return None if row is None else vm_of(row)

    def find_id(self, vm_id: str) -> Vm | None:
        row = self._db.execute(select(vms).where(vms.c.id == vm_id)).one_or_none()
        return None if row is None else vm_of(row)

    def list(self, *, tenant: str | None = None, host: str | None = None) -> tuple[Vm, ...]:
        """By tenant and name."""
        query = select(vms).order_by(vms.c.tenant, vms.c.name)
        if tenant is not None:
            query = query.where(vms.c.tenant == tenant)
        if host is not None:
            query = query.where(vms.c.host == host)
        return tuple(vm_of(row) for row in self._db.execute(query))

    def lease_over(self, host: str, at: float) -> tuple[Vm, ...]:
        """Those on the host whose lease has ended and that still have their place, by tenant and name."""
        over = (vms.c.host == host, vms.c.lease_end <= at, vms.c.freed.is_(None))
        query = select(vms).where(*over).order_by(vms.c.tenant, vms.c.name)
        return tuple(vm_of(row) for row in self._db.execute(query))

    def update(self, vm: Vm) -> None:
        self._db.execute(update(vms).where(vms.c.id == vm.id).values(vm_values(vm)))

    def remove(self, vm_id: str) -> None:
        """With its claims. Gone already is fine."""
        _drop_place(self._db, vm_id)
        self._db.execute(delete(host_claims).where(host_claims.c.vm == vm_id))
        self._db.execute(delete(vms).where(vms.c.id == vm_id))


def _drop_place(connection: Connection, vm_id: str) -> None:
    """Slots and function; a GPU with nothing left on it is cut no more."""
    for table in (slot_claims, function_claims):
        connection.execute(delete(table).where(table.c.vm == vm_id))
    still_cut = (
        select(slot_claims.c.slot)
        .where(slot_claims.c.host == gpu_cuts.c.host, slot_claims.c.gpu == gpu_cuts.c.gpu)
        .exists()
    )
    connection.execute(delete(gpu_cuts).where(~still_cut))


class SqlClaims:
    def __init__(self, connection: Connection) -> None:
        self._db = connection

    def take(self, claim: Claim, capacity: HostCapacity) -> None:
        """Also for a VM that gave its place back and kept its disk.

        :raises ClaimLost: the transaction must be given up
        """
        if not self._slots(claim.vm):
            self._db.execute(delete(host_claims).where(host_claims.c.vm == claim.vm))
        place = {"host": claim.host, "gpu": claim.device.gpu, "cut": claim.device.cut}
        is_cut_so = self._checked(claim, capacity, place)  # writers come one after the other (Store.begin)
        try:
            self._db.execute(
                insert(host_claims).values(
                    vm=claim.vm,
                    host=claim.host,
                    vcpus=claim.vcpus,
                    memory_mib=claim.memory_mib,
                    disk_bytes=claim.disk_bytes,
                )
            )
            if not is_cut_so:
                self._db.execute(insert(gpu_cuts).values(place))
            self._db.execute(
                insert(slot_claims), [{**place, "slot": slot, "vm": claim.vm} for slot in claim.device.slots]
            )
            self._put_function(claim.vm, claim.host, claim.function)
        except IntegrityError as error:
            raise ClaimLost(f"{claim.device.gpu} on {claim.host}: {error.orig}") from error

    def list(self) -> tuple[Claim, ...]:
        """Of all VMs that have a place, by VM."""
        return self._claims(select(host_claims), select(slot_claims), select(function_claims))

    def of_host(self, host: str) -> tuple[Claim, ...]:
        return self._claims(
            select(host_claims).where(host_claims.c.host == host),
            select(slot_claims).where(slot_claims.c.host == host),
            select(function_claims).where(function_claims.c.host == host),
        )

    def _claims(self, of_hosts: Select[Any], of_slots: Select[Any], of_functions: Select[Any]) -> tuple[Claim, ...]:
        shares = self._db.execute(of_hosts.order_by(host_claims.c.vm))
        slots: dict[str, list[AnyRow]] = {}
        for row in self._db.execute(of_slots.order_by(slot_claims.c.vm, slot_claims.c.slot)):
            slots.setdefault(row.vm, []).append(row)
        functions: dict[str, str] = {row.vm: row.function for row in self._db.execute(of_functions)}
        return tuple(claim_of(share, slots[share.vm], functions.get(share.vm)) for share in shares if share.vm in slots)

    def find(self, vm_id: str) -> Claim | None:
        share = self._db.execute(select(host_claims).where(host_claims.c.vm == vm_id)).one_or_none()
        if share is None:
            return None
        slots = self._slots(vm_id)
        if not slots:
            return None
        function = select(function_claims.c.function).where(function_claims.c.vm == vm_id)
        return claim_of(share, slots, self._db.execute(function).scalar_one_or_none())

    def free_place(self, vm_id: str) -> None:
        """All but the disk. Free already is fine."""
        _drop_place(self._db, vm_id)
        self._db.execute(update(host_claims).where(host_claims.c.vm == vm_id).values(vcpus=0, memory_mib=0))

    def _slots(self, vm_id: str) -> Sequence[AnyRow]:
        query = select(slot_claims).where(slot_claims.c.vm == vm_id).order_by(slot_claims.c.slot)
        return list(self._db.execute(query))

    def move_function(self, vm_id: str, function: str | None) -> None:
        """:raises ClaimLost: another VM has it"""
        host = self._db.execute(select(host_claims.c.host).where(host_claims.c.vm == vm_id)).scalar_one()
        self._db.execute(delete(function_claims).where(function_claims.c.vm == vm_id))
        try:
            self._put_function(vm_id, host, function)
        except IntegrityError as error:
            raise ClaimLost(f"{function} on {host}") from error

    def _checked(self, claim: Claim, capacity: HostCapacity, place: dict[str, Any]) -> bool:
        """Whether the GPU is cut as claimed; in one query with the check that the host has enough left."""
        cut = select(gpu_cuts.c.cut).where(*(gpu_cuts.c[column] == value for column, value in place.items()))
        query = select(
            func.coalesce(func.sum(host_claims.c.vcpus), 0),
            func.coalesce(func.sum(host_claims.c.memory_mib), 0),
            func.coalesce(func.sum(host_claims.c.disk_bytes), 0),
            cut.exists(),
        ).where(host_claims.c.host == claim.host)
        vcpus, memory, disk, is_cut_so = self._db.execute(query).one()
        fits = (
            vcpus + claim.vcpus <= capacity.vcpus
            and memory + claim.memory_mib <= capacity.memory_mib
            and disk + claim.disk_bytes <= capacity.disk_bytes
        )
        if not fits:
            raise ClaimLost(f"{claim.host} has too little left")
        return bool(is_cut_so)

    def _put_function(self, vm_id: str, host: str, function: str | None) -> None:
        if function is not None:
            self._db.execute(insert(function_claims).values(host=host, function=function, vm=vm_id))
