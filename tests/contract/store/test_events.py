# SPDX-License-Identifier: Apache-2.0
"""What happens is written with the change that makes it happen, and read in order by everybody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.diff.finding import Finding, host_finding
from orchestrator.core.event import EventFilter, EventIds, FleetChange
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.tenancy.tenant import ApiToken, Member, Tenant
from orchestrator.core.vms.network import Network
from orchestrator.services.events import EventService
from orchestrator.store.database import Store
from orchestrator.store.events import RECENT_FOLD
from orchestrator.store.transaction import Transaction
from tests.contract.store.test_fleet_changes import SNAPSHOT
from tests.contract.store.test_store import GPU, KEY, host, vm
from tests.fakes.cleaned import CLEANED
from tests.postgres.cluster import Cluster

EVERYTHING = EventFilter()
LIMIT_S = 60


def read(store: Store, after: int = 0) -> list[FleetChange]:
    with store.begin() as tx:
        return [event.change for event in tx.events.new(after, most=1000)]


def happened(store: Store, *changes: Callable[[Transaction], object]) -> list[FleetChange]:
    """What was written by transactions that make these changes."""
    with store.begin() as tx:
        after = tx.events.newest()
    for change in changes:
        with store.begin() as tx:
            change(tx)
    return read(store, after)


def service(store: Store) -> EventService:
    return EventService(store=store, ids=EventIds(KEY))


def forget_all(store: Store) -> None:
    with store.begin() as tx:
        tx.events.prune(kept=0, before=0.0, recent=1e12, most=1000)


def note(tx: Transaction, name: str) -> None:
    tx.events.note("vm", name, "state", tenant="red")


def written(store: Store, name: str, state: str = "", *, crash: bool) -> None:
    """:raises KeyError: the transaction was rolled back"""
    with store.claim() as tx:
        tx.events.note("vm", name, "state", state=state)
        if crash:
            raise KeyError


def test_the_life_of_a_vm_is_told_in_the_order_in_which_it_went(store: Store) -> None:
    made = replace(vm("train"), operation="op")
    told = happened(
        store,
        lambda tx: tx.vms.add(made),
        lambda tx: tx.vms.set_state(made.id, "running", operation="op"),
        lambda tx: tx.vms.set_state(made.id, "running", operation="op"),
        lambda tx: tx.vms.set_state(made.id, "stopped", operation="of another"),
        lambda tx: tx.vms.rename(made.id, "other"),
        lambda tx: tx.vms.deallocate(made.id, "lease_over", ()),
        lambda tx: tx.vms.remove(made.id, CLEANED),
        lambda tx: tx.vms.remove(made.id, CLEANED),
    )
    assert [(change.change, change.name, change.state) for change in told] == [
        ("created", "train", "creating"),
        ("state", "train", "running"),
        ("renamed", "other", "running"),
        ("deallocated", "other", "stopped"),
        ("removed", "other", "stopped"),
    ]
    assert {(change.noun, change.tenant, change.host, change.subject) for change in told} == {
        ("vm", "default", "h1", made.id)
    }


def fault(code: str, subject: str) -> Finding:
    return host_finding(host(), code, "error", ("a GPU without faults", "Xid 79"), "reset it", subject)


def test_a_fault_of_a_gpu_is_told_as_finding_and_as_health_and_its_end_too(store: Store) -> None:
    found = fault("gpu.fault", f"GPU {GPU}")
    told = happened(
        store,
        lambda tx: tx.findings.record("h1", [found], at=1.0, complete=True),
        lambda tx: tx.findings.record("h1", [found], at=2.0, complete=True),
        lambda tx: tx.findings.record("h1", [], at=3.0, complete=True),
    )
    assert [(change.noun, change.name, change.change) for change in told] == [
        ("finding", f"GPU {GPU}", "opened"), ("gpu", f"h1/{GPU}", "fault"),
        ("finding", f"GPU {GPU}", "cleared"), ("gpu", f"h1/{GPU}", "well"),
    ]  # fmt: skip
    assert told[1].details == {"code": "gpu.fault", "severity": "error"}


def test_a_tenant_is_told_that_the_gpu_of_its_vm_has_a_fault(store: Store) -> None:
    made = vm("train")
    found = replace(fault("vm.gpu_fault", "VM default/train"), vm=made.id)
    told = happened(
        store,
        lambda tx: tx.vms.add(made),
        lambda tx: tx.findings.record("h1", [found], at=1.0, complete=True),
        lambda tx: tx.findings.record("h1", [], at=2.0, complete=True),
    )
    assert [change.change for change in told if change.tenant == "default"] == ["created", "gpu_fault", "gpu_well"]


def test_hosts_tell_what_changes_of_them(store: Store) -> None:
    told = happened(
        store,
        lambda tx: tx.hosts.update(replace(host(), state="unreachable", state_reason="no answer")),
        lambda tx: tx.hosts.update(replace(host(), labels=(("rack", "3"),))),
        lambda tx: tx.hosts.update(replace(host(), cordoned=True)),
        lambda tx: tx.hosts.remove("h1"),
    )
    assert [(change.change, change.state) for change in told] == [
        ("state", "unreachable"), ("state", "ready"), ("changed", "ready"), ("cordoned", "ready"),
        ("changed", "ready"), ("removed", None),
    ]  # fmt: skip
    assert {change.tenant for change in told} == {None}


def test_an_observation_that_found_something_else_is_told(store: Store) -> None:
    told = happened(
        store,
        lambda tx: tx.hosts.put_snapshot("h1", SNAPSHOT, 1),
        lambda tx: tx.hosts.put_snapshot("h1", SNAPSHOT, 2),
        lambda tx: tx.hosts.put_snapshot("h1", replace(SNAPSHOT, vcpus=SNAPSHOT.vcpus + 1), 3),
    )
    assert [(change.noun, change.name, change.change) for change in told] == 2 * [("host", "h1", "observed")]


def test_a_tenant_is_told_when_nobody_can_say_how_its_vm_is(store: Store) -> None:
    told = happened(
        store,
        lambda tx: tx.vms.add(vm("train")),
        lambda tx: tx.hosts.update(replace(host(), state="unreachable")),
        lambda tx: tx.hosts.update(replace(host(), state="quarantined")),
        lambda tx: tx.hosts.update(host()),
    )
    assert [(change.name, change.change) for change in told if change.tenant == "default"] == [
        ("train", "created"), ("train", "unseen"), ("train", "seen"),
    ]  # fmt: skip


def test_what_is_shown_of_a_vm_and_changes_is_told_once(store: Store) -> None:
    made = replace(vm("train"), operation="op")
    labelled, later = replace(made.spec, labels=(("a", "b"),)), replace(made, lease_end=4e9)
    told = happened(
        store,
        lambda tx: tx.vms.add(made),
        lambda tx: tx.vms.set_state(made.id, made.state, operation="op", addresses=("198.51.100.9",)),
        lambda tx: tx.vms.set_state(made.id, made.state, operation="op", addresses=("198.51.100.9",)),
        lambda tx: tx.vms.set_spec(made.id, labelled),
        lambda tx: tx.vms.update(replace(later, spec=labelled, addresses=("198.51.100.9",))),
        lambda tx: tx.vms.update(replace(later, spec=labelled, addresses=("198.51.100.9",), operation="another")),
        lambda tx: tx.vms.set_state(made.id, made.state, operation="another", addresses=("198.51.100.9",)),
    )
    assert [change.change for change in told] == ["created", "changed", "changed", "changed"]


def test_changes_of_tenants_are_theirs_and_those_of_the_pool_the_pools(store: Store) -> None:
    told = happened(
        store,
        lambda tx: tx.tenants.add(Tenant(name="red", created_at=1.0)),
        lambda tx: tx.tenants.put_member(Member(tenant="red", subject="uid:1", role="tenant-user")),
        lambda tx: tx.tenants.put_member(Member(tenant="*", subject="uid:2", role="operator")),
        lambda tx: tx.quotas.put(Limit(tenant="red", resource="vms", amount=3)),
        lambda tx: tx.quotas.put(Limit(tenant="*", resource="vms", amount=3)),
        lambda tx: tx.networks.add(Network(name="red.lan", subnet="10.88.1.0/24")),
        lambda tx: tx.networks.add(Network(name="site", subnet="10.9.1.0/24", shared=True)),
    )
    assert [(change.noun, change.name, change.change, change.tenant) for change in told] == [
        ("tenant", "red", "created", "red"), ("tenant", "red", "members", "red"), ("tenant", "*", "members", None),
        ("quota", "red", "changed", "red"), ("quota", "*", "changed", None),
        ("network", "lan", "created", "red"), ("network", "site", "created", None),
    ]  # fmt: skip
    assert "uid" not in repr(told)


def test_what_is_rolled_back_never_happened(store: Store) -> None:
    with pytest.raises(KeyError):
        written(store, "never", crash=True)
    assert [change.name for change in happened(store, lambda tx: note(tx, "after"))] == ["after"]


def test_who_is_named_as_a_tenant_that_went_is_not_told_of_it(store: Store) -> None:
    def of_red() -> list[str]:
        page = service(store).page(0, 1000, EventFilter(tenants=frozenset({"red"})))
        return [event.change.change for event in page.events]

    happened(store, lambda tx: tx.tenants.add(Tenant(name="red", created_at=1.0)))
    assert of_red() == ["created"]
    happened(store, lambda tx: tx.tenants.remove("red"))
    happened(store, lambda tx: tx.tenants.add(Tenant(name="red", created_at=2.0)))
    assert of_red() == ["created"]
    assert [change.change for change in read(store) if change.noun == "tenant"] == ["created", "removed", "created"]


def test_the_oldest_go_when_there_are_too_many_and_when_they_are_too_old(store: Store) -> None:
    for name in "abcdef":
        happened(store, partial(note, name=name))
    with store.begin() as tx:
        last = tx.events.newest()
        assert tx.events.prune(kept=4, before=0.0, recent=1e12, most=100) == tx.events.pruned() == last - 4
    assert [change.name for change in read(store)] == ["c", "d", "e", "f"]
    with store.begin() as tx:
        assert tx.events.prune(kept=4, before=1e12, recent=1e12, most=3) == 3
        assert tx.events.pruned() == last - 1
        assert tx.events.prune(kept=4, before=1e12, recent=1e12, most=3) == 1
        assert tx.events.prune(kept=4, before=1e12, recent=1e12, most=3) == 0
        assert tx.events.newest() == tx.events.pruned() == last


def test_of_the_last_hour_ten_times_as_many_stay_so_that_nobody_pushes_out_what_others_have_not_read(
    store: Store,
) -> None:
    forget_all(store)
    happened(store, partial(note, name="others'"))
    many = 2 * RECENT_FOLD
    for number in range(many):
        happened(store, partial(note, name=f"{number}"))
    with store.begin() as tx:
        assert tx.events.prune(kept=many // RECENT_FOLD + 1, before=0.0, recent=0.0, most=100) == 0
        assert tx.events.prune(kept=many // RECENT_FOLD, before=0.0, recent=0.0, most=100) == 1
        assert tx.events.prune(kept=4, before=0.0, recent=1e12, most=100) == many - 4


@pytest.mark.parametrize("wrong", [0.0, 1e11])
def test_a_controllers_wrong_clock_takes_nothing_from_the_log_of_the_others(store: Store, wrong: float) -> None:
    """It is years behind, or ahead."""
    forget_all(store)
    for name, at in (("a", 1e9), ("b", 1e9 + 1), ("its", wrong), ("c", 1e9 + 2)):
        with store.begin() as tx:
            note(tx, name)
            tx.events.write(at)
    with store.begin() as tx:
        tx.events.prune(kept=100, before=1e9 + 1, recent=0.0, most=100)
    assert [change.name for change in read(store)] == ["b", "its", "c"]


def test_offerings_and_tokens_are_told_of_and_what_is_secret_is_not(store: Store) -> None:
    offering = shipped_profiles().resolve("t4-2q")
    token = ApiToken(
        id="0123456789ab", digest="d" * 64, tenant="red", role="tenant-user", made_by="uid:0", created_at=1.0,
        expires_at=None, revoked_at=None,
    )  # fmt: skip
    changes = happened(
        store,
        lambda tx: tx.offerings.put(offering),
        lambda tx: tx.offerings.put(offering),
        lambda tx: tx.offerings.remove(offering.name),
        lambda tx: tx.offerings.remove(offering.name),
        lambda tx: tx.tenants.add(Tenant(name="red", created_at=1.0)),
        lambda tx: tx.tokens.add(token),
        lambda tx: tx.tokens.add(replace(token, id="b" * 12, digest="e" * 64, tenant=EVERYWHERE)),
        *[lambda tx: tx.tokens.revoke(token.id, 2.0)] * 2,
    )
    of = [(change.noun, change.change, change.tenant) for change in changes if change.noun != "tenant"]
    assert of == [
        ("offering", "created", None), ("offering", "changed", None), ("offering", "removed", None),
        ("token", "created", "red"), ("token", "created", None), ("token", "revoked", "red"),
    ]  # fmt: skip
    assert token.digest not in str(changes)


def test_a_number_is_never_given_twice_though_all_that_were_there_are_gone(url: str, store: Store) -> None:
    happened(store, lambda tx: note(tx, "gone"))
    with store.begin() as tx:
        last = tx.events.newest()
        tx.events.prune(kept=10, before=1e12, recent=1e12, most=100)
    store.close()
    again = Store(url, key=KEY, new_site="site")
    with again.begin() as tx:
        note(tx, "next")
    with again.begin() as tx:
        assert [event.number > last for event in tx.events.new(0, most=10)] == [True]
    again.close()


def test_after_a_restore_no_number_is_one_that_somebody_has_seen(store: Store) -> None:
    happened(store, lambda tx: note(tx, "in the backup"))
    with store.begin() as tx:
        seen_before_the_restore = tx.events.newest() + 100_000
        tx.events.skip()
        assert tx.events.pruned() > seen_before_the_restore
    assert [change.name for change in happened(store, lambda tx: note(tx, "after"))] == ["after"]
    with store.begin() as tx:
        (event,) = tx.events.new(0, most=10)
        assert event.number > tx.events.pruned()


def test_a_number_that_is_committed_late_is_told_before_those_above_it(postgres: Cluster) -> None:
    """Two writers beside each other: the first draws its number, the second commits before it."""
    url = postgres.database()
    store, other = (Store(url, key=KEY, new_site="s") for _ in range(2))
    drawn, go_on = threading.Event(), threading.Event()

    def late() -> None:
        with store.claim() as tx:
            note(tx, "drew first")
            tx.events.write(1.0)
            drawn.set()
            assert go_on.wait(LIMIT_S)

    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(late)
        assert drawn.wait(LIMIT_S)
        with other.claim() as tx:
            note(tx, "drew second")
        reading = pool.submit(service(other).new, 0)
        while not (reading.done() or _somebody_waits(url)):
            pass
        go_on.set()
        assert [event.change.name for event in reading.result(LIMIT_S).events] == ["drew first", "drew second"]
        writing.result(LIMIT_S)
    store.close()
    other.close()


def _somebody_waits(url: str) -> bool:
    engine = create_engine(url)
    with engine.connect() as connection:
        waits = connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar_one()
    engine.dispose()
    return bool(waits)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    writers=st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["commit", "crash"])), max_size=6),
        min_size=2, max_size=4,
    )
)  # fmt: skip
def test_readers_beside_writers_see_each_noun_in_its_order_and_nothing_twice_or_never(
    store: Store, writers: list[list[tuple[str, str]]]
) -> None:
    """Every writer raises a number of its noun in the transaction that tells it, as changes of a row do."""
    log, ended, counted = service(store), threading.Event(), dict.fromkeys("abc", 0)
    start, locks = log.end(), {name: threading.Lock() for name in "abc"}

    def write(course: list[tuple[str, str]]) -> None:
        for name, end in course:
            with locks[name], suppress(KeyError):  # held as the row of the noun would be
                written(store, name, str(counted[name] + 1), crash=end == "crash")
                counted[name] += 1

    def follow() -> list[tuple[str, int]]:
        seen, position = list[tuple[str, int]](), start
        while True:
            last = ended.is_set()
            events = log.new(position).events
            seen += [(event.change.name, int(str(event.change.state))) for event in events]
            position = events[-1].number if events else position
            if last and not events:
                return seen

    with ThreadPoolExecutor(len(writers) + 2) as pool:
        readers = [pool.submit(follow) for _ in range(2)]
        for writing in [pool.submit(write, course) for course in writers]:
            writing.result(LIMIT_S)
        ended.set()
        for reader in readers:
            seen = reader.result(LIMIT_S)
            assert {name: [number for noun, number in seen if noun == name] for name in "abc"} == {
                name: list(range(1, counted[name] + 1)) for name in "abc"
            }


def test_ids_say_nothing_of_numbers_and_lead_back_to_them() -> None:
    ids = EventIds(KEY)
    numbers = [0, 1, 2, 3, 2**32, 2**61]
    shown = [ids.of(number) for number in numbers]
    assert [ids.number(one) for one in shown] == numbers
    assert EventIds(b"another").of(1) != ids.of(1)
    assert len({one[:8] for one in shown} | {one[8:] for one in shown}) == 2 * len(numbers)
