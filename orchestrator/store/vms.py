# SPDX-License-Identifier: Apache-2.0
"""VMs and what they have claimed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Executable, Select, Text, and_, bindparam, cast, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from orchestrator.core.errors import Conflict
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.cpus import cpus_text
from orchestrator.core.tenancy.quota import amounts_of
from orchestrator.core.vms.claim import Claim, HostCapacity
from orchestrator.core.vms.cleaning import Evidence
from orchestrator.core.vms.vm import DeallocationReason, Vm, VmSpec, VmState, WantedState
from orchestrator.core.vms.volume import id_of, is_reader
from orchestrator.store.backups import backups
from orchestrator.store.cleanings import drop_claims, drop_place
from orchestrator.store.events import Events
from orchestrator.store.pools import let_go_of_pool
from orchestrator.store.records import ClaimLost, Neighbour
from orchestrator.store.rows import IS_PLACE, VM_COLUMNS, claim_of, forget_vm, order_values, vm_of, vm_values
from orchestrator.store.statements import AnyRow, InClause, Precompiled, Statements
from orchestrator.store.tables import (
    cpu_claims,
    function_claims,
    gpu_cuts,
    host_claims,
    hosts,
    slot_claims,
    vms,
    volumes,
)
from orchestrator.store.usage import TenantUsage, Usage
from orchestrator.store.volume_keys import destroy, volume_row

_VALUES: Final = {column.key: bindparam(column.key, type_=column.type) for column in vms.c}
_SAME_NAME: Final = select(vms.c.id).where(vms.c.tenant == _VALUES["tenant"], vms.c.name == _VALUES["name"])
ADD_UNLESS_THERE: Final = Precompiled(
    insert(vms).from_select(list(_VALUES), select(*_VALUES.values()).where(~_SAME_NAME.exists()))
)
"""One statement, as a claim waits for each."""
_ID: Final = vms.c.id == bindparam("its_id")
BY_ID: Final = Precompiled(select(*VM_COLUMNS).where(_ID))
_EVERY: Final = select(*VM_COLUMNS).order_by(vms.c.tenant, vms.c.name)
_IN_ORDER: Final = _EVERY.where(~IS_PLACE)
_NAMED: Final = Precompiled(
    _IN_ORDER.where(vms.c.tenant == bindparam("its_tenant"), vms.c.name == bindparam("its_name"))
)
REMOVE_VM: Final = Precompiled(delete(vms).where(_ID).returning(*VM_COLUMNS))
CHANGE_VM: Final = Precompiled(update(vms).where(_ID))
_CHANGE_BY: Final = Precompiled(update(vms).where(_ID, vms.c.operation == bindparam("its_operation")))
_DETACH: Final = Precompiled(update(volumes).where(volumes.c.vm == bindparam("its_vm")).values(vm=None))
_LEFT_BY_POLICIES: Final = Precompiled(
    update(backups).where(backups.c.vm == bindparam("its_vm"), backups.c.policy.is_not(None)).values(policy=None)
)
_WAITS: Final = and_(vms.c.state == "creating", ~select(slot_claims.c.vm).where(slot_claims.c.vm == vms.c.id).exists())
_BEFORE_UPDATE: Final = Precompiled(select(*VM_COLUMNS, _WAITS.label("waits")).where(_ID))
"""Of what is updated: whether it keeps its disk only, and whether it waits for a place that others give back."""
_ON_HOST: Final = _EVERY.where(vms.c.host == bindparam("host"))
_ON_HOSTS: Final = InClause(lambda hosts: _IN_ORDER.where(vms.c.host.in_(hosts)))
_LEASE_OVER: Final = _ON_HOST.where(vms.c.lease_end <= bindparam("at"), vms.c.deallocated.is_(None))


class Vms:
    """VMs as they should be."""

    def __init__(self, connection: Statements, usage: Usage, tenants: TenantUsage, events: Events) -> None:
        self._db = connection
        self._usage = usage
        self._tenants = tenants
        self._events = events

    def add(self, vm: Vm) -> None:
        """:raises Conflict: ``vm.exists``; :raises ClaimLost: somebody makes it now, or its image is gone"""
        self._usage.touch(vm.host)
        try:
            added = self._db.execute(ADD_UNLESS_THERE, vm_values(vm)).rowcount
        except IntegrityError as error:
            raise ClaimLost(f"VM {vm.spec.name}: {error.orig}") from error
        if added == 0:
            raise _exists(vm.spec.name)
        self._tenants.change(vm.spec.tenant, {}, amounts_of(vm))
        self._note(vm, "created")

    def find(self, tenant: str, name: str) -> Vm | None:
        return next(map(vm_of, self._db.execute(_NAMED, {"its_tenant": tenant, "its_name": name}).all()), None)

    def find_id(self, vm_id: str) -> Vm | None:
        return next(map(vm_of, self._db.execute(BY_ID, {"its_id": vm_id}).all()), None)

    def list(self, *, tenant: str | None = None, host: str | None = None) -> tuple[Vm, ...]:
        """By tenant and name. Of a host with places that are held there (places.py)."""
        query = _IN_ORDER if host is None else _ON_HOST
        if tenant is not None:
            query = query.where(vms.c.tenant == tenant)
        return tuple(vm_of(row) for row in self._db.execute(query, {} if host is None else {"host": host}))

    def on_hosts(self, hosts: Collection[str]) -> tuple[Vm, ...]:
        """By tenant and name."""
        return tuple(vm_of(row) for row in self._db.execute(*_ON_HOSTS(hosts)))

    def lease_over(self, host: str, at: float) -> tuple[Vm, ...]:
        """Those on the host whose lease has ended and that still have their place, by tenant and name."""
        return tuple(vm_of(row) for row in self._db.execute(_LEASE_OVER, {"host": host, "at": at}))

    def update(self, vm: Vm) -> None:
        before = self._db.execute(_BEFORE_UPDATE, {"its_id": vm.id}).one_or_none()
        if before is not None:
            known = vm_of(before[:-1])
            self._touch_if_seen(before, vm.state, vm.deallocated)
            self._tenants.change(vm.spec.tenant, amounts_of(known), amounts_of(vm))
            self._db.execute(CHANGE_VM, {"its_id": vm.id, **vm_values(vm)})
            self._note_change(known, vm)

    def set_state(
        self, vm_id: str, state: VmState, *, operation: str, addresses: Sequence[str] | None = None,
        wanted: WantedState | None = None,
    ) -> None:  # fmt: skip
        """If ``operation`` is still the last one that was begun for it. ``addresses``: None leaves those of a VM that
        runs as they are; any other has none. ``wanted``: None leaves what is wanted of it."""
        before = self._db.execute(_BEFORE_UPDATE, {"its_id": vm_id}).one_or_none()
        if before is not None:
            self._touch_if_seen(before, state)
        values: dict[str, Any] = {"its_id": vm_id, "its_operation": operation, "state": state}
        if state != "running" or addresses is not None:
            values["addresses"] = list(addresses or ())
        if wanted is not None:
            values["wanted"] = wanted
        if self._db.execute(_CHANGE_BY, values).rowcount and before is not None:
            known = vm_of(before[:-1])
            addresses = values.get("addresses", known.addresses)
            self._note_change(known, replace(known, state=state, addresses=tuple(addresses)))

    def set_addresses(self, vm_id: str, addresses: Sequence[str]) -> None:
        """Of one that is being started: the state that follows is told to those who watch, and not this."""
        self._db.execute(CHANGE_VM, {"its_id": vm_id, "addresses": list(addresses)})

    def set_spec(self, vm_id: str, spec: VmSpec) -> None:
        """Nothing but that, of one that keeps its name."""
        self.change(vm_id, spec=spec)

    def change(self, vm_id: str, **members: Any) -> None:
        """Nothing but those members."""
        before = self.find_id(vm_id)
        if before is not None:
            after = replace(before, **members)
            values = vm_values(after)
            self._db.execute(
                CHANGE_VM, {"its_id": vm_id, **{name: values[name] for name in members}, **order_values(after.spec)}
            )
            if not members.keys().isdisjoint(("ports", "snapshots")):
                self._tenants.change(before.spec.tenant, amounts_of(before), amounts_of(after))
            self._note_change(before, after)

    def deallocate(self, vm_id: str, why: DeallocationReason, devices: Sequence[Device]) -> None:
        """Stopped, without a place, with the devices that it had last."""
        before = self.find_id(vm_id)
        if before is not None:
            after = replace(before, state="stopped", devices=tuple(devices), deallocated=why)
            self._note(after, "deallocated", reason=why)
            self._tenants.change(before.spec.tenant, amounts_of(before), amounts_of(after))
        gone = {"state": "stopped", "wanted": "stopped", "addresses": [], "deallocated": why}
        self._db.execute(CHANGE_VM, {"its_id": vm_id, "devices": [asdict(device) for device in devices], **gone})

    def rename(self, vm_id: str, name: str) -> None:
        """:raises Conflict: ``vm.exists``"""
        if (vm := self.find_id(vm_id)) is None or vm.spec.name == name:
            return
        if self.find(vm.spec.tenant, name) is not None:
            raise _exists(name)
        self._usage.touch(vm.host)
        self._note(replace(vm, spec=replace(vm.spec, name=name)), "renamed", before=vm.spec.name)
        try:
            self._db.execute(CHANGE_VM, {"its_id": vm_id, "name": name, "spec": asdict(replace(vm.spec, name=name))})
        except IntegrityError as error:
            raise _exists(name) from error

    def _touch_if_seen(self, seen: AnyRow, state: VmState, deallocated: DeallocationReason | None = None) -> None:
        """What placement sees beside claims: whether the VM waits for a place, and whether it has a disk only."""
        if seen.deallocated != deallocated or (seen.waits and state != "creating"):
            self._usage.touch(seen.host)

    def remove(self, vm_id: str, evidence: Evidence) -> None:
        """With its claims and its disk's key; its data volumes stay, and its backups as if made by hand. Gone already
        is fine."""
        self._db.execute(_DETACH, {"its_vm": vm_id})
        drop_claims(self._db, self._usage, vm_id, evidence)
        let_go_of_pool(self._db, vm_id)
        for gone in map(vm_of, self._db.execute(REMOVE_VM, {"its_id": vm_id})):
            self._usage.touch(gone.host)
            self._tenants.change(gone.spec.tenant, amounts_of(gone), {})
            forget_vm(vm_id)
            if reads := [id_of(volume) for volume in gone.spec.volumes if is_reader(volume)]:
                self._db.execute(delete(volumes).where(volumes.c.id.in_(reads)))
            self._db.execute(_LEFT_BY_POLICIES, {"its_vm": vm_id})
            if gone.spec.encrypted:
                destroy(self._db, volume_row(vm_id))
            self._note(gone, "removed", **({"key": "destroyed"} if gone.spec.encrypted else {}))

    def _note_change(self, before: Vm, after: Vm) -> None:
        """By values, as labels make no other VM. Which operation it has and what is wanted of it is no change."""
        if before.state != after.state:
            self._note(after, "state")
        elif vm_values(replace(before, operation=after.operation, wanted=after.wanted)) != vm_values(after):
            self._note(after, "changed")

    def _note(self, vm: Vm, change: str, **details: str) -> None:
        self._events.note(
            "vm", vm.spec.name, change, tenant=vm.spec.tenant, host=vm.host, subject=vm.id, state=vm.state, **details
        )


def _exists(name: str) -> Conflict:
    hint = f"choose another name, or look at that one: 'vgpuctl show-vm {name}'"
    return Conflict("vm.exists", f"there is already a VM {name}", hint=hint)


_TAKE_SHARE: Final = Precompiled(insert(host_claims))
_CUT: Final = Precompiled(insert(gpu_cuts))
_TAKE_SLOTS: Final = Precompiled(insert(slot_claims))
_TAKE_FUNCTIONS: Final = Precompiled(insert(function_claims))
_TAKE_CPUS: Final = Precompiled(insert(cpu_claims))
_SAME_CUT: Final = select(gpu_cuts.c.cut).where(
    *(gpu_cuts.c[name] == bindparam(name) for name in ("host", "gpu", "cut"))
)
_CUT_SO: Final = Precompiled(_SAME_CUT)
_PLACED: Final = select(slot_claims.c.vm).where(slot_claims.c.vm == bindparam("vm"))
_KEPT_DISK: Final = select(host_claims.c.vm).where(host_claims.c.vm == bindparam("vm"), ~_PLACED.exists())
_PINNABLE: Final = select(hosts.c.pinnable_cpus).where(hosts.c.name == bindparam("host")).scalar_subquery()
_BEFORE: Final = Precompiled(
    select(_SAME_CUT.exists().label("is_cut_so"), _KEPT_DISK.exists().label("kept_disk"), _PINNABLE.label("pinnable"))
)
"""Put together once, as that takes longer than asking."""
_CLAIMS: Final[Select[Any]] = (
    select(host_claims, *(slot_claims.c[name] for name in ("device", "gpu", "slot", "cut")), function_claims.c.function)
    .join_from(host_claims, slot_claims, slot_claims.c.vm == host_claims.c.vm)
    .outerjoin(
        function_claims,
        and_(function_claims.c.vm == slot_claims.c.vm, function_claims.c.device == slot_claims.c.device),
    )
    .order_by(host_claims.c.vm, slot_claims.c.device, slot_claims.c.slot)
)
"""A row for each slot that is claimed."""
_CLAIMS_ON: Final = InClause(lambda hosts: _CLAIMS.where(host_claims.c.host.in_(hosts)))
_CLAIM_OF_VM: Final = Precompiled(_CLAIMS.where(host_claims.c.vm == bindparam("its_vm")))
_SCHEDULED: Final = cast(vms.c.devices, Text).contains('"policy"')
"""Whether a device of the VM asks for a setting of its GPU: nothing else of a device is called so."""
_NEIGHBOURS: Final = Precompiled(
    select(vms.c.tenant, slot_claims.c.gpu, slot_claims.c.cut, _SCHEDULED.label("scheduled"))
    .join_from(slot_claims, vms, vms.c.id == slot_claims.c.vm)
    .where(slot_claims.c.host == bindparam("its_host"), or_(vms.c.tenant != bindparam("its_tenant"), _SCHEDULED))
    .distinct()
)

_NOTHING: Final = {"vcpus": 0, "memory_mib": 0, "cpus": None, "nic": None}
"""Of one that kept its disk."""
_Cuts = tuple[tuple[str, str], ...]
"""GPU and how it is cut, for each of several GPUs."""


class Claims:
    """Claims on GPU slots, functions and shares of hosts."""

    def __init__(self, connection: Statements, usage: Usage) -> None:
        self._db = connection
        self._usage = usage

    def take(self, claim: Claim, capacity: HostCapacity) -> None:
        """Also for a VM that is deallocated and kept its disk.

        :raises ClaimLost: the transaction must be given up
        """
        cuts = tuple({device.gpu: device.cut for device in claim.devices}.items())
        uncut = self._taken(claim, capacity, cuts)
        try:
            self._db.execute(_TAKE_SHARE, _share_row(claim))
            if uncut:
                self._db.execute(_CUT, [{"host": claim.host, "gpu": gpu, "cut": cut} for gpu, cut in uncut])
            self._db.execute(_TAKE_SLOTS, _slot_rows(claim))
            functions = _function_rows(claim)
            if functions:
                self._db.execute(_TAKE_FUNCTIONS, functions)
            if claim.cpus:
                rows = [{"host": claim.host, "cpu": cpu, "vm": claim.vm} for cpu in claim.cpus]
                self._db.execute(_TAKE_CPUS, rows)
        except IntegrityError as error:
            raise ClaimLost(f"{', '.join(gpu for gpu, _ in cuts)} on {claim.host}: {error.orig}") from error

    def neighbours(self, host: str, tenant: str) -> Sequence[Neighbour]:
        """GPUs of the host on which VMs of other tenants have a place, or one that asks for a setting has."""
        rows = self._db.execute(_NEIGHBOURS, {"its_host": host, "its_tenant": tenant})
        return tuple(Neighbour(**row._asdict()) for row in rows)

    def list(self) -> tuple[Claim, ...]:
        """Of all VMs that have a place, by VM."""
        return self._claims(_CLAIMS, {})

    def of_host(self, host: str) -> tuple[Claim, ...]:
        """Of VMs that have a place there."""
        return self._claims(*_CLAIMS_ON((host,)))

    def of_hosts(self, hosts: Collection[str] | None) -> tuple[Claim, ...]:
        """None: of all hosts."""
        return self._claims(_CLAIMS, {}) if hosts is None else self._claims(*_CLAIMS_ON(hosts))

    def find(self, vm_id: str) -> Claim | None:
        """None: no such VM, or it has no place."""
        return next(iter(self._claims(_CLAIM_OF_VM, {"its_vm": vm_id})), None)

    def _claims(self, query: Executable | Precompiled, of: Mapping[str, object]) -> tuple[Claim, ...]:
        rows = self._db.execute(query, of).all()
        return tuple(claim_of(tuple(slots)) for _, slots in groupby(rows, key=attrgetter("vm")))

    def free_place(self, vm_id: str, evidence: Evidence | None) -> None:
        """All but the disk. Free already is fine. ``evidence``: None: it is taken again in this transaction."""
        drop_place(self._db, self._usage, vm_id, evidence)
        share = self._db.execute(select(host_claims).where(host_claims.c.vm == vm_id)).one_or_none()
        if share is not None:
            self._db.execute(update(host_claims).where(host_claims.c.vm == vm_id).values(**_NOTHING))
            self._usage.give(share.host, vcpus=share.vcpus, memory_mib=share.memory_mib, disk_bytes=0)

    def move_function(self, vm_id: str, device: int, function: str | None) -> None:
        """:raises ClaimLost: another VM has it"""
        host = self._db.execute(select(host_claims.c.host).where(host_claims.c.vm == vm_id)).scalar_one()
        of_device = (function_claims.c.vm == vm_id, function_claims.c.device == device)
        self._db.execute(delete(function_claims).where(*of_device))
        if function is None:
            return
        row = {"host": host, "function": function, "vm": vm_id, "device": device}
        try:
            self._db.execute(insert(function_claims).values(row))
        except IntegrityError as error:
            raise ClaimLost(f"{function} on {host}") from error

    def _taken(self, claim: Claim, capacity: HostCapacity, cuts: _Cuts) -> _Cuts:
        """Those of ``cuts`` that are still to be made. The host had enough left, and gives nothing to others
        meanwhile."""
        if not self._usage.take(claim, capacity):
            raise ClaimLost(f"{claim.host} has too little left")
        (gpu, cut), *others = cuts
        before = self._db.execute(_BEFORE, {"vm": claim.vm, "host": claim.host, "gpu": gpu, "cut": cut}).one()
        if (before.pinnable or "") != capacity.pinnable:
            raise ClaimLost(f"{claim.host} keeps other CPUs for VMs that have theirs alone now")
        if before.kept_disk:
            self._db.execute(delete(host_claims).where(host_claims.c.vm == claim.vm))
        uncut = [] if before.is_cut_so else [(gpu, cut)]
        uncut += [other for other in others if not self._is_cut(claim.host, *other)]
        return tuple(uncut)

    def _is_cut(self, host: str, gpu: str, cut: str) -> bool:
        return self._db.execute(_CUT_SO, {"host": host, "gpu": gpu, "cut": cut}).first() is not None


def _share_row(claim: Claim) -> dict[str, Any]:
    share: dict[str, Any] = {"vcpus": claim.vcpus, "memory_mib": claim.memory_mib, "disk_bytes": claim.disk_bytes}
    return {"vm": claim.vm, "host": claim.host, **share, "cpus": cpus_text(claim.cpus) or None, "nic": claim.nic}


def _slot_rows(claim: Claim) -> list[dict[str, Any]]:
    return [
        {"host": claim.host, "gpu": device.gpu, "slot": slot, "cut": device.cut, "vm": claim.vm, "device": number}
        for number, device in enumerate(claim.devices)
        for slot in device.slots
    ]


def _function_rows(claim: Claim) -> list[dict[str, Any]]:
    return [
        {"host": claim.host, "function": device.function, "vm": claim.vm, "device": number}
        for number, device in enumerate(claim.devices)
        if device.function is not None
    ]
