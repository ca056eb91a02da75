# SPDX-License-Identifier: Apache-2.0
"""Which drivers the site means to have, and what is there instead."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.drivers.check import ComparedDriver, ComparedGuest, guest_row, host_rows, tool_rows
from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.drivers.lock import DriverLock, check_lock, lock_of
from orchestrator.core.drivers.matrix import version_key
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.store.database import Store

NOTHING = DriverLock(site=())


@dataclass(frozen=True, kw_only=True)
class DriverLockService:
    """Show, apply, check. Nothing here touches a host."""

    store: Store
    clock: Clock

    def get(self) -> DriverLock:
        """Without versions when nothing was ever locked."""
        with self.store.read() as tx:
            return tx.driver_locks.get() or NOTHING

    def apply(self, lock: DriverLock) -> DriverLock:
        """From now on this is meant; what is otherwise becomes a finding.

        :raises InvalidInput: ``lock.invalid``: it cannot be, and nothing was changed
        """
        matrix = shipped_profiles().catalogue.driver_matrix
        with self.store.begin() as tx:
            check_lock(lock, matrix, tx.driver_bundles.list())
            if tx.driver_locks.get() != lock:
                tx.driver_locks.put(lock)
                tx.audit.append(
                    at=self.clock.now(), actor=actor(), action="lock_drivers", subject="driver lock", outcome="done"
                )
        return lock

    def check(
        self, host_driver: str | None = None, pattern: str = "*"
    ) -> tuple[tuple[str, tuple[ComparedDriver, ...]], ...]:
        """Every host and every VM, as last seen, against lock and tables; by host's name, its VMs after it.

        ``host_driver``: VMs are judged as if every host had this one, so that it shows who forbids an upgrade;
        ``pattern``: of the names of hosts, as a shell has it.

        :raises InvalidInput: ``driver.version_invalid``
        """
        if host_driver is not None:
            version_key(host_driver)
        matrix = shipped_profiles().catalogue.driver_matrix
        checked = []
        with self.store.read() as tx:
            lock = tx.driver_locks.get() or NOTHING
            drivers = {image.name: image.guest_driver for image in tx.images.list()}
            vms: dict[str | None, list[Vm]] = {}
            for vm in tx.vms.list():
                vms.setdefault(vm.host, []).append(vm)
            seen = {record.vm: record.facts for record in tx.guests.list()}
            for host in (host for host in tx.hosts.list() if fnmatchcase(host.name, pattern)):
                meant, snapshot = lock_of(lock, host.labels), tx.hosts.snapshot(host.name)
                rows = [*host_rows(host.name, meant, snapshot, matrix)]
                observed = host_driver or (None if snapshot is None else snapshot.driver_version)
                for vm in vms.get(host.name, ()):
                    guest = ComparedGuest(name=vm.full_name, driver=drivers.get(vm.spec.image))
                    rows.append(guest_row(guest, meant, observed, matrix))
                    rows += tool_rows(vm.full_name, seen.get(vm.id, GuestFacts()), meant, matrix)
                checked.append((host.name, tuple(rows)))
        return tuple(checked)
