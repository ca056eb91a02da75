# SPDX-License-Identifier: Apache-2.0
"""Snapshots of data volumes: what was on one comes back, alone or as a new volume; what is held, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.diff.orphans import volume_findings
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, NotFound, QuotaExceeded, VgpuctlError
from orchestrator.core.hosts.snapshot import FileSnapshot
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.units import MIB
from orchestrator.core.vms.volume import MAX_SNAPSHOTS, Volume
from orchestrator.reconcile.wanted import wanted_of
from orchestrator.sim.pools import SimulatedPool
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_data_volumes import guest_agent_of
from tests.fakes.recount import miscounted
from tests.operations import volumes as own


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """With a VM that runs and has the volume."""
    made = control_plane(tmp_path)
    own.with_running_vm_that_has_it(made)
    made.machine(T4_HOST).written[volume(made).file] = "first"
    yield made
    made.store.close()


def volume(plane: ControlPlane, name: str = "data") -> Volume:
    return plane.services.volumes.get("default", name).volume


def snapshots(plane: ControlPlane) -> tuple[Volume, ...]:
    return plane.services.volume_snapshots.list("default", "data")


def do(plane: ControlPlane, operation: str | None) -> str:
    plane.engine.drain()
    ended = plane.services.operations.get(str(operation))
    return ended.state if ended.error is None else str(ended.error["code"])


def write(plane: ControlPlane, text: str) -> None:
    plane.machine(T4_HOST).written[volume(plane).file] = text


def read(plane: ControlPlane, name: str = "data") -> str:
    return plane.machine(T4_HOST).written[volume(plane, name).file]


@pytest.mark.parametrize("said", ["yes", "no guest agent"])
def test_what_was_frozen_is_told(plane: ControlPlane, said: str) -> None:
    plane.machine(T4_HOST).written[guest_agent_of(str(volume(plane).vm))] = said
    assert do(plane, plane.services.volume_snapshots.create("default", "data", "before").operation) == "done"
    assert [its.quiesced for its in snapshots(plane)] == [said]


def held(plane: ControlPlane) -> int:
    """In volumes of the tenant's quota of disk."""
    with plane.store.read() as tx:
        assert not list(miscounted(tx))
        vms = sum(vm.spec.disk_bytes for vm in tx.vms.list())
        return (tx.quotas.used("default")["disk"] * MIB - vms) // own.SIZE


def refused(code: str, kind: type[VgpuctlError], call: Callable[[], object]) -> None:
    with pytest.raises(kind) as error:
        call()
    assert error.value.code == code
    assert error.value.hint


def test_what_was_on_a_volume_comes_back_and_is_on_a_new_one(plane: ControlPlane) -> None:
    assert do(plane, own.snapshot(plane)) == "done"
    (taken,) = snapshots(plane)
    assert (taken.name, taken.state, taken.vm, taken.file.partition(".")[0]) == ("data/before", "ready", None, "before")
    assert held(plane) == 2
    write(plane, "second")
    assert do(plane, own.copy(plane, size_bytes=2 * own.SIZE)) == "done"
    twin = volume(plane, "twin")
    assert (read(plane, "twin"), twin.size_bytes, twin.host, twin.state) == ("first", 2 * own.SIZE, T4_HOST, "ready")
    refused("vm.busy", Conflict, lambda: own.restore(plane))
    do(plane, plane.services.vms.stop("default", "train").operation)
    do(plane, own.grow(plane))
    assert do(plane, own.restore(plane)) == "done"
    assert (read(plane), volume(plane).size_bytes) == ("first", 2 * own.SIZE), "it does not shrink again"
    assert held(plane) == 5, "twice as large, another of that, and the snapshot"
    assert [each.name for each in snapshots(plane)] == ["data/before"], "it can be put back again"
    do(plane, plane.services.vms.start("default", "train").operation)
    assert plane.services.vms.get("default", "train").state == "running"
    do(plane, plane.services.volumes.attach("default", "twin", "train").operation)
    assert volume(plane, "twin").vm is not None


