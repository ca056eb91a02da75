# SPDX-License-Identifier: Apache-2.0
"""VMs and what they have claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Connection, Select, and_, bindparam, delete, func, insert, literal_column, select, update
from sqlalchemy.exc import IntegrityError

from orchestrator.adapters.store.rows import VM_COLUMNS, claim_of, vm_of, vm_values
from orchestrator.adapters.store.tables import function_claims, gpu_cuts, host_claims, slot_claims, vms
from orchestrator.core.claim import Claim, HostCapacity
from orchestrator.core.device import Device
from orchestrator.core.errors import Conflict
from orchestrator.core.vm import DeallocationReason, Vm, VmState
from orchestrator.ports.store.claims import ClaimLost

_VALUES: Final = {one.key: bindparam(one.key, type_=one.type) for one in vms.c}
_SAME_NAME: Final = select(vms.c.id).where(vms.c.tenant == _VALUES["tenant"], vms.c.name == _VALUES["name"])
_ADD_UNLESS_THERE: Final = insert(vms).from_select(list(_VALUES), select(*_VALUES.values()).where(~_SAME_NAME.exists()))
"""One statement, as a claim waits for each."""
_ID: Final = vms.c.id == bindparam("its_id")
_BY_ID: Final = select(*VM_COLUMNS).where(_ID)
_CHANGE: Final = update(vms).where(_ID)
_CHANGE_BY: Final = _CHANGE.where(vms.c.operation == bindparam("its_operation"))
_IN_ORDER: Final = select(*VM_COLUMNS).order_by(vms.c.tenant, vms.c.name)
_ON_HOST: Final = _IN_ORDER.where(vms.c.host == bindparam("host"))
_LEASE_OVER: Final = _ON_HOST.where(vms.c.lease_end <= bindparam("at"), vms.c.deallocated.is_(None))


class SqlVms:
    def __init__(self, connection: Connection) -> None:
        self._db = connection

    def add(self, vm: Vm) -> None:
        """:raises Conflict: ``vm.exists``"""
        if self._db.execute(_ADD_UNLESS_THERE, vm_values(vm)).rowcount == 0:
            raise Conflict(
                "vm.exists",
                f"there is already a VM {vm.spec.name}",
                hint="choose another name, or look at that one with 'vgpuctl show-vm'",
            )

    def find(self, tenant: str, name: str) -> Vm | None:
        query = select(*VM_COLUMNS).where(vms.c.tenant == tenant, vms.c.name == name)
        row = self._db.execute(query).one_or_none()
        return None if row is None else vm_of(row)

    def find_id(self, vm_id: str) -> Vm | None:
        row = self._db.execute(_BY_ID, {"its_id": vm_id}).one_or_none()
        return None if row is None else vm_of(row)

    def list(self, *, tenant: str | None = None, host: str | None = None) -> tuple[Vm, ...]:
        """By tenant and name."""
        query = _IN_ORDER if host is None else _ON_HOST
        if tenant is not None:
            query = query.where(vms.c.tenant == tenant)
        return tuple(vm_of(row) for row in self._db.execute(query, {} if host is None else {"host": host}))

    def lease_over(self, host: str, at: float) -> tuple[Vm, ...]:
        """Those on the host whose lease has ended and that still have their place, by tenant and name."""
        return tuple(vm_of(row) for row in self._db.execute(_LEASE_OVER, {"host": host, "at": at}))

    def update(self, vm: Vm) -> None:
        self._db.execute(_CHANGE, {"its_id": vm.id, **vm_values(vm)})

    def set_state(self, vm_id: str, state: VmState, *, operation: str, addresses: Sequence[str] | None = None) -> None:
        """If ``operation`` is still the last one that was begun for it. ``addresses``: None leaves those of a VM that
        runs as they are; any other has none."""
        values: dict[str, Any] = {"its_id": vm_id, "its_operation": operation, "state": state}
        if state != "running" or addresses is not None:
            values["addresses"] = list(addresses or ())
        self._db.execute(_CHANGE_BY, values)

    def set_addresses(self, vm_id: str, addresses: Sequence[str]) -> None:
        self._db.execute(_CHANGE, {"its_id": vm_id, "addresses": list(addresses)})

    def set_devices(self, vm_id: str, devices: Sequence[Device]) -> None:
        self._db.execute(_CHANGE, {"its_id": vm_id, "devices": [asdict(one) for one in devices]})

    def deallocate(self, vm_id: str, why: DeallocationReason, devices: Sequence[Device]) -> None:
        """Stopped, without a place, with the devices that it had last."""
        gone = {"state": "stopped", "addresses": [], "deallocated": why}
        self._db.execute(_CHANGE, {"its_id": vm_id, "devices": [asdict(one) for one in devices], **gone})

    def remove(self, vm_id: str) -> None:
        """With its claims. Gone already is fine."""
        _drop_place(self._db, vm_id)
        self._db.execute(delete(host_claims).where(host_claims.c.vm == vm_id))
        self._db.execute(delete(vms).where(vms.c.id == vm_id))


_STILL_CUT: Final = (
    select(slot_claims.c.slot)
    .where(slot_claims.c.host == gpu_cuts.c.host, slot_claims.c.gpu == gpu_cuts.c.gpu)
    .exists()
)


def _drop_place(connection: Connection, vm_id: str) -> None:
    """Slots and function; a GPU with nothing left on it is cut no more."""
    connection.execute(delete(function_claims).where(function_claims.c.vm == vm_id))
    slots = delete(slot_claims).where(slot_claims.c.vm == vm_id).returning(slot_claims.c.host, slot_claims.c.gpu)
    for host, gpu in {(row.host, row.gpu) for row in connection.execute(slots)}:
        left = (gpu_cuts.c.host == host, gpu_cuts.c.gpu == gpu, ~_STILL_CUT)
        connection.execute(delete(gpu_cuts).where(*left))


_CUT_SO: Final = select(gpu_cuts.c.cut).where(*(gpu_cuts.c[name] == bindparam(name) for name in ("host", "gpu", "cut")))
_PLACED: Final = select(slot_claims.c.vm).where(slot_claims.c.vm == bindparam("vm"))
_KEPT_DISK: Final = select(host_claims.c.vm).where(host_claims.c.vm == bindparam("vm"), ~_PLACED.exists())
_CLAIMED: Final[Select[Any]] = select(
    *(
        func.coalesce(func.sum(share), literal_column("0"))
        for share in (host_claims.c.vcpus, host_claims.c.memory_mib, host_claims.c.disk_bytes)
    ),
    _CUT_SO.exists(),
    _KEPT_DISK.exists(),
).where(host_claims.c.host == bindparam("host"), host_claims.c.vm != bindparam("vm"))
"""Of the host, without what the VM itself kept; put together once, as that takes longer than asking."""


_PLACES: Final[Select[Any]] = (
    select(host_claims, *(slot_claims.c[name] for name in ("device", "gpu", "slot", "cut")), function_claims.c.function)
    .join_from(host_claims, slot_claims, slot_claims.c.vm == host_claims.c.vm)
    .outerjoin(
        function_claims,
        and_(function_claims.c.vm == slot_claims.c.vm, function_claims.c.device == slot_claims.c.device),
    )
    .order_by(host_claims.c.vm, slot_claims.c.device, slot_claims.c.slot)
)
"""A row for each slot that is claimed."""
_PLACES_ON_HOST: Final = _PLACES.where(host_claims.c.host == bindparam("host"))
_PLACE_OF_VM: Final = _PLACES.where(host_claims.c.vm == bindparam("its_vm"))


_Cuts = tuple[tuple[str, str], ...]
"""GPU and how it is cut, for each of several GPUs."""


class SqlClaims:
    def __init__(self, connection: Connection) -> None:
        self._db = connection

    def take(self, claim: Claim, capacity: HostCapacity) -> None:
        """Also for a VM that is deallocated and kept its disk.

        :raises ClaimLost: the transaction must be given up
        """
        cuts = tuple({one.gpu: one.cut for one in claim.devices}.items())
        uncut = self._checked(claim, capacity, cuts)  # writers come one after the other (Store.begin)
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
            if uncut:
                self._db.execute(insert(gpu_cuts), [{"host": claim.host, "gpu": gpu, "cut": cut} for gpu, cut in uncut])
            self._db.execute(insert(slot_claims), _slot_rows(claim))
            functions = _function_rows(claim)
            if functions:
                self._db.execute(insert(function_claims), functions)
        except IntegrityError as error:
            raise ClaimLost(f"{', '.join(gpu for gpu, _ in cuts)} on {claim.host}: {error.orig}") from error

    def list(self) -> tuple[Claim, ...]:
        """Of all VMs that have a place, by VM."""
        return self._claims(_PLACES, {})

    def of_host(self, host: str) -> tuple[Claim, ...]:
        return self._claims(_PLACES_ON_HOST, {"host": host})

    def find(self, vm_id: str) -> Claim | None:
        return next(iter(self._claims(_PLACE_OF_VM, {"its_vm": vm_id})), None)

    def _claims(self, places: Select[Any], of: Mapping[str, str]) -> tuple[Claim, ...]:
        rows = self._db.execute(places, of).all()
        return tuple(claim_of(tuple(slots)) for _, slots in groupby(rows, key=attrgetter("vm")))

    def free_place(self, vm_id: str) -> None:
        """All but the disk. Free already is fine."""
        _drop_place(self._db, vm_id)
        self._db.execute(update(host_claims).where(host_claims.c.vm == vm_id).values(vcpus=0, memory_mib=0))

    def move_function(self, vm_id: str, device: int, function: str | None) -> None:
        """:raises ClaimLost: another VM has it"""
        host = self._db.execute(select(host_claims.c.host).where(host_claims.c.vm == vm_id)).scalar_one()
        its_own = (function_claims.c.vm == vm_id, function_claims.c.device == device)
        self._db.execute(delete(function_claims).where(*its_own))
        if function is None:
            return
        row = {"host": host, "function": function, "vm": vm_id, "device": device}
        try:
            self._db.execute(insert(function_claims).values(row))
        except IntegrityError as error:
            raise ClaimLost(f"{function} on {host}") from error

    def _checked(self, claim: Claim, capacity: HostCapacity, cuts: _Cuts) -> _Cuts:
        """Those of ``cuts`` that are still to be made. The host has enough left; the disk that the VM kept counts no
        more."""
        (gpu, cut), *others = cuts
        asked = {"vm": claim.vm, "host": claim.host, "gpu": gpu, "cut": cut}
        vcpus, memory, disk, is_cut_so, kept_disk = self._db.execute(_CLAIMED, asked).one()
        fits = (
            vcpus + claim.vcpus <= capacity.vcpus
            and memory + claim.memory_mib <= capacity.memory_mib
            and disk + claim.disk_bytes <= capacity.disk_bytes
        )
        if not fits:
            raise ClaimLost(f"{claim.host} has too little left")
        if kept_disk:
            self._db.execute(delete(host_claims).where(host_claims.c.vm == claim.vm))
        uncut = [] if is_cut_so else [(gpu, cut)]
        uncut += [one for one in others if not self._is_cut(claim.host, *one)]
        return tuple(uncut)

    def _is_cut(self, host: str, gpu: str, cut: str) -> bool:
        return self._db.execute(_CUT_SO, {"host": host, "gpu": gpu, "cut": cut}).first() is not None


def _slot_rows(claim: Claim) -> list[dict[str, Any]]:
    return [
        {"host": claim.host, "gpu": one.gpu, "slot": slot, "cut": one.cut, "vm": claim.vm, "device": number}
        for number, one in enumerate(claim.devices)
        for slot in one.slots
    ]


def _function_rows(claim: Claim) -> list[dict[str, Any]]:
    return [
        {"host": claim.host, "function": one.function, "vm": claim.vm, "device": number}
        for number, one in enumerate(claim.devices)
        if one.function is not None
    ]
