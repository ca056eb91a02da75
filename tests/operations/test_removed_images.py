# SPDX-License-Identifier: Apache-2.0
"""Copies of base images on hosts go once the images are removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.diff import StoredFinding
from orchestrator.core.errors import Fatal
from orchestrator.core.vms.image import NewImage
from orchestrator.server.backup import back_up, restore
from tests.fakes.control_plane import KEY, L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm, plane_with
from tests.fakes.fake_host import no_fault

VERSIONS = [f"guest-{number}" for number in range(12)]
NOW = 1_800_000_000.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made
        made.reconciler.close()


def add(plane: ControlPlane, name: str, *, source: str | None = None) -> str:
    """Its file on hosts."""
    return plane.services.images.add(NewImage(name=name, source=f"/{source or name}.qcow2")).file


def create(plane: ControlPlane, image: str, name: str = "train") -> str:
    plane.services.vms.create(replace(create_vm(name), image=image))
    plane.engine.drain()
    assert plane.services.vms.get("default", name).state == "running"
    return plane.services.vms.get("default", name).id


def delete(plane: ControlPlane, name: str = "train") -> None:
    plane.services.vms.delete("default", name)
    plane.engine.drain()


def used_and_removed(plane: ControlPlane, image: str) -> str:
    file = add(plane, image)
    create(plane, image)
    delete(plane)
    plane.services.images.remove(image)
    return file


def found(plane: ControlPlane, host: str = T4_HOST) -> list[StoredFinding]:
    return [one for one in plane.findings.list(host=host) if one.finding.code == "orphan.image"]


def rounds(plane: ControlPlane, count: int = 2) -> None:
    for _ in range(count):
        plane.world.clock.sleep(30)
        plane.reconciler.round()
        plane.engine.drain()


def test_of_twelve_versions_only_the_known_one_stays(plane: ControlPlane) -> None:
    files = {used_and_removed(plane, image) for image in VERSIONS}
    known = add(plane, "newest")
    create(plane, "newest")
    assert plane.machine(T4_HOST).images == files | {known}
    plane.reconciler.round()
    assert [len(one.finding.repair.actions) for one in found(plane) if one.finding.repair] == [12], "one finding a host"
    rounds(plane)
    assert plane.machine(T4_HOST).images == {known}
    assert found(plane) == []
    assert plane.services.vms.get("default", "train").state == "running"


def test_removals_do_not_count_among_the_repairs_that_an_hour_has(plane: ControlPlane) -> None:
    for number in range(25):  # of other repairs 20 are begun
        used_and_removed(plane, f"image-{number}")
        rounds(plane)
        assert plane.machine(T4_HOST).images == set()


def test_a_host_that_is_quiet_or_out_of_reach_catches_up(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    add(plane, "other")
    create(plane, "other")
    delete(plane)
    rounds(plane, 3)
    plane.machine(T4_HOST).answers = False
    rounds(plane)
    plane.services.images.remove("other")
    rounds(plane)
    assert len(plane.machine(T4_HOST).images) == 1
    plane.machine(T4_HOST).answers = True
    rounds(plane, 3)
    assert plane.machine(T4_HOST).images == set()


def test_a_content_that_another_name_stands_for_stays(plane: ControlPlane) -> None:
    file = used_and_removed(plane, "first")
    add(plane, "second", source="first")
    rounds(plane)
    assert plane.machine(T4_HOST).images == {file}
    assert found(plane) == []


def test_a_content_that_has_a_name_again_when_the_removal_runs_stays(plane: ControlPlane) -> None:
    file = used_and_removed(plane, "first")
    plane.reconciler.round()
    add(plane, "second", source="first")
    plane.engine.drain()
    assert plane.machine(T4_HOST).images == {file}


def test_a_vm_whose_image_went_since_the_host_was_seen_is_sent_it_again(plane: ControlPlane) -> None:
    file = used_and_removed(plane, "first")
    plane.look(T4_HOST)
    add(plane, "second", source="first")
    plane.machine(T4_HOST).images.clear()
    create(plane, "second")
    assert plane.machine(T4_HOST).images == {file}


def test_a_file_that_is_no_image_of_ours_is_no_finding(plane: ControlPlane) -> None:
    plane.machine(T4_HOST).images |= {"notes.txt", f"{'0' * 64}.vmdk", f"{'0' * 63}G.raw"}
    rounds(plane)
    assert found(plane) == []


def test_an_image_that_a_disk_nobody_knows_may_be_based_on_stays(tmp_path: Path) -> None:
    """After a restore: the VM, and its image, are younger than the backup."""
    old = tmp_path / "old"
    (old / "secrets").mkdir(parents=True)
    (old / "secrets" / "database_key").write_bytes(KEY)
    before = control_plane(old)
    before.add_host(T4_HOST)
    back_up(old, tmp_path / "backup")
    file = add(before, "young")
    create(before, "young")
    before.store.close()
    restore(tmp_path / "new", tmp_path / "backup", NOW)
    plane = control_plane(tmp_path / "new", hosts=before.hosts)
    plane.ids.count = before.ids.count
    rounds(plane, 3)
    assert [one.finding.repair for one in found(plane)] == [None]
    assert plane.findings.repair(host=T4_HOST) == ()
    assert plane.machine(T4_HOST).images == {file}
    plane.store.close()
    plane.reconciler.close()


def test_a_removal_that_the_host_refuses_is_tried_again_later_and_nothing_is_stuck(plane: ControlPlane) -> None:
    file = used_and_removed(plane, "first")

    def busy(_number: int, moment: str, name: str) -> BaseException | None:
        return Fatal("host.storage_failed", "no") if (moment, name) == ("before", "DeleteImage") else None

    plane.hosts.strike = busy
    rounds(plane)
    assert plane.machine(T4_HOST).images == {file}
    plane.hosts.strike = no_fault
    plane.world.clock.sleep(3600)
    rounds(plane, 3)
    assert plane.machine(T4_HOST).images == set()
    assert all(one.state != "stuck" for one in plane.services.operations.list(limit=100))
