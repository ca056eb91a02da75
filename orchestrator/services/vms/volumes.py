# SPDX-License-Identifier: Apache-2.0
"""Data volumes: made, attached to VMs, taken from them, made larger, deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.hosts.pool import NO_POOL
from orchestrator.core.labels import kept_from, show_changes
from orchestrator.core.names import check_name
from orchestrator.core.operation import FINISHED
from orchestrator.core.units import show_size
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume, limited
from orchestrator.ports.engine import Engine
from orchestrator.services.acting import actor
from orchestrator.services.begin import held_by, new_operation, record, undo_inputs
from orchestrator.services.messages import Started
from orchestrator.services.pools import check_pool_has, pool_on_hosts, reaching
from orchestrator.services.tenancy.quotas import volume_within_quota
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vm_checks import check_free_port, check_settled, known_vm
from orchestrator.services.vms.planning import Planner
from orchestrator.services.vms.vm_volumes import (
    check_free,
    check_may_change,
    check_not_attached,
    check_not_read,
    check_number,
    check_untouched,
    host_of,
    known_volume,
    reader_of,
)
from orchestrator.services.vms.volume_claims import (
    add,
    capacity_on,
    check_fits,
    check_limits,
    check_may_be_encrypted,
    check_size,
    refusing_full,
)
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

NO_LIMITS: Final = DiskLimits()
_HAS_FILE: Final = frozenset({"ready", "copying"})
"""States in which a host may have one."""


@dataclass(frozen=True, kw_only=True)
class VolumeInfo:
    """A volume, and what its VM is called, or those that read it."""

    volume: Volume
    vm: str | None
    read_by: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class VolumeTraits:
    """Of a new volume, beside its size and place."""

    limits: DiskLimits = NO_LIMITS
    encrypted: bool = False


_PLAIN: Final = VolumeTraits()


@dataclass(frozen=True, kw_only=True)
class VolumeService:
    """A volume is made on its host when it is first attached; from then on it never leaves it."""

    store: Store
    engine: Engine
    planner: Planner

    def create(
        self, tenant: str, name: str, size_bytes: int, host: str | None = None, pool: str | None = None, *,
        traits: VolumeTraits = _PLAIN,
    ) -> VolumeInfo:  # fmt: skip
        """``host``: where it shall lie; None: where the first VM goes that has it, or in ``pool``. The same again is
        answered with what is there.

        :raises InvalidInput: ``volume.name_invalid``, ``volume.out_of_range``, ``volume.limits_invalid``,
            ``volume.encrypted_in_pool``
        :raises NotFound: ``tenant.unknown``, ``host.unknown``; :raises Conflict: ``volume.exists``, ``volume.used_up``
        :raises QuotaExceeded: ``quota.exceeded``; :raises NoCapacity: ``volume.no_capacity``, ``host.not_ready``,
            ``host.kept``"""
        check_name(name, what="volume")
        check_size(size_bytes)
        limits = traits.limits
        check_limits(limits)
        if host is not None and pool not in {None, NO_POOL}:
            raise InvalidInput("volume.host_and_pool", "a volume in a pool lies on no host", hint="name one of both")
        capacity = None if host is None else capacity_on(self.planner, self.store, host)
        with self.store.begin() as tx:
            known_tenant(tx, tenant)
            existing = tx.volumes.find(tenant, name)
            in_pool = None if host is not None else pool_on_hosts(tx, pool, tenant)
            if (
                existing
                and _has(existing, traits)
                and _is_same(existing, size_bytes, host, pool and (in_pool or NO_POOL))
            ):
                return _info(tx, existing)
            check_not_kept(tx, tenant, host)
            volume = Volume(
                id=self.planner.ids.new_uuid(), tenant=tenant, name=name, size_bytes=size_bytes, host=host,
                vm=None, state="new", created_at=self.planner.clock.now(), pool=in_pool,
                max_bytes_per_s=limits.bytes_per_s or None, max_iops=limits.iops or None,
                encryption="luks" if traits.encrypted else "none",
            )  # fmt: skip
            if existing is None:
                check_may_be_encrypted(tx, volume)
                check_fits(tx, volume)
            add(tx, volume, capacity)
            if traits.encrypted:
                tx.volume_keys.draw(tenant, volume.id)
            self._note(tx, "create_volume", volume, show_size(size_bytes))
        return VolumeInfo(volume=volume, vm=None)

    def get(self, tenant: str, name: str) -> VolumeInfo:
        """:raises NotFound: ``volume.unknown``, ``tenant.unknown``"""
        with self.store.read() as tx:
            known_tenant(tx, tenant)
            return _info(tx, known_volume(tx, tenant, name))

    def list(self, tenants: tuple[str, ...] | None) -> tuple[VolumeInfo, ...]:
        """Of these tenants (None: of all), by tenant and name."""
        with self.store.read() as tx:
            volumes = [
                volume
                for tenant in ((None,) if tenants is None else sorted(tenants))
                for volume in tx.volumes.list(tenant=tenant, snapshots=False)
            ]
            return tuple(_info(tx, volume) for volume in volumes)

    def all(self) -> tuple[Volume, ...]:
        """Of every tenant."""
        with self.store.read() as tx:
            return tx.volumes.list(snapshots=False)

    def describe(self, tenant: str, name: str, description: str | None, labels: Mapping[str, str | None]) -> VolumeInfo:
        """None as a description: it stays, as a label's value: it goes.

        :raises NotFound: ``volume.unknown``, ``tenant.unknown``; :raises InvalidInput: ``label.…``"""
        with self.store.begin() as tx:
            known_tenant(tx, tenant)
            volume = known_volume(tx, tenant, name)
            about = volume.about.changed(description, labels)
            if about != volume.about:
                tx.volumes.describe(volume.id, about)
                self._note(tx, f"set_volume {show_changes(description, labels)}", volume, "done")
            return _info(tx, replace(volume, about=about))

    def delete(self, tenant: str, name: str) -> Started:
        """With what is on it. One that no host has a file of is gone at once.

        :raises NotFound: ``volume.unknown``
        :raises Conflict: ``volume.attached``, ``volume.busy``, ``volume.has_snapshots``"""
        with self.store.read() as tx:
            known = known_volume(tx, tenant, name)
        on = reaching(self.planner, known.pool) if known.pool is not None and known.state in _HAS_FILE else None
        with self.store.begin() as tx:
            volume = known_volume(tx, tenant, name)
            check_not_attached(tx, volume)
            check_not_read(tx, volume)
            check_untouched(tx, volume)
            _check_no_snapshots(tx, volume)
            if volume.state == "deleting":
                running = [begun.id for begun in tx.operations.of_subject(volume.id) if begun.state not in FINISHED]
                return Started(operation=running[-1] if running else None, name=name, existing=True)
            if volume.state not in _HAS_FILE or (host := volume.host or on) is None:
                tx.volumes.remove(volume.id)
                self._note(tx, "delete_volume", volume, "done")
                return Started(operation=None, name=name)
            tx.volumes.deleting(volume.id)
            operation = new_operation("delete_volume", volume, clock=self.planner.clock, ids=self.planner.ids)
            record(
                tx,
                operation,
                host=host,
                inputs={"volume": volume.name, "pool": volume.pool, "encrypted": volume.encrypted},
            )
            started = Started(operation=operation.id, name=name)
        return self._submitted(started)

    def attach(self, tenant: str, name: str, vm_name: str, *, read_only: bool = False) -> Started:
        """To a VM that runs or is stopped. ``read_only``: several may have it so, and none for writing then.

        :raises NotFound: ``volume.unknown``, ``vm.unknown``; :raises NoCapacity: ``volume.no_capacity``
        :raises Conflict: ``volume.attached``, ``volume.elsewhere``, ``volume.busy``, ``vm.no_port``, ``vm.busy``,
            ``vm.adopted``, ``volume.not_shared``, ``volume.empty``"""
        with self.store.read() as tx:
            host = known_vm(tx, tenant, vm_name).host
        capacity = capacity_on(self.planner, self.store, host)
        with self.planner.index.current() as fleet:
            viewed = fleet.host(host)
            reached = () if viewed is None else viewed.facts.pools
        with self.store.begin() as tx:
            volume, vm = known_volume(tx, tenant, name), known_vm(tx, tenant, vm_name)
            if read_only:
                volume = reader_of(tx, volume, vm, self.planner.ids.new_uuid())
            if volume.vm == vm.id:
                return Started(operation=None, name=name, existing=True)
            check_may_change(vm)
            check_free(tx, volume)
            host_of((volume,), vm.host)
            if volume.pool is not None and volume.pool not in reached:
                move = f"'vgpuctl vm move {vm.spec.name} --tenant {tenant}'"
                hint = f"an operator moves the VM to a host that has the pool: {move}"
                raise Conflict("volume.elsewhere", f"the VM's host does not reach volume {name}", hint=hint)
            check_settled(tx, vm)
            check_free_port(tx, vm)
            check_number(len(vm.spec.volumes) + 1)
            with refusing_full(volume, vm.host):
                tx.volumes.attach(volume, vm.id, vm.host, capacity)
            has = (*vm.spec.volumes, volume.on_hosts)
            given = replace(vm, spec=limited(replace(vm.spec, volumes=has), (volume,)))
            more = {"volumes": [volume.fields()], "had": list(vm.spec.volumes), "has": list(has)}
            started = self._begin(tx, "attach_volume", given, more, volume)
        return self._submitted(started)

    def detach(self, tenant: str, name: str, vm_name: str) -> Started:
        """From a VM that runs or is stopped; what is on it stays.

        :raises NotFound: ``volume.unknown``, ``vm.unknown``
        :raises Conflict: ``volume.not_attached``, ``vm.running``, ``vm.busy``"""
        with self.store.begin() as tx:
            known, vm = known_volume(tx, tenant, name), known_vm(tx, tenant, vm_name)
            readers = tx.volumes.readers(known.id)
            volume = next((reader for reader in readers if reader.vm == vm.id), known)
            if volume.vm is None and not readers:
                return Started(operation=None, name=name, existing=True)
            if volume.vm != vm.id:
                raise Conflict(
                    "volume.not_attached",
                    f"volume {name} is not attached to VM {vm.spec.name}",
                    hint=f"'vgpuctl volume show {name}' tells which VM has it",
                )
            check_settled(tx, vm)
            has = [name_on_hosts for name_on_hosts in vm.spec.volumes if name_on_hosts != volume.on_hosts]
            started = self._begin(tx, "detach_volume", vm, {"had": list(vm.spec.volumes), "has": has}, volume)
        return self._submitted(started)

    def resize(self, tenant: str, name: str, size_bytes: int) -> Started:
        """Make it larger, also while a VM runs that has it: its guest learns of it.

        :raises InvalidInput: ``volume.out_of_range``, ``volume.shrinks``
        :raises NotFound: ``volume.unknown``; :raises NoCapacity: ``volume.no_capacity``, ``pool.full``
        :raises QuotaExceeded: ``quota.exceeded``; :raises Conflict: ``volume.busy``, ``volume.lost``, ``vm.busy``"""
        check_size(size_bytes)
        with self.store.read() as tx:
            known = known_volume(tx, tenant, name)
        capacity = None if known.host is None else capacity_on(self.planner, self.store, known.host)
        on = reaching(self.planner, known.pool) if known.pool is not None and known.vm is None else None
        with self.store.begin() as tx:
            volume = known_volume(tx, tenant, name)
            if volume.size_bytes == size_bytes:
                return Started(operation=_growing(tx, volume), name=name, existing=True)
            larger, more = _grown(tx, volume, size_bytes)
            volume_within_quota(tx, more)
            check_pool_has(tx, volume.pool, more.size_bytes)
            with refusing_full(more, volume.host, "another "):
                tx.volumes.resize(volume.id, size_bytes, capacity)
            if volume.state == "new":
                self._note(tx, f"grow_volume {show_size(size_bytes)}", volume, "done")
                return Started(operation=None, name=name)
            vm = None if volume.vm is None else tx.vms.find_id(volume.vm)
            host = volume.host or (on if vm is None else vm.host)
            started = self._begin_growing(tx, volume, larger, vm, str(host))
        return self._submitted(started)

    def limit(self, tenant: str, name: str, max_bytes_per_s: int | None, max_iops: int | None) -> Started:
        """What its VM may read and write of it in a second, from now on, also while that runs. None: as it is; 0: any.

        :raises InvalidInput: ``volume.limits_invalid``; :raises NotFound: ``volume.unknown``
        :raises Conflict: ``volume.lost``, ``volume.being_deleted``, ``vm.busy``"""
        with self.store.begin() as tx:
            volume = known_volume(tx, tenant, name)
            after = replace(
                volume,
                max_bytes_per_s=volume.max_bytes_per_s if max_bytes_per_s is None else max_bytes_per_s or None,
                max_iops=volume.max_iops if max_iops is None else max_iops or None,
            )
            check_limits(after.limits)
            if after == volume:
                return Started(operation=None, name=name, existing=True)
            vm = None if volume.vm is None else tx.vms.find_id(volume.vm)
            if vm is None:
                check_free(tx, volume)
            else:
                check_may_change(vm)
                check_settled(tx, vm)
            tx.volumes.limit(volume.id, after.max_bytes_per_s, after.max_iops)
            if vm is None:
                self._note(tx, "limit_volume", volume, "done")
                return Started(operation=None, name=name)
            limited_vm = replace(vm, spec=limited(vm.spec, (after,)))
            started = self._begin(tx, "limit_volume", limited_vm, {"before": volume.fields()}, volume)
        return self._submitted(started)

    def _begin_growing(self, tx: Transaction, volume: Volume, larger: Volume, vm: Vm | None, host: str) -> Started:
        clock, ids = self.planner.clock, self.planner.ids
        operation = new_operation("grow_volume", volume if vm is None else vm, clock=clock, ids=ids)
        if vm is not None:
            check_settled(tx, vm)
            tx.vms.update(held_by(operation, vm))
        inputs: dict[str, object] = {
            "volume_id": volume.id, "file": volume.file, "had_by": volume.vm, "size": larger.size_bytes,
            "size_before": volume.size_bytes,
        }  # fmt: skip
        record(tx, operation, host=host, inputs=inputs, said=f"{volume.name} {show_size(larger.size_bytes)}")
        return Started(operation=operation.id, name=volume.name)

    def _begin(self, tx: Transaction, kind: str, vm: Vm, more: dict[str, object], volume: Volume) -> Started:
        operation = new_operation(kind, vm, clock=self.planner.clock, ids=self.planner.ids)
        tx.vms.update(held_by(operation, vm))
        inputs: dict[str, object] = {"vm": vm.spec.name, **undo_inputs(vm), **more}
        record(tx, operation, host=vm.host, inputs=inputs, said=volume.name)
        return Started(operation=operation.id, name=volume.name)

    def _submitted(self, started: Started) -> Started:
        if started.operation is not None:
            self.engine.submit(started.operation)
        return started

    def _note(self, tx: Transaction, action: str, volume: Volume, outcome: str) -> None:
        tx.audit.append(
            at=self.planner.clock.now(), actor=actor(), action=action, subject=volume.full_name, outcome=outcome
        )


def check_not_kept(tx: Transaction, tenant: str, host: str | None) -> None:
    keeper = None if host is None else kept_from(tx.hosts.get(host).labels, tenant)
    if keeper is not None:
        raise NoCapacity(
            "host.kept", f"host {host} is kept for tenant {keeper}", hint="'vgpuctl host list -o wide' has the labels"
        )


def _grown(tx: Transaction, volume: Volume, size_bytes: int) -> tuple[Volume, Volume]:
    """As it will be, and a volume of what comes on top.

    :raises InvalidInput: ``volume.shrinks``; :raises Conflict: ``volume.busy``, ``volume.lost``"""
    if size_bytes < volume.size_bytes:
        raise InvalidInput(
            "volume.shrinks",
            f"volume {volume.name} has {show_size(volume.size_bytes)}, and a volume never shrinks",
            hint="its end may hold what its guest wrote: make a smaller one, copy what you need in the guest",
        )
    if volume.state in {"lost", "deleting", "copying"}:
        check_free(tx, replace(volume, vm=None))
    check_untouched(tx, volume)
    check_not_read(tx, volume)
    return replace(volume, size_bytes=size_bytes), replace(volume, size_bytes=size_bytes - volume.size_bytes)


def _check_no_snapshots(tx: Transaction, volume: Volume) -> None:
    """:raises Conflict: ``volume.has_snapshots``"""
    for snapshot in tx.volumes.snapshots(volume.id):
        short = snapshot.name.rpartition("/")[2]
        hint = f"'vgpuctl volume snapshot delete {volume.name} {short} --tenant {volume.tenant}' deletes one"
        raise Conflict("volume.has_snapshots", f"volume {volume.name} has snapshots", hint=hint)


def _is_same(existing: Volume, size_bytes: int, host: str | None, pool: str | None) -> bool:
    """As what is asked for now; None: anywhere."""
    same_place = host in {None, existing.host} and pool in {None, existing.pool or NO_POOL}
    return existing.size_bytes == size_bytes and same_place


def _has(existing: Volume, traits: VolumeTraits) -> bool:
    """Limits that nobody asks for may be any."""
    return traits.limits in {NO_LIMITS, existing.limits} and existing.encrypted == traits.encrypted


def _growing(tx: Transaction, volume: Volume) -> str | None:
    """The operation that makes it larger just now."""
    begun = tx.operations.of_subject(volume.vm or volume.id)
    growing = [item.id for item in begun if item.kind == "grow_volume" and item.state not in FINISHED]
    its = (number for number in growing if tx.operations.get(number).inputs.get("volume_id") == volume.id)
    return next(its, None)


def _info(tx: Transaction, volume: Volume) -> VolumeInfo:
    vm = None if volume.vm is None else tx.vms.find_id(volume.vm)
    readers = () if volume.vm is not None else tx.volumes.readers(volume.id)
    read_by = (tx.vms.find_id(reader.vm) for reader in readers if reader.vm is not None)
    names = tuple(sorted(reader.spec.name for reader in read_by if reader is not None))
    return VolumeInfo(volume=volume, vm=None if vm is None else vm.spec.name, read_by=names)
