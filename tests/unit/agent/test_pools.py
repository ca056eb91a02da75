# SPDX-License-Identifier: Apache-2.0
"""A pool as two agents have it: one directory that both have mounted, with real files, leases and QEMU's locks."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import pytest

from orchestrator.agent.images import disk_images, volume_copies
from orchestrator.agent.images import pools as pools_module
from orchestrator.agent.images.disk_images import read_header
from orchestrator.agent.images.pools import MARKER
from orchestrator.agent.images.store import Storage
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.core.actions.host_actions import CreateVolume
from orchestrator.core.actions.pools import DeclarePool, LeaveDisks, ShareDisks, WithdrawPool
from orchestrator.core.actions.settle_ledger import KnownVolume
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.actions.volumes import AttachVolume, CreateDataVolume, DeleteDataVolume, DetachVolume
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, NotFound, Retryable
from orchestrator.core.hosts.pool import disk_file, on_hosts, pool_of
from tests.unit.agent.refusals import refused

MIB = 1024 * 1024
POOL_ID, VM = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10", "0d9c1a52-7f0e-4a53-8c8e-2f4a1e7b6c11"
POOL = on_hosts("fast", POOL_ID)
DISK, VOLUME = disk_file(VM, POOL), f"data.{VM}.{POOL}.raw"
DECLARE = DeclarePool(name="fast", pool_id=POOL_ID)


@dataclass
class Host:
    """An agent's storage, and the file that says what is mounted."""

    storage: Storage
    shared: Path

    @property
    def mount_point(self) -> Path:
        return self.storage.paths.pools / "fast"

    def mount(self, directory: Path | None, how: str = "nfs4 nas:/fast rw,vers=4.2") -> None:
        """None: nothing is mounted, and an empty directory is seen."""
        if self.mount_point.is_symlink():
            self.mount_point.unlink()
        if directory is None:
            self.mount_point.mkdir()
        else:
            if self.mount_point.is_dir():
                self.mount_point.rmdir()
            self.mount_point.symlink_to(directory)
        line = f"36 35 0:50 / {self.mount_point} rw - {how}\n"
        (self.storage.paths.proc / "self/mountinfo").write_text("" if directory is None else line)

    @property
    def disk(self) -> Path:
        return self.mount_point / "volumes" / DISK


def _host(directory: Path, shared: Path) -> Host:
    root = directory / "root"
    for part in ("proc/self", "etc"):
        (root / part).mkdir(parents=True)
    (root / "etc/machine-id").write_text(f"{directory.name * 16}\n")
    paths = Paths(root=root, storage=directory / "storage")
    host = Host(Storage(paths, Ledger(paths.ledger, site="s", epoch=1, boot_id="b")), shared)
    host.mount(shared)
    return host


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[Host, Host]:
    shared = tmp_path / "shared"
    shared.mkdir()
    one, two = (_host(tmp_path / name, shared) for name in ("aa", "bb"))
    return one, two


@pytest.fixture
def disks(hosts: tuple[Host, Host]) -> tuple[Host, Host]:
    """With a disk that the first host has made, and its image there alone."""
    one, two = hosts
    one.storage.pools.declare(DECLARE)
    one.storage.create_volume(created(one))
    return one, two


def created(host: Host) -> CreateVolume:
    content = b"image" * 1000 + bytes(MIB - 5000)
    digest = sha256(content).hexdigest()
    host.storage.receive_image(digest, "raw", len(content), io.BytesIO(content).read)
    return CreateVolume(vm=VM, volume=DISK, base_sha256=digest, base_format="raw", size_bytes=64 * MIB)


