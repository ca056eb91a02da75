# SPDX-License-Identifier: Apache-2.0
"""Driver bundles, and which drivers are locked."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import Connection, delete, insert, select

from orchestrator.adapters.store.rows import driver_bundle_of, driver_lock_of
from orchestrator.adapters.store.tables import driver_bundles, driver_lock
from orchestrator.core.driver_bundle import DriverBundle
from orchestrator.core.driver_lock import DriverLock


class SqlDriverBundles:
    def __init__(self, connection: Connection) -> None:
        self._db = connection

    def add(self, bundle: DriverBundle) -> None:
        self._db.execute(insert(driver_bundles).values(asdict(bundle)))

    def find(self, sha256: str) -> DriverBundle | None:
        row = self._db.execute(select(driver_bundles).where(driver_bundles.c.sha256 == sha256)).one_or_none()
        return None if row is None else driver_bundle_of(row)

    def list(self) -> tuple[DriverBundle, ...]:
        """By kind and version, the newest of one version first."""
        found = map(driver_bundle_of, self._db.execute(select(driver_bundles)))
        return tuple(sorted(found, key=lambda one: (one.content.kind, one.content.version, -one.created_at)))

    def remove(self, sha256: str) -> None:
        self._db.execute(delete(driver_bundles).where(driver_bundles.c.sha256 == sha256))


class SqlDriverLocks:
    def __init__(self, connection: Connection) -> None:
        self._db = connection

    def get(self) -> DriverLock | None:
        """None: nothing was ever locked."""
        document = self._db.execute(select(driver_lock.c.document)).scalar_one_or_none()
        return None if document is None else driver_lock_of(document)

    def put(self, lock: DriverLock) -> None:
        """In the place of the one that was there."""
        self._db.execute(delete(driver_lock))
        self._db.execute(insert(driver_lock).values(id=1, document=asdict(lock)))
