# SPDX-License-Identifier: Apache-2.0
"""Data volumes are files that the ledger knows, and a definition takes those alone that its VM has."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent import copies
from orchestrator.agent.images import data_volumes, disk_images, files
from orchestrator.agent.libvirt.disk_snapshots import SnapshotsOfDisks
from orchestrator.core.actions.host_actions import (
    ActionResult,
    DefineDomain,
    FencingToken,
    HostAction,
    StartDomain,
    StopDomain,
)
from orchestrator.core.actions.settle_ledger import KnownVolume, SettleLedger
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CopyDataVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
    ReplaceDataVolume,
)
from orchestrator.core.errors import Conflict, InvalidInput, NotFound, VgpuctlError
from tests.unit.agent.bench import Bench, domain_of
from tests.unit.agent.test_copies import slowly

ID = "3f2a91c0-7be4-4c55-9f9c-0f6bb5a3f1c2"
FILE = f"data.{ID}.raw"
OTHER = "0d1a4c2e-3a7f-4c55-9f9c-0f6bb5a3f1c2"
COPY, BACK = f"before.{OTHER}.raw", "11111111-3a7f-4c55-9f9c-0f6bb5a3f1c2"
SIZE = 64 * 1024**2


def fill(path: Path, text: bytes) -> None:
    """In its middle."""
    with path.open("r+b") as file:
        file.seek(SIZE // 2)
        file.write(text.ljust(4096, b"\0"))


def content(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(SIZE // 2)
        return file.read(4096).rstrip(b"\0")


@pytest.fixture
def bench(furnished: Bench) -> Bench:
    return furnished


def refused(code: str, kind: type[VgpuctlError], call: Callable[[], ActionResult]) -> None:
    with pytest.raises(kind) as error:
        call()
    assert error.value.code == code


def test_a_volume_is_made_with_holes_once_and_removed_once(bench: Bench) -> None:
    path = bench.host.paths.data / FILE
    assert bench.do(CreateDataVolume(volume=FILE, size_bytes=SIZE)).changed
    assert not bench.do(CreateDataVolume(volume=FILE, size_bytes=SIZE)).changed
    (seen,) = bench.storage.data.snapshots()
    assert (path.stat().st_size, path.stat().st_mode & 0o777, seen.owner) == (SIZE, 0o600, ID)
    assert (seen.size_bytes < SIZE, seen.length_bytes) == (True, SIZE), "what it takes, and what it may take"
    refused("volume.differs", Conflict, lambda: bench.do(CreateDataVolume(volume=FILE, size_bytes=2 * SIZE)))
    assert bench.do(DeleteDataVolume(volume=FILE)).changed
    assert not bench.do(DeleteDataVolume(volume=FILE)).changed
    assert not path.exists()


def test_one_that_is_removed_while_the_host_is_looked_at_fails_no_look(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    monkeypatch.setattr(files, "taken", lambda path: path.unlink() or 0)
    (seen,) = bench.storage.data.snapshots()
    assert (seen.size_bytes, seen.length_bytes) == (0, 0)


def test_one_vm_has_a_volume_and_gives_it_back(bench: Bench) -> None:
    attach, detach = AttachVolume(vm=bench.vm, volume=FILE), DetachVolume(vm=bench.vm, volume=FILE)
    refused("volume.missing", NotFound, lambda: bench.do(attach))
    bench.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    assert [bench.do(attach).changed, bench.do(attach).changed] == [True, False]
    refused("volume.in_use", Conflict, lambda: bench.do(AttachVolume(vm=OTHER, volume=FILE)))
    refused("volume.in_use", Conflict, lambda: bench.do(DeleteDataVolume(volume=FILE)))
    assert not bench.do(DetachVolume(vm=OTHER, volume=FILE)).changed
    assert [bench.do(detach).changed, bench.do(detach).changed] == [True, False]
    assert bench.do(AttachVolume(vm=OTHER, volume=FILE)).changed


def test_a_definition_takes_the_volumes_that_its_vm_has_and_no_other(bench: Bench) -> None:
    define = DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), data=(FILE,)))
    refused("vm.file_foreign", Conflict, lambda: bench.do(define))
    bench.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    refused("vm.file_foreign", Conflict, lambda: bench.do(define))
    bench.do(AttachVolume(vm=OTHER, volume=FILE))
    refused("vm.file_foreign", Conflict, lambda: bench.do(define))
    bench.do(DetachVolume(vm=OTHER, volume=FILE))
    bench.do(AttachVolume(vm=bench.vm, volume=FILE))
    assert bench.do(define).changed
    assert not bench.do(define).changed
    bench.do(StartDomain(vm=bench.vm))
    bench.do(StopDomain(vm=bench.vm, grace_seconds=0))
    bench.do(DetachVolume(vm=bench.vm, volume=FILE))
    refused("vm.file_foreign", Conflict, lambda: bench.do(StartDomain(vm=bench.vm)))


@pytest.mark.parametrize(
    "file",
    [f"data.{ID}", f"data.{ID}.qcow2", f"../volumes/data.{ID}.raw", "data.raw", f"data.{ID.upper()}.raw", f".{ID}.raw"],
)
def test_nothing_but_a_volumes_own_file_is_one(bench: Bench, file: str) -> None:
    for action in (
        CreateDataVolume(volume=file, size_bytes=SIZE),
        DeleteDataVolume(volume=file),
        AttachVolume(vm=bench.vm, volume=file),
        DetachVolume(vm=bench.vm, volume=file),
    ):
        with pytest.raises(InvalidInput):
            bench.do(action)


def test_a_file_that_we_did_not_make_and_a_link_are_left_alone(bench: Bench, tmp_path: Path) -> None:
    path, elsewhere = bench.host.paths.data / FILE, tmp_path / "elsewhere"
    elsewhere.write_bytes(b"theirs")
    actions: tuple[HostAction, ...] = (
        CreateDataVolume(volume=FILE, size_bytes=SIZE),
        DeleteDataVolume(volume=FILE),
        AttachVolume(vm=bench.vm, volume=FILE),
    )
    for make in (lambda: path.write_bytes(b"theirs"), lambda: path.symlink_to(elsewhere)):
        make()
        for action in actions:
            with pytest.raises(Conflict) as error:
                bench.do(action)
            assert error.value.code == "host.foreign_file"
        path.unlink()
    assert elsewhere.read_bytes() == b"theirs"


def test_what_a_process_has_open_is_neither_detached_nor_removed(bench: Bench) -> None:
    bench.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    bench.do(AttachVolume(vm=bench.vm, volume=FILE))
    held = bench.host.paths.proc / "4711" / "fd"
    held.mkdir(parents=True)
    (held / "9").symlink_to(bench.host.paths.data / FILE)
    refused("volume.in_use", Conflict, lambda: bench.do(DetachVolume(vm=bench.vm, volume=FILE)))
    (held / "9").unlink()
    assert bench.do(DetachVolume(vm=bench.vm, volume=FILE)).changed


def test_a_lost_ledger_knows_volumes_again_and_who_has_them(bench: Bench) -> None:
    bench.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    bench.do(AttachVolume(vm=bench.vm, volume=FILE))
    for key in (f"data:{FILE}", f"attached:{FILE}"):
        bench.ledger.release(key)
    with bench.ledger.file.write():
        bench.ledger.file.set_meta("lost", "1")
    known = (KnownVolume(volume=FILE, vm=bench.vm), KnownVolume(volume=f"gone.{OTHER}.raw", vm=None))
    assert bench.do(SettleLedger(gpus=(), functions=(), vms=(), data=known)).changed
    assert (bench.storage.data.user(FILE), bench.storage.data.snapshots()[0].owner) == (bench.vm, ID)
    refused("volume.in_use", Conflict, lambda: bench.do(AttachVolume(vm=OTHER, volume=FILE)))


def test_a_copy_has_what_was_on_it_and_holes(bench: Bench) -> None:
    source, copy = bench.host.paths.data / FILE, bench.host.paths.data / COPY
    taken = CopyDataVolume(volume=COPY, of=FILE, size_bytes=2 * SIZE)
    refused("volume.missing", NotFound, lambda: bench.do(taken))
    bench.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    fill(source, b"first")
    assert bench.do(taken).changed
    fill(source, b"second")
    assert not bench.do(taken).changed
    assert (content(copy), copy.stat().st_size, copy.stat().st_mode & 0o777) == (b"first", 2 * SIZE, 0o600)
    assert files.taken(copy) < 2**20
    assert {seen.name: seen.owner for seen in bench.storage.data.snapshots()} == {FILE: ID, COPY: OTHER}
    smaller = CopyDataVolume(volume=f"more.{ID}.raw", of=FILE, size_bytes=SIZE // 2)
    refused("volume.differs", Conflict, lambda: bench.do(smaller))
    assert bench.do(DeleteDataVolume(volume=COPY)).changed
    assert [seen.name for seen in bench.storage.data.snapshots()] == [FILE]


@pytest.mark.parametrize("copied", [True, False])
def test_what_is_put_back_is_whole_and_stays_as_large(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """``copied``: as before; else the copy is gone, as after an answer that was lost."""
    volume, back = bench.host.paths.data / FILE, f"copy-1.{BACK}.raw"
    bench.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    bench.do(AttachVolume(vm=bench.vm, volume=FILE))
    fill(volume, b"first")
    bench.do(CopyDataVolume(volume=COPY, of=FILE, size_bytes=SIZE))
    fill(volume, b"second")
    put = ReplaceDataVolume(volume=FILE, of=COPY, copy=back, size_bytes=2 * SIZE)
    if copied:
        bench.do(CopyDataVolume(volume=back, of=COPY, size_bytes=2 * SIZE))
    with monkeypatch.context() as while_it_is_open:
        while_it_is_open.setattr(type(bench.storage.data), "is_open", lambda *_: True)
        refused("volume.in_use", Conflict, lambda: bench.do(put))
    assert content(volume) == b"second"
    for _ in range(2):
        bench.do(put)
        assert (content(volume), volume.stat().st_size) == (b"first", 2 * SIZE)
    assert {seen.name for seen in bench.storage.data.snapshots()} == {FILE, COPY}
    assert bench.storage.data.user(FILE) == bench.vm
    refused("volume.differs", Conflict, lambda: bench.do(replace(put, size_bytes=SIZE)))


def test_a_volume_that_says_what_lies_beneath_it_is_copied_as_it_is(bench: Bench) -> None:
    """A guest writes any header into a raw disk: no file of the host is opened for it."""
    source, secret = bench.host.paths.data / FILE, bench.host.paths.storage / "secret.raw"
    secret.write_bytes(b"hidden" * 100_000)
    bench.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    planted = bench.host.paths.storage / "planted"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-b", secret, "-F", "raw", planted], check=True, capture_output=True
    )
    header = planted.read_bytes()
    with source.open("r+b") as file:
        file.write(header)
    bench.do(CopyDataVolume(volume=COPY, of=FILE, size_bytes=SIZE))
    assert (bench.host.paths.data / COPY).read_bytes()[: len(header)] == header


def test_a_volume_that_its_vm_writes_is_copied_by_libvirt(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a raw file that is there before, as it has the volume's size."""
    bench.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    bench.do(AttachVolume(vm=bench.vm, volume=FILE))
    volume = bench.host.paths.data / FILE
    fill(volume, b"first")
    asked: list[tuple[Path, str, int]] = []

    def copies(self: SnapshotsOfDisks, vm: str, disks: Any, *_: object) -> None:
        assert vm == bench.vm
        (only,) = disks
        asked.append((only.disk, only.kind, only.part.stat().st_size))
        fill(only.part, b"as it was")

    monkeypatch.setattr(SnapshotsOfDisks, "_copy_running", copies)
    monkeypatch.setattr(type(bench.domains), "is_active", lambda *_: True)
    bench.do(CopyDataVolume(volume=COPY, of=FILE, size_bytes=SIZE))
    assert asked == [(volume, "raw", SIZE)]
    assert content(bench.host.paths.data / COPY) == b"as it was"


