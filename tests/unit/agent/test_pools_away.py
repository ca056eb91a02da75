# SPDX-License-Identifier: Apache-2.0
"""A pool that is away, hangs, or has no locks that others see; and what another host's stopped VM has there."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.images import files
from orchestrator.agent.images import pools as pools_module
from orchestrator.agent.images import store as store_module
from orchestrator.agent.images.pools import MARKER
from orchestrator.core.actions.pools import DeclarePool, LeaveDisks, ShareDisks, WithdrawPool
from orchestrator.core.actions.settle_ledger import KnownVolume
from orchestrator.core.actions.volumes import AttachVolume, CreateDataVolume, DeleteDataVolume
from orchestrator.core.errors import Conflict, Retryable
from orchestrator.core.hosts.pool import disk_file
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


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Host, Host]:
    return with_disk(two_hosts(tmp_path))


@pytest.mark.parametrize(
    "how",
    [
        "nfs nas:/fast rw,vers=3,addr=1.2.3.4",
        "nfs4 nas:/fast rw,vers=4.1,local_lock=all",
        "nfs nas:/f rw,vers=4.0,nolock",
        "fuse.sshfs nas:/fast rw",
        "cifs //nas/fast rw,nobrl",
        "9p fast rw",
    ],
)
@pytest.mark.parametrize(
    "how_well", ["nfs4 nas:/fast rw,vers=4.2,local_lock=none", "ceph mon:/ rw", "xfs /dev/sdb1 rw"]
)
def test_a_mount_whose_locks_other_hosts_do_not_see_is_no_pool(
    disks: tuple[Host, Host], how: str, how_well: str
) -> None:
    one, two = disks
    two.mount(two.shared, how)
    (pool,), seen = two.storage.shared.observe()
    assert (pool.pool_id, seen) == (None, ())
    assert pool.problem
    take = ShareDisks(vm=VM, files=(DISK,), taken=True)
    with written_by_qemu(one.disk):
        refused("pool.no_locks", Conflict, lambda: two.storage.shared.share(take))
    refused("pool.no_locks", Conflict, lambda: two.storage.pools.declare(DECLARE))
    two.mount(two.shared, how_well)
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
    monkeypatch.setattr(store_module, "_BASES_S", 0.05)
    for _ in range(2):
        refused("pool.images_busy", Retryable, lambda: one.storage.delete_image("b" * 64, "qcow2"))
    assert one.storage.pools.home(POOL) == one.mount_point, "it is well"
    goes_on.set()
    thread.join(10)
    answers = hanging(monkeypatch, one.shared)
    refused("pool.silent", Retryable, lambda: one.storage.create_volume(replace(later, vm="fourth")))
    refused("pool.silent", Retryable, lambda: one.storage.delete_image(wanted.base_sha256, "raw"))
    assert one.storage.delete_volume("another", own.volume).changed
    assert one.storage.create_volume(own).changed
    answers.set()


def test_nothing_waits_longer_than_its_limit_for_a_pool_that_hangs(
    disks: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, two = disks
    answers = hanging(monkeypatch, two.shared)
    monkeypatch.setattr(pools_module, "_CHANGE_S", 0.05)
    for change in (
        lambda: two.storage.pools.declare(DECLARE),
        lambda: two.storage.pools.withdraw(WithdrawPool(name="fast", pool_id=POOL_ID)),
        lambda: two.storage.pools.hold(DISK, two.disk),
        lambda: two.storage.pools.let_go(DISK),
        lambda: two.storage.shared.share(ShareDisks(vm=VM, files=(DISK,))),
    ):
        refused("pool.silent", Retryable, change)
    answers.set()


def test_what_was_refused_as_silent_is_not_done_later(
    disks: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The VM runs where its disk was held by then, or the pool is known under another id."""
    one, two = disks
    answers, begun, synced = threading.Event(), threading.Event(), files.sync

    def sync_late(path: Path) -> None:
        begun.set()
        assert answers.wait(30)
        synced(path)

    monkeypatch.setattr(files, "sync", sync_late)
    monkeypatch.setattr(pools_module, "_CHANGE_S", 0.05)
    marker, held = one.shared / MARKER, one.shared / "leases" / DISK
    refused("pool.silent", Retryable, lambda: two.storage.pools.hold(DISK, two.disk))
    assert begun.is_set()
    marker.unlink()
    refused("pool.silent", Retryable, lambda: one.storage.pools.declare(DECLARE))
    answers.set()
    wait([question for host in disks for question in host.storage.pools._overdue.values()], 30)
    assert (held.read_text(), marker.exists()) == (f"{'aa' * 16}\n", False)


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


def test_what_cannot_be_read_does_not_count_as_not_there(
    disks: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = disks
    one.storage.data.create(CreateDataVolume(volume=VOLUME, size_bytes=64 * MIB))
    one.storage.data.attach(AttachVolume(vm=VM, volume=VOLUME))
    read, marker, fault, where = os.read, one.shared / MARKER, [errno.EIO], [one.shared]

    def read_with_fault(file: int, count: int) -> bytes:
        if fault and where[0] in Path(f"/proc/self/fd/{file}").resolve().parents:
            raise OSError(fault[0], os.strerror(fault[0]))
        return read(file, count)

    monkeypatch.setattr(os, "read", read_with_fault)
    for fault[0] in (errno.EIO, errno.ESTALE):
        for ask in (
            lambda: two.storage.pools.declare(DeclarePool(name="fast", pool_id=VM)),
            lambda: two.storage.pools.withdraw(WithdrawPool(name="fast", pool_id=POOL_ID)),
            lambda: two.storage.pools.home(POOL),
        ):
            refused("pool.unreadable", Retryable, ask)
    where[0] = one.shared / "leases"
    for look in (
        lambda: two.storage.pools.check_no_other(VOLUME, None),
        lambda: two.storage.data.delete(DeleteDataVolume(volume=VOLUME)),
        lambda: one.storage.delete_volume(VM, DISK),
    ):
        refused("pool.unreadable", Retryable, look)
    where[0] = one.shared
    (seen,), _ = two.storage.shared.observe()
    assert (seen.pool_id, str(seen.problem)[:19]) == (None, "it cannot be read: ")
    fault.clear()
    assert marker.read_text() == f"{POOL_ID}\n"
    assert one.storage.pools.is_held_here(VOLUME)
    assert (one.disk.exists(), (one.shared / "data" / VOLUME).exists()) == (True, True)


def test_what_another_host_has_written_is_seen_though_nfs_keeps_what_was_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = two_hosts(tmp_path)
    opened, missing = os.open, set[Path]()

    def open_over_nfs(path: Path, flags: int, *mode: int) -> int:
        """As a client of NFS 4 does (nfs(5), "Directory entry caching"): asked again when its directory is opened."""
        place = Path(path)
        if place.is_dir():
            missing.difference_update({name for name in missing if name.parent == place})
        elif flags & os.O_CREAT == 0 and not place.exists():
            missing.add(place)
        if place in missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", open_over_nfs)
    assert [pool.pool_id for pool in two.storage.shared.observe()[0]] == [None]
    one.storage.pools.declare(DECLARE)
    assert [pool.pool_id for pool in two.storage.shared.observe()[0]] == [POOL_ID]


def test_a_question_that_fails_in_any_way_is_an_answer(
    disks: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = disks
    monkeypatch.setattr(pools_module, "_LIMIT_S", 5.0)
    with pytest.raises(KeyError):
        one.storage.pools.within_limit("fast", {}.popitem)
    assert one.storage.pools.home(POOL) == one.mount_point
