# SPDX-License-Identifier: Apache-2.0
"""Driver bundles, and which drivers are locked."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import delete, insert, select, update

from orchestrator.core.drivers.bundle import DriverBundle
from orchestrator.core.drivers.lock import DriverLock
from orchestrator.store.statements import AnyRow, Statements
from orchestrator.store.tables import driver_bundles, driver_lock, observations

_BUNDLE: Final = TypeAdapter(DriverBundle)
_LOCK: Final = TypeAdapter(DriverLock)


class DriverBundles:
    """Files that drivers are installed from."""

    def __init__(self, connection: Statements) -> None:
        self._db = connection

    def add(self, bundle: DriverBundle) -> None:
        self._db.execute(insert(driver_bundles).values(asdict(bundle)))

    def find(self, sha256: str) -> DriverBundle | None:
        row = self._db.execute(select(driver_bundles).where(driver_bundles.c.sha256 == sha256)).one_or_none()
        return None if row is None else _bundle(row)

    def list(self) -> tuple[DriverBundle, ...]:
        """By kind and version, the newest of one version first."""
        bundles = map(_bundle, self._db.execute(select(driver_bundles)))
        return tuple(
            sorted(bundles, key=lambda bundle: (bundle.content.kind, bundle.content.version, -bundle.created_at))
        )

    def remove(self, sha256: str) -> None:
        """Gone already is fine."""
        self._db.execute(delete(driver_bundles).where(driver_bundles.c.sha256 == sha256))


class DriverLocks:
    """The drivers that the site means to have."""

    def __init__(self, connection: Statements) -> None:
        self._db = connection

    def get(self) -> DriverLock | None:
        """None: nothing was ever locked."""
        document = self._db.execute(select(driver_lock.c.document)).scalar_one_or_none()
        return None if document is None else _LOCK.validate_python(document)

    def put(self, lock: DriverLock) -> None:
        """In the place of the one that was there. All hosts are compared anew with what is wanted."""
        self._db.execute(update(observations).values(judged=None))
        self._db.execute(delete(driver_lock))
        self._db.execute(insert(driver_lock).values(id=1, document=asdict(lock)))


def _bundle(row: AnyRow) -> DriverBundle:
    return _BUNDLE.validate_python(row._asdict())
