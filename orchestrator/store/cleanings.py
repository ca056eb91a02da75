# SPDX-License-Identifier: Apache-2.0
"""How pieces of GPUs were cleaned when their claims ended: a row for each device of each claim, written by what ends
the claim, so that none ends without one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    String,
    Table,
    bindparam,
    case,
    delete,
    insert,
    select,
)
from sqlalchemy import update as change

from orchestrator.core.vms.cleaning import Cleaning, Evidence, Method, key_of
from orchestrator.store.records import ClaimLost
from orchestrator.store.rows import VM_COLUMNS, health_of, vm_of
from orchestrator.store.statements import InClause, Precompiled, Statements
from orchestrator.store.tables import (
    cpu_claims,
    function_claims,
    gpu_cuts,
    gpus,
    host_claims,
    metadata,
    slot_claims,
    vms,
)
from orchestrator.store.usage import Usage

cleanings: Final = Table(
    "gpu_cleanings", metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("host", String(255), nullable=False), Column("gpu", String(32), nullable=False),
    Column("gpu_uuid", String(64), nullable=False), Column("device", String(64), nullable=False),
    Column("kind", String(16), nullable=False), Column("type_name", String(64), nullable=False),
    Column("slots", JSON, nullable=False), Column("tenant", String(63), nullable=False),
    Column("vm", String(36), nullable=False), Column("vm_name", String(63), nullable=False),
    Column("operation", String(36)), Column("ended_at", Float, nullable=False), Column("cleaned_at", Float),
    Column("method", String(20)), Column("health", String(16), nullable=False),
    Index("ix_gpu_cleanings_cleaned_at", "cleaned_at"), Index("ix_gpu_cleanings_vm", "vm"),
)  # fmt: skip
_SLOTS: Final = Precompiled(
    select(slot_claims.c.device, slot_claims.c.host, slot_claims.c.gpu, slot_claims.c.slot, slot_claims.c.cleaned)
    .where(slot_claims.c.vm == bindparam("its_vm")).order_by(slot_claims.c.device, slot_claims.c.slot)
)  # fmt: skip
_VM: Final = Precompiled(select(*VM_COLUMNS).where(vms.c.id == bindparam("its_id")))
_CARD: Final = Precompiled(
    select(gpus.c.uuid, gpus.c.health).where(
        gpus.c.host == bindparam("its_host"), gpus.c.address == bindparam("its_gpu")
    )
)
_OPEN: Final = select(cleanings).where(cleanings.c.cleaned_at.is_(None))
_OPEN_ON: Final = InClause(lambda hosts: _OPEN.where(cleanings.c.host.in_(hosts)))
OPEN_HOSTS: Final = select(cleanings.c.host).where(cleanings.c.cleaned_at.is_(None)).distinct()
_MAX_OLD: Final = 10_000
"""Rows that are forgotten in one transaction."""


class Cleanings:
    """Of one transaction."""

    def __init__(self, db: Statements, usage: Usage) -> None:
        self._db, self._usage = db, usage

    def end(self, vm_id: str, evidence: Evidence) -> None:
        """Write down what becomes of the VM's pieces. Whoever calls this takes its slots away in this transaction."""
        slots = defaultdict[int, list[Any]](list)
        for row in self._db.execute(_SLOTS, {"its_vm": vm_id}):
            slots[row.device].append(row)
        if not slots:
            return
        vm = vm_of(self._db.execute(_VM, {"its_id": vm_id}).one())
        rows = []
        for number, claimed in slots.items():
            device, host, gpu = vm.devices[number], claimed[0].host, claimed[0].gpu
            method = evidence.methods.get(key_of(host, device), evidence.otherwise)
            if method == "absent":
                method = claimed[0].cleaned or method
            rows.append(
                {
                    "host": host, "gpu": gpu, "device": device.name, "kind": device.kind, "type_name": device.type_name,
                    "slots": [row.slot for row in claimed], "tenant": vm.spec.tenant, "vm": evidence.vm or vm.id,
                    "vm_name": vm.spec.name, "operation": evidence.operation, "ended_at": evidence.at,
                    "cleaned_at": None if method is None else evidence.at, "method": method,
                    **self._card(host, gpu),
                }
            )  # fmt: skip
        self._db.execute(insert(cleanings), rows)

    def note(self, vm_id: str, device: int, method: Method | None) -> None:
        """How one of the VM's devices was cleaned that is removed while its claim goes on: its end finds nothing
        there. None: it may be there from now on, or nobody knows. Of a claim that has ended nothing."""
        its_slots = change(slot_claims).where(slot_claims.c.vm == vm_id, slot_claims.c.device == device)
        self._db.execute(its_slots.values(cleaned=method))

    def _card(self, host: str, gpu: str) -> dict[str, str]:
        row = self._db.execute(_CARD, {"its_host": host, "its_gpu": gpu}).one_or_none()
        health = "healthy" if row is None or row.health is None else health_of(row.health).state
        return {"gpu_uuid": "" if row is None else row.uuid or "", "health": health}

    def open_on(self, hosts: Sequence[str] | None) -> tuple[Cleaning, ...]:
        """Those of which it is not known that they are clean. None: on all hosts."""
        rows = self._db.execute(_OPEN) if hosts is None else self._db.execute(*_OPEN_ON(hosts))
        return tuple(map(_cleaning_of, rows))

    def check(self, host: str, addresses: Iterable[str]) -> None:
        """:raises ClaimLost: one of these GPUs has a piece of which it is not known that it is clean"""
        wanted = set(addresses)
        for cleaning in self.open_on((host,)):
            if cleaning.gpu in wanted:
                raise ClaimLost(f"GPU {cleaning.gpu} of {host} is sanitising")

    def settle(self, cleaning: Cleaning, method: Method, at: float) -> None:
        """It is known to be clean now."""
        its = change(cleanings).where(cleanings.c.id == cleaning.id)
        self._db.execute(its.values(cleaned_at=at, method=method))
        self._usage.touch(cleaning.host)

    def give_up(self, host: str, at: float) -> None:
        """Nobody will observe it any more: what is open there is open no longer."""
        its = change(cleanings).where(cleanings.c.host == host, cleanings.c.cleaned_at.is_(None))
        self._db.execute(its.values(cleaned_at=at, method="host_given_up"))

    def follow_cards(self, host: str, moved: Mapping[str, str]) -> None:
        """``moved``: old address of a card to its new one. What ended long ago keeps the address that it had then."""
        its = change(cleanings).where(cleanings.c.host == host, cleanings.c.cleaned_at.is_(None))
        address = case(moved, value=cleanings.c.gpu)
        self._db.execute(its.where(cleanings.c.gpu.in_(moved)).values(gpu=address))

    def list(
        self, *, limit: int, before: int | None = None, is_open: bool = False, **equal: str | None
    ) -> tuple[Cleaning, ...]:  # fmt: skip
        """Newest first. ``before``: only those with a smaller id; ``equal``: columns and what they have to be."""
        query = select(cleanings).order_by(cleanings.c.id.desc()).limit(limit)
        query = query.where(*(cleanings.c[name] == value for name, value in equal.items() if value is not None))
        if is_open:
            query = query.where(cleanings.c.cleaned_at.is_(None))
        if before is not None:
            query = query.where(cleanings.c.id < before)
        return tuple(map(_cleaning_of, self._db.execute(query)))

    def forget(self, *, cleaned_before: float) -> None:
        """Those that are not known to be clean stay."""
        old = select(cleanings.c.id).where(cleanings.c.cleaned_at < cleaned_before).limit(_MAX_OLD)
        self._db.execute(delete(cleanings).where(cleanings.c.id.in_(old)))


