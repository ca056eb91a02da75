# SPDX-License-Identifier: Apache-2.0
"""Snapshots of data volumes, and new volumes of them. Each is a volume of its own that no VM gets: it has room, quota,
file and delete of one, on the same host or in the same pool."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.names import check_name, near
from orchestrator.core.units import show_size
from orchestrator.core.vms.backup import BackedUpVolume, Backup
from orchestrator.core.vms.disk_snapshot import DiskSnapshot
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import MAX_SNAPSHOTS, Volume, id_of, short_of
from orchestrator.operations.steps.disk_snapshots import CopyOfVolume
from orchestrator.services.begin import held_by, new_operation, record
from orchestrator.services.messages import Started
from orchestrator.services.pools import check_encryption, check_pool_has, pool_on_hosts, reaching
from orchestrator.services.vm_checks import check_idle, check_settled, check_state
from orchestrator.services.vms.vm_volumes import check_free, check_untouched, known_volume
from orchestrator.services.vms.volume_claims import add, capacity_on, check_fits, check_limits, check_size
from orchestrator.services.vms.volumes import VolumeService, check_not_kept
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class VolumeSnapshots:
    volumes: VolumeService

    def list(self, tenant: str, name: str) -> tuple[Volume, ...]:
        """Oldest first. :raises NotFound: ``volume.unknown``"""
        with self.volumes.store.read() as tx:
            return tx.volumes.snapshots(known_volume(tx, tenant, name).id)

    def create(self, tenant: str, name: str, snapshot: str) -> Started:
        """Of one that no VM has, or whose VM runs or is stopped.

        :raises NotFound: ``volume.unknown``; :raises InvalidInput: ``snapshot.name_invalid``
        :raises Conflict: ``volume.empty``, ``volume.busy``, ``volume.lost``, ``vm.busy``, ``vm.suspended``,
            ``snapshot.exists``, ``snapshot.too_many``
        :raises QuotaExceeded: ``quota.exceeded``; :raises NoCapacity: ``volume.no_capacity``, ``pool.full``"""
        check_name(snapshot, what="snapshot")
        host = self._host(tenant, name)
        with self.volumes.store.begin() as tx:
            volume, vm = _known(tx, tenant, name)
            if vm is not None:
                check_settled(tx, vm)
            _check_one_more(tx, volume, snapshot)
            made = self._snapshot(volume, f"{volume.name}/{snapshot}")
            check_fits(tx, made)
            self._add(tx, made)
            started = self._begin(tx, "create_volume_snapshot", vm or volume, host, made, {"of": volume.file})
        return self._submitted(started)

    def delete(self, tenant: str, name: str, snapshot: str) -> Started:
        """:raises NotFound: ``volume.unknown``, ``snapshot.unknown``
        :raises Conflict: ``volume.busy``; ``snapshot.with_disk``: it goes with that of a VM's disk"""
        with self.volumes.store.read() as tx:
            known = _find(tx, known_volume(tx, tenant, name), snapshot)
            vm, _, whole = _taken_with(tx, tenant).get(known.id, "").partition("/")
        if whole:
            hint = f"'vgpuctl vm snapshot delete {vm} {whole} --tenant {tenant}' deletes all that were taken then"
            raise Conflict(
                "snapshot.with_disk", f"snapshot {known.name} was taken with {whole} of VM {vm}'s disk", hint=hint
            )
        return self.volumes.delete(tenant, known.name)

    def restore(self, tenant: str, name: str, snapshot: str) -> Started:
        """What was written to the volume since is gone. The snapshot stays. Until it is done, what is copied is one
        more, and has its room on the host whatever the tenant's quota is.

        :raises NotFound: ``volume.unknown``, ``snapshot.unknown``
        :raises Conflict: ``vm.busy``: it runs; ``volume.busy``, ``volume.lost``, ``vm.suspended``,
            ``snapshot.unfinished``
        :raises NoCapacity: ``volume.no_capacity``, ``pool.full``"""
        host = self._host(tenant, name)
        with self.volumes.store.begin() as tx:
            volume, vm = _known(tx, tenant, name)
            source = _taken(tx, volume, snapshot)
            if vm is not None:
                check_state(vm, "stopped")
                check_idle(tx, vm)
            made = self._replacing(tx, volume)
            files: dict[str, object] = {"of": source.file, "replaces": volume.file}
            started = self._begin(tx, "restore_volume_snapshot", vm or volume, host, made, files)
        return self._submitted(started)

    def copy(
        self, tenant: str, snapshot: tuple[str, str], name: str, size_bytes: int | None, limits: DiskLimits,
        pool: str | None = None,
    ) -> Started:  # fmt: skip
        """To a new volume. ``snapshot``: its volume's name and its own; ``size_bytes``: None: as large; ``pool``: where
        the new one lies, ``none``: on a host's own disk, None: where the snapshot does.

        :raises NotFound: ``volume.unknown``, ``snapshot.unknown``, ``pool.unknown``
        :raises InvalidInput: ``volume.name_invalid``, ``volume.limits_invalid``, ``disk.too_small``
        :raises Conflict: ``volume.exists``, ``volume.used_up``, ``volume.busy``, ``snapshot.unfinished``
        :raises QuotaExceeded: ``quota.exceeded``, ``encryption.required``
        :raises NoCapacity: ``volume.no_capacity``, ``pool.full``, ``pool.not_reached``, ``host.kept``"""
        check_name(name, what="volume")
        check_limits(limits)
        host, lies_on, in_pool = self._place(tenant, snapshot[0], pool)
        with self.volumes.store.begin() as tx:
            source = _taken(tx, known_volume(tx, tenant, snapshot[0]), snapshot[1])
            size = source.size_bytes if size_bytes is None else size_bytes
            check_size(size)
            if size < source.size_bytes:
                words = f"a volume of {show_size(size)} is smaller than snapshot {source.name}"
                raise InvalidInput("disk.too_small", words, hint=f"ask for at least {show_size(source.size_bytes)}")
            check_encryption(tx, tenant, encrypted=False, copy=True)
            if lies_on != source.host:
                check_not_kept(tx, tenant, lies_on)
            made = replace(
                self._drawn(source, name), size_bytes=size, host=lies_on, pool=in_pool,
                max_bytes_per_s=limits.bytes_per_s or None, max_iops=limits.iops or None,
            )  # fmt: skip
            check_fits(tx, made)
            self._add(tx, made)
            started = self._begin(tx, "copy_volume", made, host, made, {"of": source.file})
        return self._submitted(started)

    def with_disk(self, tx: Transaction, vm: Vm, snapshot: str, of: Iterable[str]) -> tuple[CopyOfVolume, ...]:
        """One of each, which is still to be taken. ``of``: data volumes that the VM writes, as its specification calls
        them. Raises as :meth:`create`."""
        return tuple(self._claimed(tx, short_of(item), vm, snapshot) for item in of)

    def _claimed(self, tx: Transaction, name: str, vm: Vm, snapshot: str) -> CopyOfVolume:
        volume, _ = _known(tx, vm.spec.tenant, name)
        _check_one_more(tx, volume, snapshot)
        made = self._snapshot(volume, f"{volume.name}/{snapshot}")
        check_fits(tx, made)
        self._add(tx, made)
        return CopyOfVolume(made, volume.file)

    def to_put_back(self, tx: Transaction, vm: Vm, snapshot: DiskSnapshot) -> tuple[CopyOfVolume, ...]:
        """Room for what is put in the place of the volumes that it was taken of. Raises as :meth:`restore`, and

        :raises Conflict: ``volume.not_attached``: the VM has one of them no more"""
        return tuple(self._claimed_copy(tx, vm, short_of(item), snapshot.name) for item in snapshot.volumes)

    def _claimed_copy(self, tx: Transaction, vm: Vm, name: str, snapshot: str) -> CopyOfVolume:
        volume, has = _known(tx, vm.spec.tenant, name)
        if has is None or has.id != vm.id:
            hint = f"'vgpuctl volume attach {name} {vm.spec.name} --tenant {vm.spec.tenant}' attaches it"
            raise Conflict("volume.not_attached", f"volume {name} is not attached to VM {vm.spec.name}", hint=hint)
        source, made = _taken(tx, volume, snapshot), self._replacing(tx, volume)
        return CopyOfVolume(made, source.file, volume.file)

    def to_fetch(self, tx: Transaction, vm: Vm, backup: Backup) -> tuple[CopyOfVolume, ...]:
        """Room for what is put in the place of the volumes that it holds. Raises as :meth:`to_put_back`."""
        return tuple(self._fetched(tx, vm, backup, each) for each in backup.stored_volumes)

    def _fetched(self, tx: Transaction, vm: Vm, backup: Backup, held: BackedUpVolume) -> CopyOfVolume:
        volume, tenant = tx.volumes.find_id(held.id), vm.spec.tenant
        if volume is None or volume.vm != vm.id:
            hint = (
                f"'vgpuctl backup restore {vm.spec.name} {backup.id} --no-volumes --tenant {tenant}' leaves them out, "
                f"'vgpuctl volume create NAME --from-backup {backup.id}/{held.name} --tenant {tenant}' makes a new one"
            )
            words = f"volume {held.name}, which backup {backup.id} holds, is not attached to VM {vm.spec.name}"
            raise Conflict("volume.not_attached", words, hint=hint)
        _known(tx, volume.tenant, volume.name)
        made = self._replacing(tx, volume)
        return CopyOfVolume(made, made.file, volume.file)

    def _replacing(self, tx: Transaction, volume: Volume) -> Volume:
        """Raises as :meth:`restore`."""
        made = self._snapshot(volume, "")
        check_pool_has(tx, made.pool, made.size_bytes)
        self._add(tx, made)
        return made

    def to_delete(self, tx: Transaction, snapshot: DiskSnapshot) -> tuple[CopyOfVolume, ...]:
        """Those that were taken with it, which nothing reads now, nor from now on.

        :raises Conflict: ``volume.busy``"""
        taken = [volume for item in snapshot.volumes if (volume := tx.volumes.find_id(id_of(item))) is not None]
        for volume in taken:
            check_untouched(tx, volume)
            tx.volumes.deleting(volume.id)
        return tuple(CopyOfVolume(volume, "") for volume in taken)

    def taken_with(self, tenant: str) -> dict[str, str]:
        """``VM/SNAPSHOT`` that it was taken with, by the id of each snapshot of a volume that was."""
        with self.volumes.store.read() as tx:
            return _taken_with(tx, tenant)

    def _host(self, tenant: str, name: str, lies_of: str | None = None) -> str:
        """Where it can be copied: on its VM's host, which has it open; in a pool, on any that reaches it. ``lies_of``:
        as :func:`reaching` takes it."""
        with self.volumes.store.read() as tx:
            volume = known_volume(tx, tenant, name)
            vm = None if volume.vm is None else tx.vms.find_id(volume.vm)
        if volume.pool is None or vm is not None:
            return volume.host or ("" if vm is None else vm.host)
        return reaching(self.volumes.planner, volume.pool, lies_of=lies_of)

    def _place(self, tenant: str, name: str, pool: str | None) -> tuple[str, str | None, str | None]:
        """Who copies, and where the copy lies: on which host, or in which pool, as hosts call it."""
        with self.volumes.store.read() as tx:
            volume = known_volume(tx, tenant, name)
            wanted = volume.pool if pool is None else pool_on_hosts(tx, pool, tenant)
        if wanted == volume.pool:
            return self._host(tenant, name), volume.host, volume.pool
        if wanted is None:
            host = self._host(tenant, name, lies_of=tenant)
            return host, host, None
        both = tuple(filter(None, (volume.pool, wanted)))
        return reaching(self.volumes.planner, *both, only=volume.host), None, wanted

    def _drawn(self, like: Volume, name: str) -> Volume:
        """``name``: "": as its id begins."""
        drawn, now = self.volumes.planner.ids.new_uuid(), self.volumes.planner.clock.now()
        return Volume(
            id=drawn, tenant=like.tenant, name=name or f"{like.name}/copy-{drawn[:8]}", size_bytes=like.size_bytes,
            host=like.host, vm=None, state="copying", created_at=now, pool=like.pool,
        )  # fmt: skip

    def _snapshot(self, of: Volume, name: str) -> Volume:
        return replace(self._drawn(of, name), snapshot_of=of.id)

    def _add(self, tx: Transaction, made: Volume) -> None:
        capacity = None if made.host is None else capacity_on(self.volumes.planner, self.volumes.store, made.host)
        add(tx, made, capacity)

    def _begin(
        self, tx: Transaction, kind: str, about: Vm | Volume, host: str, made: Volume, inputs: dict[str, object]
    ) -> Started:
        """``inputs``: beside what is made."""
        operation = new_operation(kind, about, clock=self.volumes.planner.clock, ids=self.volumes.planner.ids)
        if isinstance(about, Vm):
            tx.vms.update(held_by(operation, about))
        record(tx, operation, host=host, inputs={"made": made.fields(), **inputs}, said=made.name)
        return Started(operation=operation.id, name=made.name)

    def _submitted(self, started: Started) -> Started:
        self.volumes.engine.submit(str(started.operation))
        return started


