# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from sqlalchemy import select, update

from orchestrator.core.drivers.bundle import BundleContent, DriverBundle
from orchestrator.core.drivers.lock import DriverLock, Locked, LockGroup
from orchestrator.core.maintenance.maintenance import HostTurn, Maintenance
from orchestrator.core.vms.lease import TenantPolicy
from orchestrator.store.database import Store
from orchestrator.store.tables import maintenances, policies
from tests.contract.store.test_store import IMAGE
from tests.fakes.new_database import engine_beside


def _bundle(digit: str, version: str = "580.65.05") -> DriverBundle:
    content = BundleContent(kind="vgpu_host", package="p", version=version, architecture="x86_64", format="run")
    return DriverBundle(
        sha256=digit * 64, content=content, size_bytes=2**33, key_id="0" * 16, comment="é", created_at=1.5
    )


def test_bundles_come_back_as_they_were_put_and_go(store: Store) -> None:
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


def test_there_is_one_lock_and_its_groups_keep_their_order(store: Store) -> None:
    with store.read() as tx:
        assert tx.driver_locks.get() is None
    groups = tuple(LockGroup(name=name, selector=name, locked=()) for name in ("z", "a", "m"))
    wanted = DriverLock(site=(Locked(component="dcgm", version="3.3.9", sha256="c" * 64),), groups=groups)
    with store.begin() as tx:
        tx.driver_locks.put(DriverLock(site=()))
        tx.driver_locks.put(wanted)
    with store.read() as tx:
        assert tx.driver_locks.get() == wanted


def test_an_image_keeps_what_was_said_of_its_driver(store: Store) -> None:
    said = replace(IMAGE, guest_driver="580.65.06")
    with store.begin() as tx:
        assert tx.images.get(IMAGE.name).guest_driver is None
        tx.images.update(said)
    with store.read() as tx:
        assert tx.images.list() == (said,)


def test_tenants_whose_vms_may_not_stop_at_any_time_are_known_by_their_policies(store: Store) -> None:
    with store.begin() as tx:
        for name, leave in (("red", "22:00-05:00"), ("blue", "wait"), ("green", "stop")):
            tx.policies.put(name, TenantPolicy(maintenance=leave))
        tx.policies.put("older", TenantPolicy())
    with store.read() as tx:
        assert tx.policies.maintenance() == {"red": "22:00-05:00", "blue": "wait"}
        assert tx.policies.get("red").maintenance == "22:00-05:00"


def test_policies_and_upgrades_that_were_stored_before_tenants_had_a_say_are_read(store: Store, url: str) -> None:
    before = Maintenance(
        id="u", act="upgrade",
        version="580.95.02", policy="wait", max_unavailable=2, canary=1, failure_budget=1, created_at=1.0,
        hosts=(HostTurn(host="lab1"),),
    )  # fmt: skip
    with store.begin() as tx:
        tx.maintenances.add(before)
        tx.policies.put("older", TenantPolicy(preempt=True))
    engine = engine_beside(url)
    for table, member in ((maintenances, "overridden"), (maintenances, "reboot"), (policies, "maintenance")):
        with engine.begin() as connection:
            document = dict(connection.execute(select(table.c.document)).scalar_one())
            del document[member]
            connection.execute(update(table).values(document=document))
    engine.dispose()
    with store.read() as tx:
        assert tx.maintenances.newest() == before
        assert tx.policies.get("older") == TenantPolicy(preempt=True)
        assert tx.policies.maintenance() == {}
