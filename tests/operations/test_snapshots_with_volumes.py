# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a VM's disk and of the data volumes that it writes, taken at one moment: one whole, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, QuotaExceeded, VgpuctlError
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.units import GIB
from orchestrator.core.vms.volume import Volume, short_of
from orchestrator.services.vms.volumes import VolumeTraits
from tests.fakes.control_plane import L40S_HOST, ControlPlane, control_plane
from tests.fakes.fake_machine import FakeMachine
from tests.fakes.recount import miscounted
from tests.operations import disk_snapshots as own
from tests.operations.disk_snapshots import NAME, VOLUMES
from tests.operations.suspending import running
from tests.operations.test_vm_life import finished


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A VM that runs and writes two volumes."""
    made = control_plane(tmp_path)
    own.with_volumes(running(L40S_HOST))(made)
    machine(made).written.update({name: f"old {short_of(name)}" for name in machine(made).data})
    yield made
    made.store.close()


def machine(plane: ControlPlane) -> FakeMachine:
    return plane.machine(L40S_HOST)


def done(plane: ControlPlane, operation: str | None) -> None:
    ended = finished(plane, operation)
    assert ended.state == "done", ended.error


def of_volumes(plane: ControlPlane) -> list[Volume]:
    return [snapshot for volume in VOLUMES for snapshot in plane.services.volume_snapshots.list("default", volume)]


def refused(code: str, call: Callable[[], object], kind: type[VgpuctlError] = Conflict) -> VgpuctlError:
    with pytest.raises(kind) as error:
        call()
    assert error.value.code == code
    return error.value


def nothing_is_left(plane: ControlPlane) -> None:
    assert (of_volumes(plane), plane.services.disk_snapshots.list("default", "train")) == ([], ())
    assert len(machine(plane).data) == len(VOLUMES)
    with plane.store.read() as tx:
        assert not list(miscounted(tx))


def test_all_are_taken_at_once_and_say_that_they_belong_together(plane: ControlPlane) -> None:
    plane.hosts.effects.clear()
    done(plane, own.take_all(plane))
    assert set(plane.hosts.effects) == {"TakeSnapshot"}, "in one action, until it is done"
    (whole,) = plane.services.disk_snapshots.list("default", "train")
    assert (whole.taken_of, tuple(map(short_of, whole.volumes))) == ("running", VOLUMES)
    taken = of_volumes(plane)
    assert [(each.name, each.state, each.quiesced) for each in taken] == [
        (f"{volume}/{NAME}", "ready", whole.quiesced) for volume in VOLUMES
    ]
    with_disk = plane.services.volume_snapshots.taken_with("default")
    assert with_disk == {each.id: f"train/{NAME}" for each in taken}
    for volume in VOLUMES:
        delete = partial(plane.services.volume_snapshots.delete, "default", volume, NAME)
        error = refused("snapshot.with_disk", delete)
        assert f"vgpuctl vm snapshot delete train {NAME}" in str(error.hint)
    done(plane, own.remove(plane))
    nothing_is_left(plane)


def test_all_are_put_back_together(plane: ControlPlane) -> None:
    done(plane, own.take_all(plane))
    vm = plane.services.vms.get("default", "train")
    for file in (vm.volume, *vm.domain.data):
        machine(plane).written[file] = "new"
    refused("vm.busy", lambda: own.restore(plane))
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    done(plane, own.restore(plane))
    assert [machine(plane).written[file] for file in vm.domain.data] == ["old data", "old logs"]
    assert machine(plane).written[vm.volume] != "new"
    assert len(of_volumes(plane)) == len(VOLUMES), "they stay"
    with plane.store.read() as tx:
        assert not list(miscounted(tx))


def test_what_the_vm_has_no_more_is_not_put_back_and_neither_is_the_rest(plane: ControlPlane) -> None:
    done(plane, own.take_all(plane))
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    done(plane, plane.services.volumes.detach("default", "logs", "train").operation)
    before = plane.services.vms.get("default", "train")
    error = refused("volume.not_attached", lambda: own.restore(plane))
    assert "volume logs" in error.message
    assert plane.services.vms.get("default", "train") == before
    assert len(of_volumes(plane)) == len(VOLUMES), "no room was claimed for copies"
    done(plane, plane.services.volumes.attach("default", "logs", "train").operation)
    done(plane, own.restore(plane))


def test_one_volume_that_cannot_be_copied_refuses_all(plane: ControlPlane) -> None:
    plane.services.volumes.create("default", "secret", GIB, traits=VolumeTraits(encrypted=True))
    done(plane, plane.services.volumes.attach("default", "secret", "train").operation)
    assert "secret" in refused("volume.encrypted", lambda: own.take_all(plane)).message
    done(plane, plane.services.volumes.detach("default", "secret", "train").operation)
    done(plane, plane.services.volume_snapshots.create("default", "logs", NAME).operation)
    assert "logs" in refused("snapshot.exists", lambda: own.take_all(plane)).message
    assert [each.name for each in of_volumes(plane)] == [f"logs/{NAME}"]
    with plane.store.begin() as tx:
        tx.quotas.put(Limit(tenant="default", resource="disk", amount=tx.quotas.used("default")["disk"] + 2048))
    refused("quota.exceeded", lambda: own.take_all(plane, "other"), QuotaExceeded)
    assert plane.services.disk_snapshots.list("default", "train") == ()
    with plane.store.read() as tx:
        assert not list(miscounted(tx))


def test_volumes_that_it_reads_are_left_out(plane: ControlPlane) -> None:
    for read_only in (False, True):
        done(plane, plane.services.volumes.detach("default", "logs", "train").operation)
        done(plane, plane.services.volumes.attach("default", "logs", "train", read_only=read_only).operation)
    done(plane, own.take_all(plane))
    assert [each.name for each in of_volumes(plane)] == [f"data/{NAME}"]


def test_snapshots_of_volumes_outlive_the_vm_and_are_then_deleted_one_by_one(plane: ControlPlane) -> None:
    done(plane, own.take_all(plane))
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert plane.services.volume_snapshots.taken_with("default") == {}
    for volume in VOLUMES:
        done(plane, plane.services.volume_snapshots.delete("default", volume, NAME).operation)
    assert of_volumes(plane) == []