def test_a_snapshot_is_no_volume_and_goes_alone(plane: ControlPlane) -> None:
    do(plane, own.snapshot(plane))
    (taken,) = snapshots(plane)
    volumes = plane.services.volumes
    assert [info.volume.name for info in volumes.list(None)] == ["data"]
    assert plane.findings.observe(T4_HOST) == ()
    do(plane, plane.services.vms.delete("default", "train").operation)
    refused("volume.has_snapshots", Conflict, lambda: volumes.delete("default", "data"))
    assert do(plane, own.delete_snapshot(plane)) == "done"
    assert (snapshots(plane), set(plane.machine(T4_HOST).data), held(plane)) == ((), {volume(plane).file}, 1)
    assert taken.file not in plane.machine(T4_HOST).written
    assert do(plane, volumes.delete("default", "data").operation) == "done"


def test_one_whose_file_is_gone_is_told_of_and_changes_nothing(plane: ControlPlane) -> None:
    do(plane, own.snapshot(plane))
    do(plane, plane.services.vms.stop("default", "train").operation)
    del plane.machine(T4_HOST).data[snapshots(plane)[0].file]
    (found,) = plane.findings.observe(T4_HOST)
    assert (found.finding.code, found.finding.subject) == ("volume.missing", "volume default/data/before")
    assert do(plane, own.restore(plane)) == "volume.missing"
    assert do(plane, own.copy(plane)) == "volume.missing"
    assert (read(plane), held(plane)) == ("first", 2)


def test_nothing_else_takes_a_volume_while_it_is_copied(plane: ControlPlane) -> None:
    services = plane.services
    do(plane, services.vms.stop("default", "train").operation)
    do(plane, services.volumes.detach("default", "data", "train").operation)
    do(plane, own.snapshot(plane))
    copying = own.copy(plane)
    refused("volume.busy", Conflict, lambda: services.volumes.attach("default", "twin", "train"))
    refused("volume.busy", Conflict, lambda: services.volumes.delete("default", "twin"))
    refused("volume.busy", Conflict, lambda: own.delete_snapshot(plane))
    assert do(plane, copying) == "done"
    again = own.snapshot(plane, "again")
    refused("volume.busy", Conflict, lambda: services.volumes.attach("default", "data", "train"))
    refused("volume.busy", Conflict, lambda: own.restore(plane))
    services.operations.cancel(str(again))
    assert do(plane, again) == "operation.cancelled"
    assert [each.name for each in snapshots(plane)] == ["data/before"]
    assert held(plane) == 3


def test_what_is_being_copied_is_not_deleted(plane: ControlPlane) -> None:
    """The copy would go on, to a file that no row has: beside the quota, and in a pool beside what anybody sees."""
    taken = own.snapshot(plane)
    refused("volume.busy", Conflict, lambda: own.delete_snapshot(plane))
    refused("volume.busy", Conflict, lambda: own.copy(plane))
    assert do(plane, taken) == "done"
    do(plane, plane.services.vms.stop("default", "train").operation)
    put_back = own.restore(plane)
    copy = snapshots(plane)[-1].name.rpartition("/")[2]
    refused("volume.busy", Conflict, lambda: plane.services.volume_snapshots.delete("default", "data", copy))
    assert do(plane, put_back) == "done"
    assert do(plane, own.delete_snapshot(plane)) == "done"
    assert set(plane.machine(T4_HOST).data) == {volume(plane).file}


def test_what_was_not_copied_to_its_end_is_no_empty_volume(plane: ControlPlane) -> None:
    """As where the operation got stuck: what is there, nobody knows."""
    do(plane, own.snapshot(plane))
    do(plane, own.copy(plane))
    with plane.store.begin() as tx:
        tx.volumes._set(volume(plane, "twin").id, state="copying")
        tx.volumes._set(snapshots(plane)[0].id, state="copying")
    refused("volume.busy", Conflict, lambda: plane.services.volumes.attach("default", "twin", "train"))
    refused("snapshot.unfinished", Conflict, lambda: own.copy(plane, "more"))
    assert do(plane, plane.services.volumes.delete("default", "twin").operation) == "done"
    assert len(plane.machine(T4_HOST).data) == 2


