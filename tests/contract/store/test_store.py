# SPDX-License-Identifier: Apache-2.0
"""What every database must do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.errors import Bug, Fatal, NotFound, error_to_dict
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.host import Host
from orchestrator.core.operation import Operation, StepRecord
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT, Tenant
from orchestrator.core.vms.claim import Claim, DeviceClaim, HostCapacity
from orchestrator.core.vms.image import Image
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.vm import Vm, VmSpec
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.tables import metadata
from orchestrator.store.transaction import Transaction
from tests.fakes.cleaned import CLEANED
from tests.fakes.new_database import engine_beside
from tests.postgres.cluster import Cluster

KEY = b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ="
OTHER_KEY = b"uUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ="
AMPLE = HostCapacity(vcpus=10_000, memory_mib=10_000_000, disk_bytes=10**15)
GPU = "0000:41:00.0"


IMAGE = Image(name="guest", sha256="a" * 64, format="qcow2", size_bytes=1, virtual_size_bytes=2, created_at=0.5)


def host(name: str = "h1") -> Host:
    return Host(
        name=name,
        address=f"{name}.test",
        port=22,
        provisioning_user="root",
        host_key="ssh-ed25519 AAAA",
        state="ready",
        state_reason=None,
        cordoned=False,
        machine_id=None,
        epoch=1,
        managed_gpus=(GPU, "0000:42:00.0"),
        last_seen_at=None,
    )


def vm(name: str, number: int = 0) -> Vm:
    spec = VmSpec(
        name=name,
        tenant="default",
        profile="p",
        image="guest",
        vcpus=1,
        memory_mib=1,
        disk_bytes=1,
        network="default",
        ssh_keys=("ssh-ed25519 AAAA x",),
    )
    device = Device(kind="mdev", gpu=GPU, parent=GPU, type_name="GRID T4-1Q", name="u")
    return Vm(
        id=f"{number:08d}-{name}",
        spec=spec,
        state="creating",
        host="h1",
        devices=(device,),
        addresses=("10.0.0.2",),
        operation=None,
        created_at=1.25,
    )


def claim(of: Vm, *slots: int, cut: str = "time_sliced:1024", function: str | None = None, vcpus: int = 1) -> Claim:
    device = DeviceClaim(gpu=GPU, cut=cut, slots=slots, function=function)
    return Claim(vm=of.id, host="h1", devices=(device,), vcpus=vcpus, memory_mib=1, disk_bytes=1)


def put(store: Store, of: Vm, wanted: Claim, capacity: HostCapacity = AMPLE) -> None:
    with store.begin() as tx:
        tx.vms.add(of)
        tx.claims.take(wanted, capacity)


def operation(name: str = "op") -> Operation:
    step = StepRecord(name="claim.1", title="claim", state="pending")
    return Operation(
        id=name,
        kind="create_vm",
        subject="vm",
        subject_name="default/vm",
        tenant="default",
        state="queued",
        steps=(step, replace(step, name="b.1")),
        attempt=0,
        created_at=2.0,
    )


def test_what_was_stored_is_what_is_read(store: Store) -> None:
    one = vm("a")
    put(store, one, claim(one, 1, 2, function="0000:41:00.4"))
    with store.read() as tx:
        assert tx.hosts.get("h1") == host()
        assert tx.vms.find("default", "a") == tx.vms.find_id(one.id) == one
        assert tx.claims.find(one.id) == claim(one, 1, 2, function="0000:41:00.4")
        assert tx.claims.of_host("h1") == (claim(one, 1, 2, function="0000:41:00.4"),)
        assert tx.images.list() == (IMAGE,)
        assert [tx.vm_pages.ids(*whose) for whose in (("default", "p"), ("default", "q"), ("red", "p"))] == [
            (one.id,),
            (),
            (),
        ]


def test_a_slot_has_one_owner(store: Store) -> None:
    put(store, vm("a"), claim(vm("a"), 0, 1))
    with pytest.raises(ClaimLost):
        put(store, vm("b"), claim(vm("b"), 1))
    with store.read() as tx:
        assert tx.vms.find("default", "b") is None


def test_a_gpu_has_one_cut_until_its_last_claim_is_gone(store: Store) -> None:
    put(store, vm("a"), claim(vm("a"), 0))
    with pytest.raises(ClaimLost):
        put(store, vm("b"), claim(vm("b"), 1, cut="time_sliced:2048"))
    with store.begin() as tx:
        tx.vms.remove(vm("a").id, CLEANED)
    put(store, vm("b"), claim(vm("b"), 1, cut="time_sliced:2048"))


@pytest.mark.fault("F40")
def test_a_virtual_function_has_one_owner(store: Store) -> None:
    put(store, vm("a"), claim(vm("a"), 0, function="0000:41:00.4"))
    with pytest.raises(ClaimLost):
        put(store, vm("b"), claim(vm("b"), 1, function="0000:41:00.4"))
    put(store, vm("b"), claim(vm("b"), 1, function="0000:41:00.5"))
    with store.begin() as tx, pytest.raises(ClaimLost):
        tx.claims.move_function(vm("b").id, 0, "0000:41:00.4")


def test_only_managed_gpus_can_be_claimed(store: Store) -> None:
    device = DeviceClaim(gpu="0000:99:00.0", cut="c", slots=(0,), function=None)
    wanted = replace(claim(vm("a"), 0), devices=(device,))
    with pytest.raises(ClaimLost):
        put(store, vm("a"), wanted)


def test_cpu_memory_and_disk_are_not_promised_twice(store: Store) -> None:
    few = HostCapacity(vcpus=3, memory_mib=100, disk_bytes=100)
    put(store, vm("a"), claim(vm("a"), 0, vcpus=2), few)
    with pytest.raises(ClaimLost):
        put(store, vm("b"), claim(vm("b"), 1, vcpus=2), few)
    put(store, vm("b"), claim(vm("b"), 1, vcpus=1), few)


def test_of_many_who_want_the_last_slots_each_slot_goes_to_one(store: Store) -> None:
    lost = threading.Semaphore(0)

    def race(number: int) -> int:
        of = vm("racer-" + str(number), number)
        try:
            put(store, of, claim(of, number % 5))
        except ClaimLost:
            lost.release()
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(race, range(40))) == 5
    with store.read() as tx:
        assert sorted(slot for one in tx.claims.of_host("h1") for slot in one.devices[0].slots) == [0, 1, 2, 3, 4]


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.booleans(), st.sets(st.integers(0, 7), min_size=1, max_size=3)), max_size=12
    )
)
def test_claims_never_overlap_whatever_is_taken_and_given_back(steps: list[tuple[int, bool, set[int]]]) -> None:
    model: dict[int, set[int]] = {}
    store = Store("sqlite://", key=KEY, new_site="s")
    with store.begin() as tx:
        tx.hosts.add(host())
        tx.images.add(IMAGE)
    for number, give_back, slots in steps:
        of = vm(f"vm-{number}", number)
        if give_back or number in model:
            with store.begin() as tx:
                tx.vms.remove(of.id, CLEANED)
            model.pop(number, None)
            continue
        taken = set[int]().union(*model.values())
        try:
            put(store, of, claim(of, *sorted(slots)))
            assert not taken & slots
            model[number] = slots
        except ClaimLost:
            assert taken & slots
    store.close()


def test_an_operation_and_its_steps_are_a_journal_with_growing_revisions(store: Store) -> None:
    with store.begin() as tx:
        tx.operations.add(operation(), host="h1", inputs={"gpus": "all"})
    with store.read() as tx:
        job = tx.operations.get("op")
    assert (job.operation, job.inputs, job.host, job.cancelled) == (operation(), {"gpus": "all"}, "h1", False)
    seen = [job.revision]
    moved = replace(operation().steps[1], state="running", started_at=3.0)

    def changes() -> Iterator[Callable[[Transaction], None]]:
        yield lambda tx: tx.operations.put_step("op", 1, moved)
        yield lambda tx: tx.operations.update(replace(operation(), state="undoing", error=error_to_dict(Bug("b", "m"))))
        yield lambda tx: tx.operations.request_cancel("op")

    for change in changes():
        with store.begin() as tx:
            change(tx)
            seen.append(tx.operations.get("op").revision)
    assert seen == sorted(set(seen))
    with store.read() as tx:
        job = tx.operations.get("op")
    assert job.operation.steps[1] == moved
    assert job.cancelled
    assert job.operation.error == error_to_dict(Bug("b", "m"))


def test_finished_operations_are_not_listed_as_unfinished(store: Store) -> None:
    with store.begin() as tx:
        tx.operations.add(operation("a"), host="h1", inputs={})
        tx.operations.add(replace(operation("b"), state="done"), host="h1", inputs={})
    with store.read() as tx:
        assert [one.id for one in tx.operations.list(unfinished=True)] == ["a"]


def test_an_operation_that_waits_for_others_is_due_once_they_have_ended_in_whatever_way(store: Store) -> None:
    def due() -> list[str]:
        with store.read() as tx:
            alone = {one.operation for one in tx.operations.due(["waiting", "unknown"])}
            found = [one.operation for one in tx.operations.due()]
            assert alone == {"waiting"} & set(found)
            assert tx.operations.due([]) == ()
            assert tx.operations.unfinished() == len(tx.operations.list(unfinished=True))
            return sorted(found)

    others = [replace(operation(name), subject=name) for name in ("one", "two")]
    with store.begin() as tx:
        for one in others:
            tx.operations.add(one, host="h1", inputs={})
        waiting = replace(operation("waiting"), subject="waiting")
        tx.operations.add(waiting, host="h1", inputs={}, waits_for=("one", "two"))
        assert tx.operations.get("waiting").waits_for == ("one", "two")
    assert due() == ["one", "two"]
    with store.begin() as tx:
        tx.operations.update(replace(others[0], state="done"))
    assert due() == ["two"]
    with store.begin() as tx:
        tx.operations.update(replace(others[1], state="stuck"))
    assert due() == ["waiting"]


def test_a_block_that_raises_leaves_nothing(store: Store) -> None:
    def begun_and_broken() -> None:
        with store.begin() as tx:
            tx.networks.add(Network(name="n", subnet="10.88.0.0/24"))
            raise KeyError

    with pytest.raises(KeyError):
        begun_and_broken()
    with store.read() as tx:
        assert tx.networks.list() == ()


def test_unknown_names_are_not_found(store: Store) -> None:
    with store.read() as tx:
        for look in (tx.hosts.get, tx.images.get, tx.networks.get, tx.operations.get):
            with pytest.raises(NotFound):
                look("nobody")


def test_secrets_need_the_key_they_were_written_with(store: Store, url: str) -> None:
    with store.begin() as tx:
        tx.secrets.put("s", "pässword")
    with store.read() as tx:
        assert tx.secrets.get("s") == "pässword"
        with pytest.raises(Bug):
            tx.secrets.get("other")
    stranger = Store(url, key=OTHER_KEY, new_site="x")
    with stranger.read() as tx, pytest.raises(Fatal) as caught:
        tx.secrets.get("s")
    assert caught.value.code == "secret.unreadable"
    stranger.close()


def test_a_database_that_nobody_has_used_yet_may_become_of_another_site(url: str) -> None:
    store = Store(url, key=KEY, new_site="site")
    with store.begin() as tx:
        tx.tenants.add(Tenant(name=DEFAULT_TENANT, created_at=0))
    assert (store.rename_unused("other"), store.site) == (True, "other")
    again = Store(url, key=KEY, new_site="third")
    assert again.site == "other"
    again.close()
    with store.begin() as tx:
        tx.images.add(IMAGE)
    assert (store.rename_unused("third"), store.site) == (False, "other")
    store.close()


def test_the_site_is_drawn_once(store: Store, url: str) -> None:
    again = Store(url, key=KEY, new_site="site-2")
    assert again.site == store.site == "site"
    again.close()


def test_migrations_and_tables_say_the_same(url: str) -> None:
    Store(url, key=KEY, new_site="s").close()
    with engine_beside(url).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_sqlite_keeps_its_order_on_disk_and_checks_foreign_keys(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'd.sqlite'}", key=KEY, new_site="s")
    with store._connections.engine.connect() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert found == {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1}
    store.close()


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(Fatal) as caught:
        Store(f"sqlite:///{path}", key=KEY, new_site="s")
    assert caught.value.code == "store.damaged"


@pytest.mark.parametrize("way", [Store.begin, Store.read])
def test_a_connection_that_died_while_nobody_used_it_is_not_noticed(
    postgres: Cluster, way: Callable[[Store], AbstractContextManager[Transaction]]
) -> None:
    url = postgres.database()
    store = Store(url, key=KEY, new_site="site-1")
    with store.begin() as tx, store.read() as beside:
        tx.images.add(IMAGE)
        assert beside.images.list() == ()
    others = engine_beside(url)
    with others.begin() as connection:
        gone = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        connection.exec_driver_sql(f"{gone} AND datname = current_database()")
    others.dispose()
    with way(store) as tx:
        assert tx.images.list() == (IMAGE,)
    store.close()


def test_the_mode_that_a_gpu_was_found_in_is_learned_once_and_goes_with_its_card(store: Store) -> None:
    other = "0000:43:00.0"
    with store.begin() as tx:
        tx.cards.learn_mig_modes("h1", {GPU: False, "0000:99:00.0": True})
        tx.cards.learn_mig_modes("h1", {GPU: True})
        assert tx.cards.mig_found("h1") == {GPU: False}
        tx.cards.put("h1", (), {GPU: other})
        assert tx.cards.mig_found("h1") == {other: False}