def _cleaning_of(row: Any) -> Cleaning:
    return Cleaning(**{**row._asdict(), "slots": tuple(row.slots)})


_STILL_CUT: Final = (
    select(slot_claims.c.slot)
    .where(slot_claims.c.host == gpu_cuts.c.host, slot_claims.c.gpu == gpu_cuts.c.gpu)
    .exists()
)
_DROP_FUNCTIONS: Final = Precompiled(delete(function_claims).where(function_claims.c.vm == bindparam("its_vm")))
_DROP_CPUS: Final = Precompiled(delete(cpu_claims).where(cpu_claims.c.vm == bindparam("its_vm")))
_DROP_SLOTS: Final = Precompiled(
    delete(slot_claims).where(slot_claims.c.vm == bindparam("its_vm")).returning(slot_claims.c.host, slot_claims.c.gpu)
)
_UNCUT: Final = Precompiled(
    delete(gpu_cuts).where(
        gpu_cuts.c.host == bindparam("its_host"), gpu_cuts.c.gpu == bindparam("its_gpu"), ~_STILL_CUT
    )
)
_DROP_SHARE: Final = Precompiled(
    delete(host_claims).where(host_claims.c.vm == bindparam("its_vm")).returning(host_claims)
)


def drop_place(connection: Statements, usage: Usage, vm_id: str, evidence: Evidence | None) -> None:
    """Slots, function and CPUs; a GPU with nothing left on it is cut no more. ``evidence``: None: it is taken again in
    this transaction."""
    if evidence is not None:
        Cleanings(connection, usage).end(vm_id, evidence)
    connection.execute(_DROP_FUNCTIONS, {"its_vm": vm_id})
    connection.execute(_DROP_CPUS, {"its_vm": vm_id})
    for host, gpu in {(row.host, row.gpu) for row in connection.execute(_DROP_SLOTS, {"its_vm": vm_id})}:
        connection.execute(_UNCUT, {"its_host": host, "its_gpu": gpu})


def drop_claims(connection: Statements, usage: Usage, vm_id: str, evidence: Evidence | None) -> None:
    """All that a VM claims, its disk too. Nothing already is fine."""
    drop_place(connection, usage, vm_id, evidence)
    for row in connection.execute(_DROP_SHARE, {"its_vm": vm_id}).all():
        usage.give(row.host, vcpus=row.vcpus, memory_mib=row.memory_mib, disk_bytes=row.disk_bytes)
