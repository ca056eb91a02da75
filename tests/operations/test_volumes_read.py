# SPDX-License-Identifier: Apache-2.0
"""Data volumes that several VMs read, and none writes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.units import MIB
from orchestrator.core.vms.claim import HostCapacity
from orchestrator.core.vms.volume import attached_names, reader_found, short_of
from orchestrator.services.vms.capacity import Question
from orchestrator.services.vms.vm_volumes import host_of
from orchestrator.services.vms.volumes import VolumeTraits
from orchestrator.store.records import ClaimLost
from tests.fakes.control_plane import GIB, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.recount import miscounted
from tests.operations import volumes as own
from tests.operations.test_vm_life import finished
from tests.operations.test_volumes import refused, volume

ANYBODY = ("train", "worker")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        made.services.volumes.create("default", "data", own.SIZE)
        for name in ANYBODY:
            made.services.vms.create(create_vm(name, profile="GRID T4-2Q"))
            made.engine.drain()
        done(made, own.attach(made))
        done(made, own.detach(made))
        yield made


def done(plane: ControlPlane, operation: str | None) -> None:
    ended = finished(plane, operation)
    assert ended.state == "done", ended.error


def read_by(plane: ControlPlane) -> tuple[str, ...]:
    return plane.services.volumes.get("default", "data").read_by


def both_read(plane: ControlPlane) -> None:
    for name in ANYBODY:
        done(plane, own.read(plane, name))


def test_several_vms_read_it_and_it_counts_once(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        used = tx.quotas.used("default")["disk"]
        tx.quotas.put(Limit(tenant="default", resource="disk", amount=used))
    both_read(plane)
    assert (read_by(plane), volume(plane).vm) == (ANYBODY, None)
    assert own.read(plane) is None, "asked for again"
    assert [info.volume.name for info in plane.services.volumes.list(None)] == ["data"]
    for name in ANYBODY:
        vm = plane.services.vms.get("default", name)
        (data,) = vm.domain.data
        assert data.startswith("data.")
        assert data.endswith(f".{volume(plane).id}.ro.raw")
        assert data in plane.machine(T4_HOST).domains[vm.id][0], "while it runs"
    with plane.store.read() as tx:
        assert not list(miscounted(tx))
        assert tx.quotas.used("default")["disk"] == used == (own.SIZE + 2 * GIB) // MIB


def test_what_is_read_is_not_written_grown_put_back_or_deleted(plane: ControlPlane) -> None:
    done(plane, own.snapshot(plane, "kept"))
    both_read(plane)
    volumes = plane.services.volumes
    for act in (
        lambda: volumes.attach("default", "data", "train"),
        lambda: volumes.resize("default", "data", 2 * own.SIZE),
        lambda: volumes.limit("default", "data", None, 300),
        lambda: volumes.delete("default", "data"),
        lambda: plane.services.volume_snapshots.create("default", "data", "before"),
        lambda: plane.services.volume_snapshots.restore("default", "data", "kept"),
    ):
        error = refused("volume.attached", Conflict, act)
        assert error.message == "volume data is attached to VMs train, worker"
    done(plane, plane.services.volume_snapshots.delete("default", "data", "kept").operation)
    for name in ANYBODY:
        done(plane, volumes.detach("default", "data", name).operation)
    assert read_by(plane) == ()
    assert [name for name in plane.machine(T4_HOST).data if ".ro." in name] == []
    done(plane, own.attach(plane))
    refused("volume.attached", Conflict, lambda: volumes.attach("default", "data", "worker", read_only=True))


def test_the_database_keeps_readers_off_what_is_written_and_writers_off_what_is_read(plane: ControlPlane) -> None:
    """Whoever had looked before somebody else wrote."""
    before = volume(plane)
    vm = plane.services.vms.get("default", "worker")
    both_read(plane)
    with plane.store.read() as tx:
        reader = tx.volumes.readers(before.id)[0]
    with pytest.raises(Conflict, match=r"^volume data is on another host$"):
        host_of((reader,), "other")
    with pytest.raises(ClaimLost), plane.store.begin() as tx:
        tx.volumes.attach(before, vm.id, T4_HOST, HostCapacity(vcpus=99, memory_mib=9999, disk_bytes=999 * GIB))
    for name in ANYBODY:
        done(plane, plane.services.volumes.detach("default", "data", name).operation)
    done(plane, own.attach(plane))
    with pytest.raises(ClaimLost), plane.store.begin() as tx:
        tx.volumes.add_reader(reader)


def test_who_watches_hears_of_the_volume_and_of_nothing_that_it_is_read_by(plane: ControlPlane) -> None:
    with plane.store.read() as tx:
        newest = tx.events.newest()
    done(plane, own.read(plane))
    done(plane, own.detach(plane))
    with plane.store.read() as tx:
        heard = [event.change for event in tx.events.new(newest, most=100) if event.change.noun == "volume"]
    assert [(event.name, event.change, event.subject) for event in heard] == [
        ("data", change, volume(plane).id) for change in ("attached", "detached")
    ]


def test_a_vm_that_is_deleted_reads_it_no_more(plane: ControlPlane) -> None:
    both_read(plane)
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert read_by(plane) == ("worker",)
    with plane.store.read() as tx:
        assert [reader.vm for reader in tx.volumes.readers()] == [plane.services.vms.get("default", "worker").id]


def test_a_vm_is_made_that_reads_it_and_is_the_same_vm_when_asked_for_again(plane: ControlPlane) -> None:
    wanted = replace(create_vm("third", profile="GRID T4-2Q"), volumes=("data:ro",))
    planned = plane.services.vms.plan(wanted)
    assert planned.host == T4_HOST
    assert "<readonly />" in planned.domain_xml
    done(plane, plane.services.vms.create(wanted).operation)
    assert read_by(plane) == ("third",)
    vm = plane.services.vms.get("default", "third")
    assert attached_names(vm) == ("data:ro",)
    assert plane.services.vms.create(wanted).existing
    refused("vm.exists", Conflict, lambda: plane.services.vms.create(replace(wanted, volumes=("data",))))
    refused("volume.attached", Conflict, lambda: own.attach(plane))
    plane.services.vms.delete("default", "third")
    plane.engine.drain()
    assert read_by(plane) == ()
    with plane.store.read() as tx:
        assert not list(miscounted(tx))


def test_explain_and_capacity_refuse_and_allow_what_create_does(plane: ControlPlane) -> None:
    def question(*volumes: str) -> Question:
        return Question(profile="GRID T4-2Q", volumes=volumes)

    capacity, both = plane.services.capacity, ("data", "data:ro")
    assert capacity.explain(question("data:ro")).explanation.host == T4_HOST
    assert sum(row.fits_now for row in capacity.capacity(question("data:ro"))) > 1, "any number of VMs read it"
    done(plane, own.read(plane))
    refused("volume.attached", Conflict, lambda: capacity.explain(question("data")))
    refused("volume.repeated", InvalidInput, lambda: capacity.explain(question(*both)))
    plane.services.volumes.create("default", "empty", own.SIZE, T4_HOST)
    for ask in (
        lambda volume: capacity.explain(question(volume)),
        lambda volume: plane.services.vms.create(replace(create_vm("third"), volumes=(volume,))),
    ):
        error = refused("volume.empty", Conflict, partial(ask, "empty:ro"))
        assert "without :ro" in str(error.hint)
        refused("volume.unknown", NotFound, partial(ask, "dta:ro"))


def test_what_cannot_be_opened_twice_or_holds_nothing_is_refused(plane: ControlPlane) -> None:
    volumes = plane.services.volumes
    volumes.create("default", "empty", own.SIZE, T4_HOST)
    volumes.create("default", "secret", own.SIZE, traits=VolumeTraits(encrypted=True))
    done(plane, volumes.attach("default", "secret", "train").operation)
    done(plane, volumes.detach("default", "secret", "train").operation)
    refused("volume.empty", Conflict, lambda: volumes.attach("default", "empty", "train", read_only=True))
    refused("volume.not_shared", Conflict, lambda: volumes.attach("default", "secret", "train", read_only=True))


def test_what_a_vm_reads_is_told_by_its_name_on_the_host_where_the_database_was_lost(plane: ControlPlane) -> None:
    both_read(plane)
    ids = {name: plane.services.vms.get("default", name).spec.volumes for name in ANYBODY}
    with plane.store.read() as tx:
        readers = {reader.vm: reader for reader in tx.volumes.readers()}
    for name, (item,) in ids.items():
        known = readers[plane.services.vms.get("default", name).id]
        bare = replace(known, name=short_of(item), size_bytes=own.SIZE, read_only_of=None)
        assert reader_found(bare, item) == known
