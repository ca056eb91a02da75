# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from orchestrator.adapters.store.database import SqlStore
from orchestrator.core.driver_bundle import BundleContent, DriverBundle
from orchestrator.core.driver_lock import DriverLock, Locked, LockGroup
from tests.contract.store.test_store import IMAGE


def _bundle(digit: str, version: str = "580.65.05") -> DriverBundle:
    content = BundleContent(kind="vgpu_host", package="p", version=version, architecture="x86_64", format="run")
    return DriverBundle(
        sha256=digit * 64, content=content, size_bytes=2**33, key_id="0" * 16, comment="é", created_at=1.5
    )


def test_bundles_come_back_as_they_were_put_and_go(store: SqlStore) -> None:
    newer, older = _bundle("a", "580.82.02"), _bundle("b")
    with store.begin() as tx:
        for bundle in (newer, older):
            tx.driver_bundles.add(bundle)
    with store.begin() as tx:
        assert tx.driver_bundles.list() == (older, newer)
        assert tx.driver_bundles.find("b" * 64) == older
        tx.driver_bundles.remove("b" * 64)
        tx.driver_bundles.remove("b" * 64)
    with store.read() as tx:
        assert (tx.driver_bundles.list(), tx.driver_bundles.find("b" * 64)) == ((newer,), None)


def test_there_is_one_lock_and_its_groups_keep_their_order(store: SqlStore) -> None:
    with store.read() as tx:
        assert tx.driver_locks.get() is None
    groups = tuple(LockGroup(name=name, selector=name, locked=()) for name in ("z", "a", "m"))
    wanted = DriverLock(site=(Locked(component="dcgm", version="3.3.9", sha256="c" * 64),), groups=groups)
    with store.begin() as tx:
        tx.driver_locks.put(DriverLock(site=()))
        tx.driver_locks.put(wanted)
    with store.read() as tx:
        assert tx.driver_locks.get() == wanted


def test_an_image_keeps_what_was_said_of_its_driver(store: SqlStore) -> None:
    said = replace(IMAGE, guest_driver="580.65.06")
    with store.begin() as tx:
        assert tx.images.get(IMAGE.name).guest_driver is None
        tx.images.update(said)
    with store.read() as tx:
        assert tx.images.list() == (said,)