@contextmanager
def written_by_qemu(path: Path) -> Iterator[None]:
    """QEMU has it open for writing, as a VM that runs."""
    process = subprocess.Popen(
        ["qemu-io", "-f", "qcow2", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("write -P 7 0 64k\n")
    process.stdin.flush()
    assert "wrote" in process.stdout.readline()
    try:
        yield
    finally:
        process.stdin.close()
        process.wait(timeout=10)


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
    assert (seen.name, seen.owner, unseen) == (DISK, VM, ())
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


def test_a_volume_goes_from_host_to_host_as_it_is_detached_and_attached(disks: tuple[Host, Host]) -> None:
    one, two = disks
    size, other = 64 * MIB, "9d9c1a52-7f0e-4a53-8c8e-2f4a1e7b6c11"
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


@pytest.mark.parametrize(
    "how",
    [
        "nfs nas:/fast rw,vers=3,addr=1.2.3.4",
        "nfs4 nas:/fast rw,vers=4.1,local_lock=all",
        "nfs nas:/f rw,vers=4.0,nolock",
    ],
)
def test_a_mount_whose_locks_other_hosts_do_not_see_is_no_pool(disks: tuple[Host, Host], how: str) -> None:
    one, two = disks
    two.mount(two.shared, how)
    (pool,), seen = two.storage.shared.observe()
    assert (pool.pool_id, seen) == (None, ())
    assert "mounted" in str(pool.problem)
    take = ShareDisks(vm=VM, files=(DISK,), taken=True)
    with written_by_qemu(one.disk):
        refused("pool.no_locks", Conflict, lambda: two.storage.shared.share(take))
    refused("pool.no_locks", Conflict, lambda: two.storage.pools.declare(DECLARE))
    two.mount(two.shared, "nfs4 nas:/fast rw,vers=4.2,local_lock=none")
    assert two.storage.shared.share(take).changed


def test_a_volume_is_neither_deleted_nor_attached_where_a_stopped_vm_of_another_host_has_it(
    disks: tuple[Host, Host],
) -> None:
    one, two = disks
    one.storage.data.create(CreateDataVolume(volume=VOLUME, size_bytes=64 * MIB))
    one.storage.data.attach(AttachVolume(vm=VM, volume=VOLUME))
    delete, attach = DeleteDataVolume(volume=VOLUME), AttachVolume(vm="another", volume=VOLUME)
    for taking in (lambda: two.storage.data.delete(delete), lambda: two.storage.data.attach(attach)):
        error = refused("pool.held_elsewhere", Conflict, taking)
        assert [reason.subjects for reason in error.reasons] == [("aa" * 16,)]
    assert (one.mount_point / "data" / VOLUME).exists()
    assert one.storage.pools.is_held_here(VOLUME)
    given_up = replace(attach, gone="aa" * 16)
    assert two.storage.data.attach(given_up).changed
    assert two.storage.pools.is_held_here(VOLUME)


def hanging(monkeypatch: pytest.MonkeyPatch, shared: Path) -> threading.Event:
    """All of the pool waits in the kernel until the event."""
    answers, opened = threading.Event(), os.open

    def open_late(path: str | Path, *args: int, **options: int) -> int:
        if shared in Path(path).resolve().parents and not answers.is_set():
            answers.wait(30)
        return opened(path, *args, **options)

    monkeypatch.setattr(pools_module, "_LIMIT_S", 0.05)
    monkeypatch.setattr(os, "open", open_late)
    return answers


def test_a_pool_that_hangs_keeps_nothing_of_the_hosts_own_disk_waiting(
    disks: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = disks
    wanted = created(one)
    own = replace(wanted, vm="another", volume="9d9c1a52-7f0e-4a53-8c8e-2f4a1e7b6c11.qcow2")
    copied, goes_on = threading.Event(), threading.Event()

    def copies_for_long(source: Path, target: Path) -> None:
        copied.set()
        goes_on.wait(30)
        Path(target).write_bytes(Path(source).read_bytes())

    for image in (one.shared / "images").iterdir():
        image.rename(one.shared / image.name)
    monkeypatch.setattr(shutil, "copyfile", copies_for_long)
    later = replace(wanted, vm="third", volume=disk_file("3d9c1a52-7f0e-4a53-8c8e-2f4a1e7b6c11", POOL))
    thread = threading.Thread(target=lambda: one.storage.create_volume(later))
    thread.start()
    assert copied.wait(10)
    assert one.storage.create_volume(own).changed, "while an image is copied into the pool"
    goes_on.set()
    thread.join(10)
    answers = hanging(monkeypatch, one.shared)
    refused("pool.silent", Retryable, lambda: one.storage.create_volume(replace(later, vm="fourth")))
    refused("pool.silent", Retryable, lambda: one.storage.delete_image(wanted.base_sha256, "raw"))
    assert one.storage.delete_volume("another", own.volume).changed
    assert one.storage.create_volume(own).changed
    answers.set()


def test_a_ledger_is_settled_while_the_pool_is_away(disks: tuple[Host, Host]) -> None:
    one, _ = disks
    one.storage.data.create(CreateDataVolume(volume=VOLUME, size_bytes=64 * MIB))
    one.storage.data.attach(AttachVolume(vm=VM, volume=VOLUME))
    one.storage.shared.leave(LeaveDisks(vm=VM, files=()))
    one.mount(None)
    one.storage.settle(VM, DISK, f"{VM}.iso")
    one.storage.data.settle((KnownVolume(volume=VOLUME, vm=VM),))
    one.mount_point.rmdir()
    one.mount(one.shared)
    one.storage.check_file_of(VM, str(one.disk))
    one.storage.check_file_of(VM, str(one.mount_point / "data" / VOLUME))
