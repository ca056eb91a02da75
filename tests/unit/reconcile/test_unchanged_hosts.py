# SPDX-License-Identifier: Apache-2.0
"""Hosts that look as before: what they cost, and that nothing which happens there stays unseen."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event, update

from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot, Unchanged
from orchestrator.reconcile import unchanged_hosts
from orchestrator.reconcile.unchanged_hosts import WHOLE_EVERY, WRITTEN_AFTER_S
from orchestrator.store.records import LastObservation
from orchestrator.store.tables import snapshots
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine, t4
from tests.fakes.fake_world import FakeClock


class Counted(FakeHosts):
    """Counts what it answers."""

    counts: Counter[str]

    def observe(self, host: Host) -> HostSnapshot:
        self.counts["whole"] += 1
        found = super().observe(host)
        return replace(found, storage_free_bytes=found.storage_free_bytes - self.counts["taken by others"])

    def look(self, host: Host, known: str) -> HostSnapshot | Unchanged:
        found = super().look(host, known)
        if isinstance(found, Unchanged):
            self.counts["unchanged"] += 1
            self.counts["whole"] -= 1
        return found


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """With a VM that runs on a host that has been looked at since, and is unchanged."""
    machine = FakeMachine(machine_id="m1", gpus=[t4(), t4("0000:42:00.0")])
    hosts = Counted({f"{T4_HOST}.test": machine})
    hosts.counts = Counter()
    made = control_plane(tmp_path, hosts=hosts)
    made.add_host(T4_HOST)
    made.services.vms.create(create_vm())
    made.engine.drain()
    for _ in range(2):
        rounds_later(made)
    counts(made).clear()
    yield made
    made.reconciler.close()
    made.store.close()


def rounds_later(plane: ControlPlane, seconds: float = 30.0) -> None:
    plane.world.clock.sleep(seconds)
    plane.reconciler.round()


def counts(plane: ControlPlane) -> Counter[str]:
    assert isinstance(plane.hosts, Counted)
    return plane.hosts.counts


def codes(plane: ControlPlane) -> list[str]:
    return [one.finding.code for one in plane.findings.list(host=T4_HOST)]


@contextmanager
def commits() -> Iterator[list[Connection]]:
    written: list[Connection] = []

    def committed(connection: Connection) -> None:
        if connection.get_execution_options()["how"] != "reading":
            written.append(connection)

    event.listen(Engine, "commit", committed)
    try:
        yield written
    finally:
        event.remove(Engine, "commit", committed)


def test_a_round_over_a_host_that_looks_as_before_writes_nothing(plane: ControlPlane) -> None:
    with commits() as written:
        rounds_later(plane, seconds=1)
    assert (+counts(plane), written) == (Counter(unchanged=1), [])


def test_now_and_then_a_round_writes_when_the_host_was_last_seen(plane: ControlPlane) -> None:
    with commits() as written:
        rounds_later(plane, seconds=WRITTEN_AFTER_S)
    with plane.store.read() as tx:
        seen = tx.hosts.get(T4_HOST).last_seen_at
    assert len(written) == 1
    assert seen is not None
    assert plane.world.clock.now() - seen < 1


def test_a_domain_that_stops_by_itself_on_a_quiet_host_is_a_finding_of_the_next_round(plane: ControlPlane) -> None:
    machine, vm = plane.machine(T4_HOST), plane.services.vms.get("default", "train")
    machine.domains[vm.id] = (machine.domains[vm.id][0], False)
    rounds_later(plane)
    assert plane.services.vms.get("default", "train").state == "stopped"
    assert codes(plane) != []


def test_an_operation_that_ended_since_makes_its_host_be_looked_at_as_a_whole(plane: ControlPlane) -> None:
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    rounds_later(plane)
    assert counts(plane)["whole"] == 1


def test_a_look_that_was_stored_and_never_compared_is_compared_by_the_next_round(plane: ControlPlane) -> None:
    machine, vm = plane.machine(T4_HOST), plane.services.vms.get("default", "train")
    machine.domains[vm.id] = (machine.domains[vm.id][0], False)
    plane.observer.observe(T4_HOST)  # and then the server is killed
    assert codes(plane) == []
    rounds_later(plane)
    assert codes(plane) != []


def test_a_stored_snapshot_that_was_damaged_is_asked_for_by_a_new_server(plane: ControlPlane, tmp_path: Path) -> None:
    with plane.store.begin() as tx:
        tx.usage._db.execute(update(snapshots).values(document={"damaged": True}))
    plane.store.close()
    again = control_plane(tmp_path, hosts=plane.hosts, url=f"sqlite:///{tmp_path / 'vgpuctl.sqlite'}")
    again.world.clock.sleep(plane.world.clock.now() - again.world.clock.now())
    again.reconciler.round()
    with again.store.read() as tx:
        assert tx.hosts.snapshot(T4_HOST) is not None
    assert counts(plane)["whole"] == 1
    again.reconciler.close()
    again.store.close()


def test_a_host_that_falls_silent_is_unreachable_after_the_next_round(plane: ControlPlane) -> None:
    plane.machine(T4_HOST).answers = False
    rounds_later(plane)
    assert codes(plane) == ["host.unreachable"]


def test_free_space_that_shrinks_much_is_written_and_little_is_not(plane: ControlPlane) -> None:
    for taken, whole in ((2**20, 0), (2**32, 1)):
        counts(plane)["taken by others"] = taken
        rounds_later(plane)
        assert counts(plane)["whole"] == whole


def test_a_created_vm_is_known_by_its_claim_so_its_host_is_not_looked_at(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm("second"))
    plane.engine.drain()
    counts(plane).clear()
    assert not plane.observer.is_untrue(T4_HOST, plane.services.vms.get("default", "second").id)
    assert counts(plane)["whole"] == 0


def test_a_deleted_vm_that_the_picture_still_shows_makes_its_host_be_looked_at(plane: ControlPlane) -> None:
    vm = plane.services.vms.get("default", "train")
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    with plane.store.read() as tx:
        assert not tx.observations.shows(T4_HOST, vm.id)  # the deletion itself has looked
    assert not plane.observer.is_untrue(T4_HOST, vm.id)
    assert plane.observer.is_untrue(T4_HOST, T4_HOST)


def test_every_host_has_its_turn_to_be_looked_at_as_a_whole(plane: ControlPlane) -> None:
    for _ in range(WHOLE_EVERY):
        rounds_later(plane)
    assert counts(plane)["whole"] == 1


def test_a_lease_that_ends_soon_is_told_of_on_a_quiet_host(plane: ControlPlane) -> None:
    assert isinstance(plane.world.clock, FakeClock)
    vm = plane.services.vms.get("default", "train")
    with plane.store.begin() as tx:
        tx.vms.update(replace(vm, lease_end=plane.world.clock.now() + 3600))
    rounds_later(plane)
    assert codes(plane) == []
    rounds_later(plane, seconds=3000)
    assert codes(plane) == ["vm.lease_ends_soon"]


@pytest.mark.parametrize(("many", "searched"), [(1, False), (3, True)])
def test_what_is_kept_of_a_large_fleet_is_never_searched_for_garbage(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, many: int, searched: bool
) -> None:
    monkeypatch.setattr(unchanged_hosts, "_MANY", many)
    gc.unfreeze()
    try:
        found = unchanged_hosts.UnchangedHosts(plane.store, plane.reconciler.observer)
        found.read(0.0)
        assert (gc.get_freeze_count() == 0) == searched
        gc.unfreeze()
        found.read(0.0)
        assert gc.get_freeze_count() == 0
    finally:
        gc.unfreeze()


def test_looks_that_take_long_are_spread_over_the_round(plane: ControlPlane) -> None:
    with plane.store.read() as tx:
        known = tx.hosts.get(T4_HOST)
    hosts = [
        LastObservation(host=replace(known, name=f"h{number:03}"), last_seen_at=None, digest=None, storage_free_bytes=0)
        for number in range(110)
    ]
    calm = frozenset(one.host.name for one in hosts[:100])
    found = [one.host.name for one in unchanged_hosts.interleave(hosts, calm)]
    assert [sum(name not in calm for name in found[at : at + 11]) for at in range(0, 110, 11)] == [1] * 10
    assert [name for name in found if name in calm] == sorted(calm)
    assert [name for name in found if name not in calm] == [f"h{number}" for number in range(100, 110)]
    assert unchanged_hosts.interleave([], calm) == ()