def test_removing_a_copy_ends_it_and_leaves_what_is_copied(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    monkeypatch.setattr(copies, "_ROUND_S", 0.1)
    ends = slowly(monkeypatch)
    taken = CopyDataVolume(volume=COPY, of=FILE, size_bytes=SIZE)
    token = FencingToken(site="s", epoch=1, operation="o", attempt=1)
    assert bench.performer.perform(taken, token).unfinished
    other = CreateDataVolume(volume=f"more.{BACK}.raw", size_bytes=SIZE)
    bench.performer.perform(other, replace(token, operation="p"))
    assert bench.performer.perform(taken, token).unfinished, "nothing that is done beside it ends it"
    assert ends == []
    bench.performer.perform(DeleteDataVolume(volume=COPY), token)
    assert ends == ["ended"]
    assert sorted(path.name for path in bench.host.paths.data.iterdir()) == [FILE, other.volume]


def test_a_removal_waits_for_what_makes_the_volume(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the answer was lost: else the file came after it, and was nobody's."""
    begun, free, removed = threading.Event(), threading.Event(), threading.Event()
    make = disk_images.make_raw

    def slowly_made(path: Path, size_bytes: int) -> None:
        begun.set()
        assert free.wait(10)
        make(path, size_bytes)

    def remove() -> None:
        bench.do(DeleteDataVolume(volume=FILE))
        removed.set()

    monkeypatch.setattr(data_volumes, "make_raw", slowly_made)
    with ThreadPoolExecutor(2) as both:
        made = both.submit(bench.do, CreateDataVolume(volume=FILE, size_bytes=SIZE))
        assert begun.wait(10)
        gone = both.submit(remove)
        early = removed.wait(0.3)
        free.set()
        made.result(10)
        gone.result(10)
    assert not early
    assert list(bench.host.paths.data.iterdir()) == []


def test_what_a_host_that_died_has_left_of_a_copy_goes_with_its_volume(bench: Bench) -> None:
    """In a pool no start of an agent may remove it: another host may be writing."""
    data = bench.host.paths.data
    left, others = data / f"{FILE}.part-0a1b", data / f"{COPY}.part-0a1b"
    for part in (left, others):
        part.write_bytes(b"half")
    bench.do(DeleteDataVolume(volume=FILE))
    assert (left.exists(), others.exists()) == (False, True)
