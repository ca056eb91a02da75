# SPDX-License-Identifier: Apache-2.0
"""The small ports of a run: a clock that is the schedule's, ids from the seed, files that exist by name alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path

from orchestrator.core.drivers.bundle import DriverBundle, NewBundle
from orchestrator.core.errors import Bug
from orchestrator.core.operation import Watched
from orchestrator.ports.files import Seed, TakenFile
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction
from tests.simulated.schedule import Schedule

EPOCH_S = 1_800_000_000.0


class VirtualClock:
    """Implements ports.clock.Clock. ``skew`` is what somebody did to the wall clock of this process's machine."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.skew = 0.0

    def now(self) -> float:
        return EPOCH_S + self._schedule.time + self.skew

    def monotonic(self) -> float:
        return self._schedule.time

    def sleep(self, seconds: float) -> None:
        self._schedule.sleep(seconds)


class SeededIds:
    """Implements ports.clock.Ids."""

    def __init__(self, schedule: Schedule) -> None:
        self._random = schedule.random

    def new_uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


class InMemorySeeds:
    """Implements ports.files.SeedBuilder."""

    def build(self, wanted: Seed) -> bytes:
        return str(wanted).encode()


class InMemoryKeys:
    """Implements ports.files.HostKeys."""

    def put(self, _tx: Transaction, host: str, text: str) -> None:
        """Nothing is kept."""

    def remove(self, _tx: Transaction, host: str) -> None:
        """Nothing is kept."""


class SharedStore(Store):
    """The database as one process uses it: another process may come first at every transaction."""

    def __init__(self, store: Store, schedule: Schedule) -> None:
        self._store = store
        self._schedule = schedule

    @cached_property
    def site(self) -> str:
        return self._store.site

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        self._let_others()
        with self._store.begin() as tx:
            yield tx

    @contextmanager
    def claim(self) -> Iterator[Transaction]:
        self._let_others()
        with self._store.claim() as tx:
            yield tx

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        with self._store.read() as tx:
            yield tx

    def listen(self, operation_id: str, told: Callable[[Watched | None], None]) -> Callable[[], None]:
        return self._store.listen(operation_id, told)

    def appended(self) -> tuple[tuple[int, str], ...]:
        return self._store.appended()

    def _let_others(self) -> None:
        if self._schedule.current is not None:
            self._schedule.sleep(self._schedule.random.uniform(0.0001, 0.003))


class InMemoryBundles:
    """Implements ports.files.BundleFiles: what the database knows is there."""

    def take(self, wanted: NewBundle, now: float) -> AbstractContextManager[TakenFile[DriverBundle]]:
        raise Bug("test.no_files", "bundles are put into the database")

    def remove(self, sha256: str) -> None:
        """Nothing is kept."""

    def checked(self, sha256: str) -> Path:
        return Path(sha256)