def _known(tx: Transaction, tenant: str, name: str) -> tuple[Volume, Vm | None]:
    """With something on it, which nothing changes just now, and the VM that has it.

    :raises NotFound: ``volume.unknown``
    :raises Conflict: ``volume.empty``, ``volume.busy``, ``volume.lost``, ``volume.being_deleted``,
    ``volume.encrypted``"""
    volume = known_volume(tx, tenant, name)
    check_free(tx, replace(volume, vm=None))
    if volume.encrypted:
        hint = "copy its files in the guest, to another volume"
        raise Conflict("volume.encrypted", f"volume {volume.name} is encrypted, and has no snapshots", hint=hint)
    if volume.state == "new":
        hint = f"a VM gets it: 'vgpuctl volume attach {volume.name} VM --tenant {tenant}'"
        raise Conflict("volume.empty", f"no VM has had volume {volume.name}: nothing is on it", hint=hint)
    check_untouched(tx, volume)
    return volume, None if volume.vm is None else tx.vms.find_id(volume.vm)


def _taken_with(tx: Transaction, tenant: str) -> dict[str, str]:
    return {
        id_of(item): f"{vm.spec.name}/{snapshot.name}"
        for vm in tx.vms.list(tenant=tenant)
        for snapshot in vm.snapshots
        for item in snapshot.volumes
    }


