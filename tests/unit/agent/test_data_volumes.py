# SPDX-License-Identifier: Apache-2.0
"""Data volumes are files that the ledger knows, and a definition takes those alone that its VM has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.images import files
from orchestrator.core.actions.host_actions import (
    ActionResult,
    DefineDomain,
    HostAction,
    StartDomain,
    StopDomain,
)
from orchestrator.core.actions.settle_ledger import KnownVolume, SettleLedger
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
)
from orchestrator.core.errors import Conflict, InvalidInput, NotFound, VgpuctlError
from tests.unit.agent.bench import Bench, domain_of

ID = "3f2a91c0-7be4-4c55-9f9c-0f6bb5a3f1c2"
FILE = f"data.{ID}.raw"
OTHER = "0d1a4c2e-3a7f-4c55-9f9c-0f6bb5a3f1c2"
SIZE = 64 * 1024**2


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
