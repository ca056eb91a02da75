# SPDX-License-Identifier: Apache-2.0
"""Which drivers the site means to have, and what is there instead."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final, NamedTuple

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.drivers.check import (
    ComparedDriver,
    ComparedGuest,
    Verdict,
    guest_row,
    host_rows,
    tool_rows,
)
from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.drivers.lock import DriverLock, HostLock, check_lock, lock_of
from orchestrator.core.drivers.matrix import version_key
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

NOTHING = DriverLock(site=())
EVERY_HOST: Final = "*"
Compared = tuple[tuple[str, ...], ComparedDriver]
"""The name of a host and the row's place among those of it, which is its key; the row."""
_AT_ONCE: Final = 16
"""Hosts that are read together."""


class _Seen(NamedTuple):
    """What a host's snapshot of that digest came to against that lock."""

    digest: str | None
    meant: HostLock
    driver: str | None
    rows: tuple[ComparedDriver, ...]


@dataclass(frozen=True, kw_only=True)
class DriverLockService:
    """Show, apply, check. Nothing here touches a host."""

    store: Store
    clock: Clock
    _seen: dict[str, _Seen] = field(default_factory=dict, repr=False, compare=False)
    """By host."""

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
        self, host_driver: str | None = None, pattern: str = EVERY_HOST, verdict: Verdict | None = None,
        *, after: tuple[str, ...] | None = None, most: int | None = None,
    ) -> list[Compared]:  # fmt: skip
        """Hosts and VMs, as last seen, against lock and tables; by host's name, its VMs after it: ``most`` of those
        behind ``after`` that compare so. Only hosts of these are compared.

        ``host_driver``: VMs are judged as if every host had this one, so that it shows who forbids an upgrade;
        ``pattern``: of the names of hosts, as a shell has it.

        :raises InvalidInput: ``driver.version_invalid``; :raises NotFound: ``host.unknown``: none is called so
        """
        if host_driver is not None:
            version_key(host_driver)
        compared: list[Compared] = []
        with self.store.read() as tx:
            every = tx.hosts.names()
            names = sorted(name for name in every if fnmatchcase(name, pattern))
            if not names and pattern != EVERY_HOST:
                tx.hosts.get(pattern)
            names = names[bisect_left(names, after[0]) if after else 0 :]
            comparing = _Comparing(tx, self._seen, host_driver)
            for at in range(0, len(names), _AT_ONCE):
                rows = comparing.rows(names[at : at + _AT_ONCE])
                picked = (row for row in rows if verdict in {None, row[1].verdict} and (not after or row[0] > after))
                compared += islice(picked, None if most is None else most - len(compared))
                if len(compared) == most:
                    break
            for gone in self._seen.keys() - set(every):
                self._seen.pop(gone, None)  # another thread may be at it, too
        return compared


class _Comparing:
    """With the lock, in one transaction."""

    def __init__(self, tx: Transaction, seen: dict[str, _Seen], host_driver: str | None) -> None:
        self._tx, self._seen, self._host_driver = tx, seen, host_driver
        self._lock = tx.driver_locks.get() or NOTHING
        self._drivers = {image.name: image.guest_driver for image in tx.images.list()}
        self._matrix = shipped_profiles().catalogue.driver_matrix

    def rows(self, names: Sequence[str]) -> Iterator[Compared]:
        """Of these hosts and their VMs."""
        facts, vms = self._tx.guests.facts(names), dict[str, list[Vm]]()
        labels, digests = self._tx.hosts.labels(names), self._tx.hosts.digests(names)
        for vm in self._tx.vms.on_hosts(names):
            vms.setdefault(vm.host, []).append(vm)
        for name in names:
            meant = lock_of(self._lock, labels[name])
            seen = self._of_host(name, digests.get(name), meant)
            observed, rows = self._host_driver or seen.driver, [*seen.rows]
            for vm in vms.get(name, ()):
                guest = ComparedGuest(name=vm.full_name, driver=self._drivers.get(vm.spec.image))
                rows.append(guest_row(guest, meant, observed, self._matrix))
                rows += tool_rows(vm.full_name, facts.get(vm.id, GuestFacts()), meant, self._matrix)
            yield from (((name, f"{number:06}"), row) for number, row in enumerate(rows))

    def _of_host(self, name: str, digest: str | None, meant: HostLock) -> _Seen:
        """Kept, as a snapshot takes longer to read than all else."""
        seen = self._seen.get(name)
        if seen is None or (seen.digest, seen.meant) != (digest, meant):
            snapshot = self._tx.hosts.snapshot(name)
            driver = None if snapshot is None else snapshot.driver_version
            seen = _Seen(digest, meant, driver, tuple(host_rows(name, meant, snapshot, self._matrix)))
            self._seen[name] = seen
        return seen
