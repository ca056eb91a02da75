# SPDX-License-Identifier: Apache-2.0
"""Driver bundles, which drivers are locked, and rolling upgrades of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import delete, insert, select, update

from orchestrator.core.drivers.bundle import DriverBundle
from orchestrator.core.drivers.lock import DriverLock
from orchestrator.core.drivers.upgrade import DriverUpgrade, is_over
from orchestrator.store.events import Events
from orchestrator.store.statements import AnyRow, Precompiled, Statements
from orchestrator.store.tables import driver_bundles, driver_lock, driver_upgrades, observations

_BUNDLE: Final = TypeAdapter(DriverBundle)
_LOCK: Final = TypeAdapter(DriverLock)
_UPGRADE: Final = TypeAdapter(DriverUpgrade)
_ACTIVE: Final = Precompiled(select(driver_upgrades.c.id).where(driver_upgrades.c.active).limit(1))


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


class DriverUpgrades:
    """Rolling upgrades of drivers."""

    def __init__(self, connection: Statements, events: Events) -> None:
        self._db = connection
        self._events = events

    def add(self, upgrade: DriverUpgrade) -> None:
        self._db.execute(insert(driver_upgrades).values({**_values(upgrade), "id": upgrade.id}))
        self._events.note("driver_upgrade", upgrade.version, "created", subject=upgrade.id, state=upgrade.state)

    def put(self, upgrade: DriverUpgrade) -> None:
        """In the place of the one with its id."""
        before = self.newest()
        if before is not None and before.id == upgrade.id:
            self._note_changes(before, upgrade)
        self._db.execute(update(driver_upgrades).where(driver_upgrades.c.id == upgrade.id).values(_values(upgrade)))

    def _note_changes(self, before: DriverUpgrade, upgrade: DriverUpgrade) -> None:
        its = {"subject": upgrade.id, "state": upgrade.state}
        if before.state != upgrade.state:
            self._events.note("driver_upgrade", upgrade.version, "state", **its)
        phases = {host.host: host.phase for host in before.hosts}
        for host in upgrade.hosts:
            if phases.get(host.host) != host.phase:
                self._events.note("driver_upgrade", upgrade.version, "host", **its, host=host.host, phase=host.phase)

    def newest(self) -> DriverUpgrade | None:
        """The one that began last."""
        newest = select(driver_upgrades.c.document).order_by(driver_upgrades.c.created_at.desc()).limit(1)
        document = self._db.execute(newest).scalar_one_or_none()
        return None if document is None else _UPGRADE.validate_python(document)

    def is_active(self) -> bool:
        """Whether one is not over."""
        return self._db.execute(_ACTIVE).first() is not None


def _bundle(row: AnyRow) -> DriverBundle:
    return _BUNDLE.validate_python(row._asdict())


def _values(upgrade: DriverUpgrade) -> dict[str, object]:
    return {"created_at": upgrade.created_at, "active": not is_over(upgrade), "document": asdict(upgrade)}