def test_in_a_pool_each_host_copies_that_reaches_it(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    own.hosts(plane)
    pool = SimulatedPool("fast")
    for machine in plane.hosts.machines.values():
        machine.pools["fast"] = pool
    plane.observer.observe(T4_HOST)
    do(plane, plane.services.pools.create("fast", None).operation)
    for host in (T4_HOST, L40S_HOST):
        plane.observer.observe(host)
    plane.services.volumes.create("default", "data", own.SIZE, pool="fast")
    do(plane, plane.services.vms.create(replace(create_vm(), volumes=("data",))).operation)
    assert do(plane, own.snapshot(plane)) == "done"
    do(plane, plane.services.vms.delete("default", "train").operation)
    for begin in (own.restore, own.copy):
        assert do(plane, begin(plane)) == "done"
    assert sorted(file.partition(".")[0] for file in pool.files) == ["before", "data", "twin"]
    with plane.store.begin() as tx:
        assert tx.pools.list()[0].claimed_bytes == 3 * own.SIZE
        assert not list(miscounted(tx))
        tx.pools.observed((replace(pool.snapshot, capacity_bytes=3 * own.SIZE, free_bytes=0),))
    refused("pool.full", NoCapacity, lambda: own.restore(plane))
    assert do(plane, own.delete_snapshot(plane)) == "done"
    plane.store.close()


def test_what_is_asked_for_wrongly_is_refused_before_it_is_begun(plane: ControlPlane) -> None:
    services = plane.services
    services.volumes.create("default", "empty", own.SIZE)
    refused("volume.empty", Conflict, lambda: services.volume_snapshots.create("default", "empty", "before"))
    refused("snapshot.name_invalid", InvalidInput, lambda: own.snapshot(plane, "a/b"))
    do(plane, own.snapshot(plane))
    refused("snapshot.exists", Conflict, lambda: own.snapshot(plane))
    refused("snapshot.unknown", NotFound, lambda: services.volume_snapshots.delete("default", "data", "befor"))
    refused("volume.exists", Conflict, lambda: own.copy(plane, "empty"))
    refused("disk.too_small", InvalidInput, lambda: own.copy(plane, size_bytes=own.SIZE - MIB))
    with plane.store.begin() as tx:
        tx.quotas.put(Limit(tenant="default", resource="disk", amount=tx.quotas.used("default")["disk"]))
    refused("quota.exceeded", QuotaExceeded, lambda: own.snapshot(plane, "another"))
    refused("quota.exceeded", QuotaExceeded, lambda: own.copy(plane))
    do(plane, services.vms.stop("default", "train").operation)
    assert do(plane, own.restore(plane)) == "done", "whatever the tenant may have for good"
    with plane.store.begin() as tx:
        like = snapshots(plane)[0]
        for number in range(MAX_SNAPSHOTS - 1):
            tx.volumes.add(replace(like, id=f"{number:036}", name=f"data/s{number}", host=None), None)
    refused("snapshot.too_many", Conflict, lambda: own.snapshot(plane, "another"))


def test_what_a_restore_copies_is_nobodys_only_for_a_look_that_began_afterwards(plane: ControlPlane) -> None:
    """Its row is gone by then, and its operation is about the VM."""
    do(plane, own.snapshot(plane))
    do(plane, plane.services.vms.stop("default", "train").operation)
    restores = str(own.restore(plane))
    with plane.store.read() as tx:
        made, began = Volume.from_fields(tx.operations.get(restores).inputs["made"]), tx.operations.turn()
        host = tx.hosts.get(T4_HOST)
    seen = replace(plane.world.link.observe(host), data=(FileSnapshot(name=made.file, size_bytes=1, owner=made.id),))

    def orphans(turn: int) -> list[str]:
        with plane.store.read() as tx:
            found = volume_findings(wanted_of(tx, host, seen, turn, 0.0), seen)
            return [each.code for each in found if each.code == "orphan.data"]

    assert do(plane, restores) == "done"
    assert orphans(began) == []
    with plane.store.read() as tx:
        ended = tx.operations.turn()
    assert orphans(ended) == ["orphan.data"]