def _find(tx: Transaction, volume: Volume, name: str) -> Volume:
    """:raises NotFound: ``snapshot.unknown``"""
    by_name = {known.name.rpartition("/")[2]: known for known in tx.volumes.snapshots(volume.id)}
    if name not in by_name:
        hint = near(name, by_name, f"vgpuctl volume snapshot list {volume.name}")
        raise NotFound("snapshot.unknown", f"no snapshot of volume {volume.name} is called {name[:63]!a}", hint=hint)
    return by_name[name]


def _taken(tx: Transaction, volume: Volume, name: str) -> Volume:
    """:raises NotFound: ``snapshot.unknown``; :raises Conflict: ``snapshot.unfinished``, ``volume.busy``"""
    snapshot = _find(tx, volume, name)
    if snapshot.state != "ready":
        check_untouched(tx, snapshot)
        hint = f"'vgpuctl volume snapshot delete {volume.name} {name} --tenant {volume.tenant}' removes it"
        raise Conflict("snapshot.unfinished", f"snapshot {snapshot.name} is {snapshot.state}", hint=hint)
    return snapshot


def _check_one_more(tx: Transaction, volume: Volume, name: str) -> None:
    """:raises Conflict: ``snapshot.exists``, ``snapshot.too_many``"""
    known, named = tx.volumes.snapshots(volume.id), f"{volume.name} --tenant {volume.tenant}"
    if any(each.name == f"{volume.name}/{name}" for each in known):
        hint = f"'vgpuctl volume snapshot list {named}' shows it; choose another name"
        raise Conflict("snapshot.exists", f"volume {volume.name} has a snapshot {name}", hint=hint)
    if len(known) >= MAX_SNAPSHOTS:
        oldest = known[0].name.rpartition("/")[2]
        hint = f"'vgpuctl volume snapshot delete {named} {oldest}' removes the oldest one"
        raise Conflict("snapshot.too_many", f"volume {volume.name} has {MAX_SNAPSHOTS} snapshots", hint=hint)
