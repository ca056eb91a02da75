# SPDX-License-Identifier: Apache-2.0
"""A backup of a VM's disk and of the data volumes that it writes: of one moment, put back together, and what each
volume held becomes a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.actions.backups import VerifyBackup
from orchestrator.core.actions.disk_snapshots import CopySnapshot
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, NotFound, QuotaExceeded, VgpuctlError
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.labels import KEPT_FOR
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.units import GIB
from orchestrator.core.vms.disk_snapshot import MAX_OF_VM
from orchestrator.core.vms.volume import MAX_SNAPSHOTS, short_of
from orchestrator.reconcile.backups import BackupKeeper
from orchestrator.services.messages import HostChange
from orchestrator.services.vms.volumes import VolumeTraits
from tests.fakes import fake_actions
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_machine import FakeMachine
from tests.fakes.recount import miscounted
from tests.operations import backups as own
from tests.operations.disk_snapshots import VOLUMES, with_volumes
from tests.operations.suspending import delete, running
from tests.operations.test_vm_life import finished


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A VM that runs and writes two volumes, and a target."""
    made = control_plane(tmp_path)
    own.with_target(with_volumes(running(L40S_HOST)))(made)
    machine(made).written.update({name: f"old {short_of(name)}" for name in machine(made).data})
    yield made
    made.store.close()


@pytest.fixture
def backed_up(plane: ControlPlane) -> ControlPlane:
    done(plane, own.run(plane))
    return plane


def machine(plane: ControlPlane) -> FakeMachine:
    return plane.machine(L40S_HOST)


def done(plane: ControlPlane, operation: str | None) -> None:
    ended = finished(plane, operation)
    assert ended.state == "done", ended.error


def stop(plane: ControlPlane) -> None:
    plane.services.vms.stop("default", "train")
    plane.engine.drain()


def refused(code: str, call: Callable[[], object], kind: type[VgpuctlError] = Conflict) -> VgpuctlError:
    with pytest.raises(kind) as error:
        call()
    assert error.value.code == code
    return error.value


def the_count_is_right(plane: ControlPlane) -> None:
    with plane.store.read() as tx:
        assert not list(miscounted(tx))


def test_all_are_taken_at_once_and_nothing_of_that_is_left(plane: ControlPlane) -> None:
    plane.hosts.effects.clear()
    done(plane, own.run(plane))
    assert [name for name in plane.hosts.effects if name.startswith("Take")] == ["TakeSnapshot"] * 2, "asked for twice"
    assert set(plane.hosts.effects) == {"TakeSnapshot", "StoreBackup", "DeleteVolume", "DeleteDataVolume"}
    backup = own.the_backup(plane)
    assert [(volume.name, volume.size_bytes, volume.left_out) for volume in backup.volumes] == [
        ("data", GIB, ""), ("logs", GIB, ""),
    ]  # fmt: skip
    assert {key for key in machine(plane).written if key.startswith(f"backup: {backup.id}")} == {
        f"backup: {backup.id}", *(f"backup: {backup.id}/{volume.part}" for volume in backup.volumes),
    }  # fmt: skip
    assert plane.services.vms.get("default", "train").snapshots == ()
    assert [plane.services.volume_snapshots.list("default", volume) for volume in VOLUMES] == [(), ()]
    assert len(machine(plane).data) == len(VOLUMES)
    the_count_is_right(plane)
    done(plane, own.remove(plane))
    assert not any(backup.id in key for key in machine(plane).written), "they go with it"


def test_the_disk_alone_is_backed_up_by_whoever_wants_that(plane: ControlPlane) -> None:
    done(plane, plane.services.backups.run("default", "train", None, volumes=False).operation)
    assert own.the_backup(plane).volumes == ()


def test_all_are_put_back_together(backed_up: ControlPlane) -> None:
    plane = backed_up
    vm = plane.services.vms.get("default", "train")
    for file in (vm.volume, *vm.domain.data):
        machine(plane).written[file] = "new"
    stop(plane)
    done(plane, plane.services.volumes.resize("default", "data", 2 * GIB).operation)
    done(plane, own.restore(plane))
    assert [machine(plane).written[file] for file in vm.domain.data] == ["old data", "old logs"]
    assert machine(plane).written[vm.volume] != "new"
    assert machine(plane).data[vm.domain.data[0]][0] == 2 * GIB, "what has grown since stays as large"
    assert len(machine(plane).data) == len(VOLUMES)
    assert plane.services.vms.get("default", "train").state == "stopped"
    the_count_is_right(plane)


