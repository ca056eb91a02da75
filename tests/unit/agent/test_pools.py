# SPDX-License-Identifier: Apache-2.0
"""A pool as two agents have it: one directory that both have mounted, with real files, leases and QEMU's locks."""

from __future__ import annotations

import io
import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.images import disk_images, files, volume_copies
from orchestrator.agent.images import pools as pools_module
from orchestrator.agent.images.disk_images import copy_raw, read_header
from orchestrator.agent.images.pools import MARKER
from orchestrator.core.actions.pools import DeclarePool, LeaveDisks, ShareDisks, WithdrawPool
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CopyDataVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
)
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, NotFound, Retryable
from orchestrator.core.hosts.pool import pool_of
from tests.unit.agent.refusals import refused
from tests.unit.agent.shared_pool import (
    DECLARE,
    DISK,
    MIB,
    POOL,
    POOL_ID,
    VM,
    VOLUME,
    Host,
    created,
    two_hosts,
    with_disk,
    written_by_qemu,
)

OTHER = "9d9c1a52-7f0e-4a53-8c8e-2f4a1e7b6c11"


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[Host, Host]:
    return two_hosts(tmp_path)


@pytest.fixture
def disks(hosts: tuple[Host, Host]) -> tuple[Host, Host]:
    return with_disk(hosts)


def test_what_a_file_is_called_says_its_pool_and_no_other_name_does() -> None:
    assert (pool_of(DISK), pool_of(VOLUME)) == (POOL, POOL)
    for own in (f"{VM}.qcow2", f"data.{VM}.raw", f"{VM}.iso", f"{VM}.fast.qcow2", f"{VM}.fast.5f0a8g.qcow2"):
        assert pool_of(own) is None


