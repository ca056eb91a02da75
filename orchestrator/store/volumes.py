# SPDX-License-Identifier: Apache-2.0
"""Data volumes, and what they take of their hosts' disks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Select, and_, bindparam, delete, exists, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.labels import About
from orchestrator.core.tenancy.quota import held_of
from orchestrator.core.vms.claim import Claim, HostCapacity
from orchestrator.core.vms.volume import Volume
from orchestrator.store.events import Events
from orchestrator.store.pools import Pools, let_go_of_pool
from orchestrator.store.records import ClaimLost
from orchestrator.store.rows import about_of, about_values
from orchestrator.store.statements import AnyRow, Statements
from orchestrator.store.tables import operations, volumes
from orchestrator.store.usage import TenantUsage, Usage
from orchestrator.store.volume_keys import destroy, volume_row

_ID: Final = volumes.c.id == bindparam("its_id")
_HOLDS: Final = volumes.c.state != "lost"
_FREE: Final = (volumes.c.vm.is_(None), volumes.c.state.in_(("new", "ready")))
_READER: Final = volumes.alias("reader")
_READ: Final = exists().where(_READER.c.read_only_of == volumes.c.id)
_ATTACH: Final = (
    update(volumes)
    .where(_ID, *_FREE, ~_READ, or_(volumes.c.host.is_(None), volumes.c.host == bindparam("on_host")))
    .values(vm=bindparam("to_vm"), host=bindparam("on_host"))
)
_TO_BE_READ: Final = update(volumes).where(_ID, volumes.c.vm.is_(None), volumes.c.state == "ready")
OF_HOSTS: Final[Select[Any]] = (
    select(volumes.c.host, func.sum(volumes.c.size_bytes).label("size_bytes"))
    .where(_HOLDS, volumes.c.host.is_not(None))
    .group_by(volumes.c.host)
)
"""Bytes that the volumes on each host may take together."""


class Volumes:
    """What each takes of its host's disk is counted with the host's claims."""

    def __init__(self, db: Statements, usage: Usage, tenants: TenantUsage, events: Events) -> None:
        self._db = db
        self._usage = usage
        self._tenants = tenants
        self._events = events

    def add(self, volume: Volume, capacity: HostCapacity | None) -> None:
        """:raises Conflict: ``volume.exists``; :raises ClaimLost: the host or its pool has too little disk left"""
        if (existing := self.find(volume.tenant, volume.name)) is not None:
            raise _exists(volume, existing)
        if volume.pool is not None:
            Pools(self._db).take(volume.pool, volume.id, volume.size_bytes)
        if volume.host is not None and capacity is not None:
            self._take(volume, volume.host, capacity)
        try:
            self._db.execute(insert(volumes).values(about=about_values(volume.about), **volume.fields()))
        except IntegrityError as error:
            raise _exists(volume, volume) from error
        self._tenants.change(volume.tenant, {}, held_of(volume))
        self._note(volume, "created")

    def add_reader(self, reader: Volume) -> None:
        """Of a volume that no VM has for writing. :raises ClaimLost: one has, or it is gone"""
        its = {"its_id": reader.read_only_of}
        if not self._db.execute(_TO_BE_READ.values(vm=None), its).rowcount:
            raise ClaimLost(f"volume {reader.name} was changed meanwhile")
        self.add(reader, None)

    def readers(self, volume_id: str | None = None) -> tuple[Volume, ...]:
        """Of that volume, else all that there are."""
        its = volumes.c.read_only_of.is_not(None) if volume_id is None else volumes.c.read_only_of == volume_id
        return tuple(_volume_of(row) for row in self._db.execute(select(volumes).where(its).order_by(volumes.c.id)))

    def find(self, tenant: str, name: str) -> Volume | None:
        row = self._db.execute(select(volumes).where(volumes.c.tenant == tenant, volumes.c.name == name)).one_or_none()
        return None if row is None else _volume_of(row)

    def find_id(self, volume_id: str) -> Volume | None:
        row = self._db.execute(select(volumes).where(_ID), {"its_id": volume_id}).one_or_none()
        return None if row is None else _volume_of(row)

    def list(self, *, tenant: str | None = None, host: str | None = None, snapshots: bool = True) -> tuple[Volume, ...]:
        """By tenant and name. ``snapshots``: of volumes as well, and what VMs read them by."""
        query = select(volumes).order_by(volumes.c.tenant, volumes.c.name)
        if not snapshots:
            query = query.where(volumes.c.snapshot_of.is_(None), volumes.c.read_only_of.is_(None))
        if tenant is not None:
            query = query.where(volumes.c.tenant == tenant)
        if host is not None:
            query = query.where(volumes.c.host == host)
        return tuple(_volume_of(row) for row in self._db.execute(query))

    def snapshots(self, volume_id: str) -> tuple[Volume, ...]:
        """Of the volume, oldest first."""
        query = select(volumes).where(volumes.c.snapshot_of == volume_id)
        return tuple(_volume_of(row) for row in self._db.execute(query.order_by(volumes.c.created_at, volumes.c.id)))

    def makers(self, volume_id: str) -> tuple[str, ...]:
        """Ids of the operations that make it to put it in another's place."""
        alone = operations.c.inputs["made"]["id"].as_string() == volume_id
        with_disk = operations.c.inputs["copy_ids"].as_string().contains(volume_id)
        its = or_(
            and_(operations.c.kind == "restore_volume_snapshot", alone),
            and_(operations.c.kind.in_(("restore_snapshot", "restore_backup")), with_disk),
        )
        return tuple(self._db.execute(select(operations.c.id).where(its)).scalars())

    def attach(self, volume: Volume, vm: str, host: str, capacity: HostCapacity) -> None:
        """:raises ClaimLost: it is another VM's, on another host or gone, or the host has too little disk left"""
        stored = self.find_id(volume.id)
        lies_on = host if volume.pool is None else None
        if not self._db.execute(_ATTACH, {"its_id": volume.id, "to_vm": vm, "on_host": lies_on}).rowcount:
            raise ClaimLost(f"volume {volume.name} was changed meanwhile")
        self._note(replace(volume, host=host), "attached", vm=vm)
        if stored is not None and stored.host is None and volume.pool is None:
            self._take(volume, host, capacity)

    def made(self, volume_id: str, quiesced: str | None = None) -> None:
        """Its file exists."""
        self._set(volume_id, state="ready", quiesced=quiesced)

    def resize(self, volume_id: str, size_bytes: int, capacity: HostCapacity | None) -> None:
        """``capacity``: of its host, for more than it has. Gone already is fine.

        :raises ClaimLost: the host or its pool has too little disk left"""
        before = self.find_id(volume_id)
        if before is None or before.size_bytes == size_bytes:
            return
        after, more = replace(before, size_bytes=size_bytes), size_bytes - before.size_bytes
        if before.pool is not None:
            let_go_of_pool(self._db, volume_id)
            Pools(self._db).take(before.pool, volume_id, size_bytes)
        if before.host is not None and before.state != "lost":
            if capacity is None:
                self._usage.give(before.host, vcpus=0, memory_mib=0, disk_bytes=-more)
            else:
                self._take(replace(before, size_bytes=more), before.host, capacity)
        self._db.execute(update(volumes).where(_ID).values(size_bytes=size_bytes), {"its_id": volume_id})
        self._tenants.change(before.tenant, held_of(before), held_of(after))
        self._note(after, "resized")

    def detach(self, volume_id: str, vm: str) -> None:
        """Nobody has it, if the VM had it; what it read another by is gone."""
        volume = self.find_id(volume_id)
        if volume is not None and volume.read_only_of is not None and volume.vm == vm:
            self._note(volume, "detached", vm=vm)
            self.remove(volume_id)
        its = update(volumes).where(_ID, volumes.c.vm == vm).values(vm=None).returning(volumes)
        for row in self._db.execute(its, {"its_id": volume_id}):
            self._note(_volume_of(row), "detached", vm=vm)

    def put_back(self, before: Iterable[Volume], vm: str) -> None:
        """As they were before the VM was to have them; those that are not the VM's any more stay as they are."""
        for volume in before:
            stored = self.find_id(volume.id)
            if stored is None or stored.vm != vm:
                continue
            if volume.read_only_of is not None:
                self.remove(volume.id)
                continue
            self._set(volume.id, host=volume.host, vm=volume.vm, state=volume.state)
            if stored.host is not None and volume.host is None:
                self._usage.give(stored.host, vcpus=0, memory_mib=0, disk_bytes=volume.size_bytes)

    def deleting(self, volume_id: str, *, ready: bool = False) -> None:
        """It is being deleted, or with ``ready`` not any more."""
        self._set(volume_id, state="ready" if ready else "deleting")

    def lose(self, host: str) -> int:
        """How many they are."""
        lost = [volume for volume in self.list(host=host) if volume.state != "lost"]
        for volume in lost:
            self._set(volume.id, state="lost")
            self._usage.give(host, vcpus=0, memory_mib=0, disk_bytes=volume.size_bytes)
        return len(lost)

    def describe(self, volume_id: str, about: About) -> None:
        """What people say of it."""
        self._set(volume_id, about=about_values(about))

    def limit(self, volume_id: str, max_bytes_per_s: int | None, max_iops: int | None) -> None:
        """None: any."""
        self._set(volume_id, max_bytes_per_s=max_bytes_per_s, max_iops=max_iops)

    def remove(self, volume_id: str) -> None:
        """With its key. Gone already is fine."""
        volume = self.find_id(volume_id)
        if volume is None:
            return
        self._db.execute(delete(volumes).where(_ID), {"its_id": volume_id})
        self._tenants.change(volume.tenant, held_of(volume), {})
        ended = {"key": "destroyed"} if volume.encrypted else {}
        if volume.encrypted:
            destroy(self._db, volume_row(volume.id))
        self._note(volume, "removed", **ended)
        let_go_of_pool(self._db, volume.id)
        if volume.host is not None and volume.state != "lost":
            self._usage.give(volume.host, vcpus=0, memory_mib=0, disk_bytes=volume.size_bytes)

    def _set(self, volume_id: str, **values: Any) -> None:
        before = self.find_id(volume_id)
        if before is not None and "state" in values:
            after = replace(before, state=values["state"])
            self._tenants.change(before.tenant, held_of(before), held_of(after))
            if before.state != after.state:
                self._note(after, "state")
        self._db.execute(update(volumes).where(_ID).values(**values), {"its_id": volume_id})

    def _note(self, volume: Volume, change: str, **details: str) -> None:
        if volume.read_only_of is not None:  # people know the volume that is read
            if change not in {"attached", "detached"}:
                return
            volume = replace(volume, id=volume.read_only_of, name=volume.name.rpartition("/")[2])
        its = {"tenant": volume.tenant, "host": volume.host, "subject": volume.id, "state": volume.state}
        self._events.note("volume", volume.name, change, **its, **details)

    def _take(self, volume: Volume, host: str, capacity: HostCapacity) -> None:
        share = Claim(vm=volume.id, host=host, devices=(), vcpus=0, memory_mib=0, disk_bytes=volume.size_bytes)
        if not self._usage.take_disk(share, capacity.disk_bytes):
            raise ClaimLost(f"{host} has too little disk left for volume {volume.name}")


_DIFFERING: Final = {
    "size_bytes": "another size", "host": "another host", "pool": "another pool",
    "limits": "other limits", "encryption": "other encryption",
}  # fmt: skip


def _exists(volume: Volume, existing: Volume) -> Conflict:
    """What nobody asks for may be any: a host, limits."""
    free = {"host": None, "limits": DiskLimits()}
    wanted = [name for name in _DIFFERING if name not in free or getattr(volume, name) != free[name]]
    differing = [_DIFFERING[name] for name in wanted if getattr(volume, name) != getattr(existing, name)]
    return Conflict(
        "volume.exists",
        f"there is already a volume {volume.name}" + (f" with {' and '.join(differing)}" if differing else ""),
        hint=f"'vgpuctl volume show {volume.name}' shows it; choose another name",
    )


def _volume_of(row: AnyRow) -> Volume:
    return Volume(**(row._asdict() | {"about": about_of(row.about)}))