def test_what_is_fetched_to_be_put_back_is_not_deleted_meanwhile(
    backed_up: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane, original, refusals = backed_up, fake_actions.perform_on, set[str]()
    snapshots = plane.services.volume_snapshots

    def deleting(on: Any, action: Any) -> ActionResult:
        if isinstance(action, CopySnapshot):
            for volume in VOLUMES:
                (copy,) = snapshots.list("default", volume)
                error = refused("volume.busy", partial(snapshots.delete, "default", volume, copy.name.split("/")[1]))
                refusals.add(str(error.hint))
        return original(on, action)

    stop(plane)
    files = plane.services.vms.get("default", "train").domain.data
    for file in files:
        machine(plane).written[file] = "new"
    monkeypatch.setattr("tests.fakes.fake_host.perform_on", deleting)
    operation = own.restore(plane)
    done(plane, operation)
    assert refusals == {f"'vgpuctl operation wait {operation}' waits for it"}
    assert [machine(plane).written[file] for file in files] == ["old data", "old logs"]


def test_what_the_vm_has_no_more_is_not_put_back_and_neither_is_the_rest(backed_up: ControlPlane) -> None:
    plane = backed_up
    stop(plane)
    done(plane, plane.services.volumes.detach("default", "logs", "train").operation)
    before, volumes = plane.services.vms.get("default", "train"), plane.services.volumes.all()
    error = refused("volume.not_attached", lambda: own.restore(plane))
    backup = own.the_backup(plane)
    assert "volume logs" in error.message
    assert f"vgpuctl backup restore train {backup.id} --no-volumes" in str(error.hint)
    assert f"--from-backup {backup.id}/logs" in str(error.hint)
    assert (plane.services.vms.get("default", "train"), plane.services.volumes.all()) == (before, volumes)
    the_count_is_right(plane)
    logs = next(file for file in machine(plane).data if file.startswith("logs"))
    machine(plane).written[logs] = "new"
    done(plane, plane.services.backups.restore("default", backup.id, "train", volumes=False).operation)
    assert machine(plane).written[logs] == "new"
    done(plane, plane.services.volumes.attach("default", "logs", "train").operation)
    done(plane, own.restore(plane))
    assert machine(plane).written[logs] == "old logs"


def test_one_that_was_made_again_under_its_name_is_another_one(backed_up: ControlPlane) -> None:
    plane = backed_up
    stop(plane)
    done(plane, plane.services.volumes.detach("default", "logs", "train").operation)
    done(plane, plane.services.volumes.delete("default", "logs").operation)
    plane.services.volumes.create("default", "logs", GIB)
    done(plane, plane.services.volumes.attach("default", "logs", "train").operation)
    refused("volume.not_attached", lambda: own.restore(plane))


def test_what_a_volume_held_becomes_a_new_one_also_when_vm_and_volume_are_gone(backed_up: ControlPlane) -> None:
    plane = backed_up
    delete(plane)
    plane.engine.drain()
    done(plane, plane.services.volumes.delete("default", "data").operation)
    done(plane, own.make_volume(plane, "data", limits=DiskLimits(iops=200)))
    made = plane.services.volumes.get("default", "data").volume
    assert (made.state, made.size_bytes, made.host, made.vm, made.max_iops) == ("ready", GIB, L40S_HOST, None, 200)
    assert machine(plane).written[made.file] == "old data"
    done(plane, own.make_volume(plane, "larger", size_bytes=2 * GIB, host=L40S_HOST))
    larger = plane.services.volumes.get("default", "larger").volume
    assert (larger.size_bytes, larger.host) == (2 * GIB, L40S_HOST)
    the_count_is_right(plane)


def test_what_a_new_volume_is_refused_for(backed_up: ControlPlane) -> None:
    plane, make = backed_up, partial(own.make_volume, backed_up)
    backup = own.the_backup(plane)
    assert f"--from-backup {backup.id}/data" in str(
        refused("backup.which_volume", lambda: make(volume=None), InvalidInput).hint
    )
    assert "data, logs" in str(refused("backup.no_volume", lambda: make(volume="dat"), NotFound).hint)
    refused("disk.too_small", lambda: make(size_bytes=GIB // 2), InvalidInput)
    refused("volume.exists", lambda: make("logs"))
    refused("volume.host_and_pool", lambda: make(host=L40S_HOST, pool="fast"), InvalidInput)
    refused("host.unknown", lambda: make(host="t5"), NotFound)
    with plane.store.begin() as tx:
        tx.quotas.put(Limit(tenant="default", resource="disk", amount=tx.quotas.used("default")["disk"] + 512))
    refused("quota.exceeded", make, QuotaExceeded)
    refused("quota.exceeded", lambda: own.run(plane), QuotaExceeded)
    assert {info.volume.name for info in plane.services.volumes.list(("default",))} == set(VOLUMES)
    the_count_is_right(plane)


def test_a_backup_without_volumes_says_so(plane: ControlPlane) -> None:
    done(plane, plane.services.backups.run("default", "train", None, volumes=False).operation)
    error = refused("backup.no_volume", lambda: own.make_volume(plane), NotFound)
    assert "holds no volume" in error.message


def test_an_encrypted_volume_is_left_out_and_named(plane: ControlPlane) -> None:
    plane.services.volumes.create("default", "secret", GIB, traits=VolumeTraits(encrypted=True))
    done(plane, plane.services.volumes.attach("default", "secret", "train").operation)
    done(plane, own.run(plane))
    assert [(volume.name, volume.left_out) for volume in own.the_backup(plane).volumes] == [
        ("data", ""), ("logs", ""), ("secret", "encrypted"),
    ]  # fmt: skip
    error = refused("backup.no_volume", lambda: own.make_volume(plane, volume="secret"), NotFound)
    assert "it was encrypted" in error.message
    stop(plane)
    done(plane, own.restore(plane))


def with_all_snapshots(plane: ControlPlane) -> None:
    """Of one of the volumes."""
    for number in range(MAX_SNAPSHOTS):
        done(plane, plane.services.volume_snapshots.create("default", "data", f"s{number}").operation)


def without_quota(plane: ControlPlane) -> None:
    """For the disk there is some."""
    with plane.store.begin() as tx:
        used = tx.quotas.used("default")["disk"]
        disk = plane.services.vms.get("default", "train").spec.disk_bytes
        tx.quotas.put(Limit(tenant="default", resource="disk", amount=used + disk // 1024**2))


HINDERED = [(with_all_snapshots, "snapshot.too_many"), (without_quota, "quota.exceeded")]


@pytest.mark.parametrize(("hinder", "code"), HINDERED)
def test_a_policy_backs_the_disk_up_where_a_volume_cannot_be_taken_and_says_why(
    plane: ControlPlane, hinder: Callable[[ControlPlane], None], code: str
) -> None:
    hinder(plane)
    error = refused(code, lambda: own.run(plane), VgpuctlError)
    assert str(error.hint).endswith("; '--no-volumes' backs up the disk alone")
    plane.services.backup_policies.create("default", "nightly", None, ("train",), {})
    keeper = BackupKeeper(backups=plane.services.backups, time=plane.time, leads=lambda: True)
    plane.world.clock.sleep(3600)
    plane.time.look()
    keeper.round()
    plane.engine.drain()
    (made,), why = plane.services.backups.list(None), error.message.partition(";")[0]
    assert (made.policy, made.taken_of) == ("nightly", "running")
    assert [(its.name, its.left_out) for its in made.volumes] == [(name, why) for name in VOLUMES]
    (standing,) = plane.services.backup_policies.get("default", "nightly").standings
    assert (standing.state, standing.error) == ("good", None)
    assert why in refused("backup.no_volume", lambda: own.make_volume(plane), NotFound).message
    the_count_is_right(plane)


def test_a_vm_with_all_snapshots_is_not_told_to_leave_its_volumes_out(plane: ControlPlane) -> None:
    for number in range(MAX_OF_VM):
        done(plane, plane.services.disk_snapshots.create("default", "train", f"s{number}").operation)
    assert "--no-volumes" not in str(refused("snapshot.too_many", lambda: own.run(plane)).hint)


def test_a_new_volume_lies_on_no_host_that_is_kept_for_another_tenant(backed_up: ControlPlane) -> None:
    plane = backed_up
    plane.services.tenancy.tenants.create("vision")
    plane.services.hosts.change(L40S_HOST, HostChange(labels={KEPT_FOR: "vision"}))
    refused("host.kept", lambda: own.make_volume(plane), NoCapacity)
    plane.add_host(T4_HOST)
    plane.machine(T4_HOST).written.update(machine(plane).written)  # it has mounted the target too
    done(plane, own.make_volume(plane))
    assert plane.services.volumes.get("default", "again").volume.host == T4_HOST


def test_a_tenant_whose_volumes_are_all_encrypted_gets_no_plain_one_of_a_backup(backed_up: ControlPlane) -> None:
    plane = backed_up
    done(plane, plane.services.volume_snapshots.create("default", "data", "now").operation)
    plane.services.tenancy.policies.change("default", {"encryption": "always"})
    wanted = replace(create_vm("twin", profile="NVIDIA L40S-12Q"), from_backup=own.the_backup(plane).id)
    copy = partial(plane.services.volume_snapshots.copy, "default", ("data", "now"), "twin", None, DiskLimits())
    for ask in (partial(own.make_volume, plane), copy, partial(plane.services.vms.create, wanted)):
        error = refused("encryption.required", ask, QuotaExceeded)
        assert "--encrypted" not in str(error.hint), "that is refused too"
        assert "'vgpuctl policy set default encryption=optional'" in str(error.hint)
    assert {info.volume.name for info in plane.services.volumes.list(("default",))} == set(VOLUMES)
    assert finished(plane, own.boot(plane, profile="NVIDIA L40S-12Q")).state == "done", "nobody gets that VM"


def test_volumes_that_it_reads_are_no_part_of_it(plane: ControlPlane) -> None:
    for read_only in (False, True):
        done(plane, plane.services.volumes.detach("default", "logs", "train").operation)
        done(plane, plane.services.volumes.attach("default", "logs", "train", read_only=read_only).operation)
    done(plane, own.run(plane))
    assert [volume.name for volume in own.the_backup(plane).volumes] == ["data"]


def test_all_of_it_is_verified(backed_up: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, original = set[str](), fake_actions.perform_on

    def seen(on: Any, action: Any) -> ActionResult:
        if isinstance(action, VerifyBackup):
            parts.add(action.part)
        return original(on, action)

    monkeypatch.setattr("tests.fakes.fake_host.perform_on", seen)
    done(backed_up, own.verify(backed_up))
    volumes = own.the_backup(backed_up).volumes
    assert parts == {"", *(volume.part for volume in volumes)}
    del machine(backed_up).written[f"backup: {own.the_backup(backed_up).id}/{volumes[1].part}"]
    ended = finished(backed_up, own.verify(backed_up))
    assert (ended.error or {})["code"] == "backup.missing"


def test_a_site_that_imports_it_knows_its_volumes(backed_up: ControlPlane) -> None:
    plane = backed_up
    before = own.the_backup(plane)
    with plane.store.begin() as tx:
        tx.backups.remove(before.id)
    done(plane, own.bring_in(plane))
    assert own.the_backup(plane).volumes == before.volumes
    done(plane, own.make_volume(plane))


def test_a_copy_of_its_vm_has_the_disk_alone(backed_up: ControlPlane) -> None:
    plane = backed_up
    wanted = replace(create_vm("twin", profile="NVIDIA L40S-12Q"), from_backup=own.the_backup(plane).id)
    done(plane, plane.services.vms.create(wanted).operation)
    assert plane.services.vms.get("default", "twin").spec.volumes == ()


def test_a_host_that_is_full_refuses_before_anything_is_claimed(backed_up: ControlPlane) -> None:
    refused("volume.no_capacity", lambda: own.make_volume(backed_up, size_bytes=8000 * GIB), NoCapacity)
    the_count_is_right(backed_up)