def test_the_id_is_written_once_and_every_host_that_mounts_it_finds_it(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    assert one.storage.pools.declare(DECLARE).changed
    assert not two.storage.pools.declare(DECLARE).changed
    for host in hosts:
        (seen,), disks = host.storage.shared.observe()
        assert (seen.name, seen.pool_id, seen.problem, disks) == ("fast", POOL_ID, None, ())
        assert seen.capacity_bytes >= seen.free_bytes > 0
    other = DeclarePool(name="fast", pool_id=VM)
    refused("pool.is_another", Conflict, lambda: two.storage.pools.declare(other))


def test_nothing_is_written_where_nothing_is_mounted(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.storage.pools.declare(DECLARE)
    two.mount(None)
    wanted = created(two)
    volume = CreateDataVolume(volume=VOLUME, size_bytes=64 * MIB)
    for write in (
        lambda: two.storage.pools.declare(DECLARE),
        lambda: two.storage.create_volume(wanted),
        lambda: two.storage.data.create(volume),
        lambda: two.storage.shared.share(ShareDisks(vm=VM, files=(DISK,), taken=True)),
        lambda: two.storage.delete_volume(VM, DISK),
    ):
        refused("pool.not_mounted", Retryable, write)
    assert list(two.mount_point.iterdir()) == []
    assert two.storage.shared.observe() == ((), ())


def test_nothing_is_written_into_another_directory_of_that_name(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    one, two = hosts
    one.storage.pools.declare(DECLARE)
    another = tmp_path / "another"
    another.mkdir()
    two.mount(another)
    wanted = created(two)
    for text in (None, f"{VM}\n", "no id"):
        if text is not None:
            (another / MARKER).write_text(text)
        refused("pool.is_another", Conflict, lambda: two.storage.create_volume(wanted))
    assert [path.name for path in another.iterdir()] == [MARKER]


@pytest.mark.parametrize("directory", ["images", "volumes", "data", "leases"])
def test_no_link_that_another_host_made_leads_out_of_the_pool(
    hosts: tuple[Host, Host], tmp_path: Path, directory: str
) -> None:
    one, _ = hosts
    wanted = created(one)
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    (one.shared / directory).symlink_to(outside)
    refused("pool.is_another", Conflict, lambda: one.storage.pools.declare(DECLARE))
    (one.shared / MARKER).write_text(f"{POOL_ID}\n")
    refused("pool.is_another", Conflict, lambda: one.storage.create_volume(wanted))
    assert (list(outside.iterdir()), outside.stat().st_mode & 0o777) == ([], 0o750)


def test_a_disk_is_made_on_the_pools_own_copy_of_the_image(disks: tuple[Host, Host]) -> None:
    one, two = disks
    (image,) = (one.shared / "images").iterdir()
    assert read_header(one.disk, "qcow2").backing_name == f"../images/{image.name}", "on each host"
    assert one.storage.image_beneath(VM, DISK) == image.name
    one.storage.check_file_of(VM, str(one.disk))
    one.storage.check_image_beneath(VM, str(one.disk), str(one.mount_point / "images" / image.name))
    refused("vm.file_foreign", Conflict, lambda: two.storage.check_file_of(VM, str(two.disk)))
    digest = image.name.partition(".")[0]
    refused("image.in_use", Conflict, lambda: two.storage.delete_image(digest, "raw"))
    (_, (seen,)), (_, unseen) = (host.storage.shared.observe() for host in disks)
    assert (seen.name, seen.owner, seen.size_bytes, unseen) == (DISK, VM, files.taken(one.disk), ())
    assert one.storage.delete_volume(VM, DISK).changed
    assert [list((one.shared / kind).iterdir()) for kind in ("volumes", "leases")] == [[], []]
    assert one.storage.delete_image(digest, "raw").changed
    assert list((one.shared / "images").iterdir()) == []


def test_an_image_stays_under_a_disk_that_cannot_be_read(
    disks: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = disks
    (image,) = (one.shared / "images").iterdir()

    def unread(_path: Path, _format: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk_images, "read_header", unread)
    refused("image.in_use", Conflict, lambda: one.storage.delete_image(image.name.partition(".")[0], "raw"))
    assert image.exists()


def test_of_a_disk_that_is_refused_no_lease_is_left(hosts: tuple[Host, Host]) -> None:
    one, _ = hosts
    one.storage.pools.declare(DECLARE)
    refused("image.missing", Fatal, lambda: one.storage.create_volume(replace(created(one), base_sha256="0" * 64)))
    assert [list((one.shared / kind).iterdir()) for kind in ("volumes", "leases")] == [[], []]


def test_a_host_without_the_lease_neither_starts_the_disk_nor_deletes_it(disks: tuple[Host, Host]) -> None:
    one, two = disks
    one.storage.shared.check_held([str(one.disk)])
    assert two.storage.shared.share(ShareDisks(vm=VM, files=(DISK,))).changed
    refused("pool.held_elsewhere", Conflict, lambda: two.storage.shared.check_held([str(two.disk)]))
    assert two.storage.delete_volume(VM, DISK).changed, "it is forgotten there"
    assert one.disk.exists()
    two.storage.shared.share(ShareDisks(vm=VM, files=(DISK,), taken=True))
    two.storage.shared.check_held([str(two.disk)])
    refused("pool.held_elsewhere", Conflict, lambda: one.storage.shared.check_held([str(one.disk)]))
    one.storage.delete_volume(VM, DISK)
    assert two.disk.exists(), "the host that the VM left keeps nothing, and removes nothing"
    assert one.storage.shared.observe()[1] == ()


def test_a_lease_is_not_taken_from_a_host_that_still_writes_and_qemu_refuses_as_well(
    disks: tuple[Host, Host],
) -> None:
    one, two = disks
    take = ShareDisks(vm=VM, files=(DISK,), taken=True)
    with written_by_qemu(one.disk):
        refused("pool.open_elsewhere", Conflict, lambda: two.storage.shared.share(take))
        second = subprocess.run(
            ["qemu-io", "-f", "qcow2", "-c", "write 0 64k", str(two.disk)], capture_output=True, text=True, check=False
        )
        assert "lock" in second.stdout + second.stderr
        assert one.storage.pools.is_held_here(DISK)
    assert two.storage.shared.share(take).changed
    assert not two.storage.shared.share(take).changed
    with written_by_qemu(two.disk):
        assert not two.storage.shared.share(take).changed, "what is held already is not asked about"


def test_the_lease_of_a_vm_that_came_while_it_runs_is_taken_for_its_own_qemu_has_the_lock(
    disks: tuple[Host, Host],
) -> None:
    one, two = disks
    take, locks = ShareDisks(vm=VM, files=(DISK,), taken=True), two.storage.pools._paths.proc / "locks"
    with written_by_qemu(two.disk):
        locks.write_text(Path("/proc/locks").read_text().replace(f":{one.disk.stat().st_ino} ", ":1 "))
        refused("pool.open_elsewhere", Conflict, lambda: two.storage.shared.share(take))
        locks.write_text(Path("/proc/locks").read_text())
        assert two.storage.shared.share(take).changed


def test_a_volume_goes_from_host_to_host_as_it_is_detached_and_attached(disks: tuple[Host, Host]) -> None:
    one, two = disks
    size, other = 64 * MIB, OTHER
    assert one.storage.data.create(CreateDataVolume(volume=VOLUME, size_bytes=size)).changed
    assert not two.storage.data.create(CreateDataVolume(volume=VOLUME, size_bytes=size)).changed
    attach, detach = AttachVolume(vm=VM, volume=VOLUME), DetachVolume(vm=VM, volume=VOLUME)
    one.storage.data.attach(attach)
    one.storage.check_file_of(VM, str(one.mount_point / "data" / VOLUME))
    refused("volume.in_use", Conflict, lambda: one.storage.data.attach(AttachVolume(vm=other, volume=VOLUME)))
    one.storage.data.detach(detach)
    two.storage.data.attach(AttachVolume(vm=other, volume=VOLUME))
    refused("volume.in_use", Conflict, lambda: two.storage.data.delete(DeleteDataVolume(volume=VOLUME)))
    two.storage.data.detach(DetachVolume(vm=other, volume=VOLUME))
    assert one.storage.data.snapshots() == two.storage.data.snapshots() == ()
    assert one.storage.data.delete(DeleteDataVolume(volume=VOLUME)).changed
    assert list((one.shared / "data").iterdir()) == []
    refused("volume.missing", NotFound, lambda: two.storage.data.attach(attach))


def test_a_copy_of_a_volume_leaves_its_pool_for_the_hosts_own_disk_and_comes_back(disks: tuple[Host, Host]) -> None:
    (one, two), size = disks, 16 * MIB
    data, pool = one.storage.paths.data, one.mount_point / "data"
    own, back = f"twin.{OTHER}.raw", f"back.{OTHER}.{POOL}.raw"

    def copy_whole(_: str | None, source: Path, part: Path) -> str:
        copy_raw(source, part, limit_s=60, ended=threading.Event())
        return ""

    one.storage.data.create(CreateDataVolume(volume=VOLUME, size_bytes=size))
    with (pool / VOLUME).open("r+b") as file:
        file.write(b"written" * 1000)
    assert one.storage.data.copy(CopyDataVolume(volume=own, of=VOLUME, size_bytes=size), copy_whole).changed
    assert [known.name for known in one.storage.data.snapshots()] == [own], "the ledger has it"
    assert one.storage.data.copy(CopyDataVolume(volume=back, of=own, size_bytes=2 * size), copy_whole).changed
    assert (pool / back).read_bytes()[:7000] == (data / own).read_bytes()[:7000] == b"written" * 1000
    assert ((data / own).stat().st_size, (pool / back).stat().st_size) == (size, 2 * size)
    two.storage.data.attach(AttachVolume(vm=VM, volume=back))
    taken = CopyDataVolume(volume=f"late.{OTHER}.raw", of=back, size_bytes=2 * size)
    refused("pool.held_elsewhere", Conflict, lambda: one.storage.data.copy(taken, copy_whole))


def test_a_move_sends_uefi_variables_and_nothing_of_the_disk(disks: tuple[Host, Host]) -> None:
    one, two = disks
    one.storage.nvram.put(VM, b"variables" * 1000)
    with written_by_qemu(one.disk):
        pass
    digest = next((one.shared / "images").iterdir()).name.partition(".")[0]
    copy = VolumeCopy(vm=VM, volume=DISK, base_sha256=digest, base_format="raw", size_bytes=64 * MIB)
    two.storage.shared.share(ShareDisks(vm=VM, files=(DISK,)))
    before = one.disk.read_bytes()
    stream = b"".join(volume_copies.records(one.storage, VM, volume_copies.check_may_go(one.storage, VM, DISK)))
    assert len(stream) < 16 * 1024
    volume_copies.check_may_come(two.storage, copy)
    volume_copies.take(two.storage, copy, io.BytesIO(stream).read)
    assert two.storage.nvram.content(VM) == b"variables" * 1000
    assert two.disk.read_bytes() == before


def test_a_host_leaves_all_disks_of_a_vm_that_runs_elsewhere(disks: tuple[Host, Host]) -> None:
    one, two = disks
    one.storage.data.create(CreateDataVolume(volume=VOLUME, size_bytes=64 * MIB))
    one.storage.data.attach(AttachVolume(vm=VM, volume=VOLUME))
    two.storage.shared.share(ShareDisks(vm=VM, files=(DISK, VOLUME), taken=True))
    assert one.storage.shared.leave(LeaveDisks(vm=VM, files=())).changed
    assert one.storage.shared.observe()[1] == ()
    two.storage.data.detach(DetachVolume(vm=VM, volume=VOLUME))
    assert one.storage.data.attach(AttachVolume(vm="another", volume=VOLUME)).changed


def test_a_pool_in_use_is_not_withdrawn(disks: tuple[Host, Host]) -> None:
    one, two = disks
    withdraw = WithdrawPool(name="fast", pool_id=POOL_ID)
    refused("pool.in_use", Conflict, lambda: two.storage.pools.withdraw(withdraw))
    one.storage.delete_volume(VM, DISK)
    assert two.storage.pools.withdraw(withdraw).changed
    assert not one.storage.pools.withdraw(withdraw).changed
    assert list(one.shared.iterdir()) == []


def test_only_files_of_pools_are_shared(disks: tuple[Host, Host]) -> None:
    for file in (f"{VM}.qcow2", "../../etc/passwd", f"../{DISK}"):
        with pytest.raises(InvalidInput):
            disks[0].storage.shared.share(ShareDisks(vm=VM, files=(file,), taken=True))
        with pytest.raises(InvalidInput):
            disks[0].storage.shared.leave(LeaveDisks(vm=VM, files=(file,)))


def test_a_file_system_that_hangs_keeps_no_observation_waiting(
    disks: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = disks
    answers, asked = threading.Event(), []
    statvfs = os.statvfs

    def hangs(path: Path) -> os.statvfs_result:
        asked.append(path)
        answers.wait(30)
        return statvfs(path)

    monkeypatch.setattr(pools_module, "_LIMIT_S", 0.05)
    monkeypatch.setattr(os, "statvfs", hangs)
    for _ in range(2):
        (pool,), seen = one.storage.shared.observe()
        assert (pool.pool_id, seen) == (None, ())
        assert "does not answer" in str(pool.problem)
    assert len(asked) == 1, "it is not asked again before it has answered"
    answers.set()
    monkeypatch.setattr(pools_module, "_LIMIT_S", 10.0)
    one.storage.pools._overdue["fast"].result(10)
    (pool,), _ = one.storage.shared.observe()
    assert pool.pool_id == POOL_ID
