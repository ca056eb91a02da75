# SPDX-License-Identifier: Apache-2.0
"""Backups with the real restic and qemu-img: what was on the disk comes back, little is added by the next one, and what
ends in the middle leaves nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent import copies
from orchestrator.agent.images import repository as agent_backups
from orchestrator.agent.process import Finished, run
from orchestrator.core.actions.backups import FetchBackup, RemoveBackup, StoreBackup, UsesRepository, VerifyBackup
from orchestrator.core.actions.disk_snapshots import RestoreSnapshot, TakeSnapshot
from orchestrator.core.actions.host_actions import CreateVolume, DefineDomain, DeleteVolume, FencingToken
from orchestrator.core.errors import Conflict, Fatal, NotFound, Retryable, Unknown
from orchestrator.core.vms.backup import repository_password
from orchestrator.core.vms.disk_snapshot import snapshot_file
from tests.unit.agent.bench import Bench, domain_of

SIZE = 64 * 2**20
SECRET = "of the target"


def qemu(program: str, *args: str | Path) -> None:
    subprocess.run([program, *map(str, args)], check=True, capture_output=True)


@dataclass
class Site:
    """The bench's VM with a larger disk, and a target that is mounted."""

    bench: Bench
    number: int = 0

    @property
    def volumes(self) -> Path:
        return self.bench.storage.paths.volumes

    @property
    def disk(self) -> Path:
        return self.volumes / f"{self.bench.vm}.qcow2"

    @property
    def repository(self) -> Path:
        return self.bench.storage.paths.backups / "nas" / self.bench.vm

    def mount(self, *, mounted: bool = True) -> None:
        point = self.bench.storage.paths.backups / "nas"
        point.mkdir(parents=True, exist_ok=True)
        info = self.bench.storage.paths.proc / "self/mountinfo"
        info.parent.mkdir(parents=True, exist_ok=True)
        info.write_text(f"36 35 0:50 / {point} rw - nfs4 nas:/b rw\n" if mounted else "")

    def write(self, content: bytes, at: int) -> None:
        piece = self.volumes.parent / "piece"
        piece.write_bytes(content)
        qemu("qemu-io", "-f", "qcow2", "-c", f"write -s {piece} {at} {len(content)}", self.disk)

    def shown(self) -> bytes:
        out = self.volumes.parent / "shown.raw"
        qemu("qemu-img", "convert", "-f", "qcow2", "-O", "raw", self.disk, out)
        return out.read_bytes()

    def do(self, action: UsesRepository) -> str:
        return self.bench.do(action).message

    def members(self, number: int) -> dict[str, Any]:
        vm = self.bench.vm
        return {
            "target": "nas", "of_vm": vm, "password": repository_password(SECRET, vm),
            "backup": f"{number:036}", "size_bytes": SIZE,
        }  # fmt: skip

    def snapshot(self, number: int) -> str:
        return snapshot_file(self.bench.vm, f"{number:036}")

    def store_of(self, number: int) -> StoreBackup:
        return StoreBackup(
            disk=self.disk.name, volume=self.snapshot(number), vm_name="default/train", **self.members(number)
        )

    def take(self, number: int) -> StoreBackup:
        vm, volume = self.bench.vm, self.snapshot(number)
        self.bench.do(TakeSnapshot(vm=vm, disk=self.disk.name, volume=volume, size_bytes=SIZE))
        return self.store_of(number)

    def back_up(self, number: int) -> int:
        """By how many bytes the repository grew."""
        said = self.do(self.take(number))
        self.bench.do(DeleteVolume(vm=self.bench.vm, volume=self.snapshot(number)))
        return int(said)

    def fetch_of(self, number: int) -> FetchBackup:
        vm, volume = self.bench.vm, self.snapshot(number)
        return FetchBackup(vm=vm, volume=volume, disk_bytes=SIZE, **self.members(number))

    def put_back(self, number: int) -> None:
        vm, volume = self.bench.vm, self.snapshot(number)
        self.do(self.fetch_of(number))
        self.bench.do(RestoreSnapshot(vm=vm, disk=self.disk.name, volume=volume, size_bytes=SIZE))
        self.bench.do(DeleteVolume(vm=vm, volume=volume))

    def stored(self) -> int:
        """Bytes of whole packs in the repository; what was being written when restic was killed is at most two more."""
        packs = [path for path in (self.repository / "data").rglob("*") if path.is_file() and "-tmp-" not in path.name]
        return sum(path.stat().st_size for path in packs)

    def names(self) -> set[str]:
        return {path.name for path in self.volumes.iterdir()}


def furnished_site(furnished: Bench) -> Site:
    vm = furnished.vm
    (image,) = furnished.storage.paths.images.iterdir()
    furnished.do(DeleteVolume(vm=vm, volume=f"{vm}.qcow2"))
    of_image: dict[str, Any] = {"base_sha256": image.stem, "base_format": "raw"}
    furnished.do(CreateVolume(vm=vm, volume=f"{vm}.qcow2", size_bytes=SIZE, **of_image))
    furnished.do(DefineDomain(vm=vm, domain=domain_of(vm)))
    made = Site(furnished)
    made.mount()
    made.write(b"\xab" * 2**16 + os.urandom(8 * 2**20), 4 * 2**20)
    return made


@pytest.fixture
def site(furnished: Bench) -> Site:
    return furnished_site(furnished)


def test_one_writes_no_more_in_a_second_than_it_may(site: Site) -> None:
    most = 2 * 2**20
    site.write(os.urandom(3 * most), 0)
    action = replace(site.take(1), max_bytes_per_s=most)
    assert action.limit_s == 1800 + SIZE // most
    began = time.monotonic()
    site.do(action)
    assert time.monotonic() - began > 2.5


def test_a_disk_is_again_as_it_was_and_the_next_backup_adds_what_was_written(site: Site) -> None:
    before, then = site.names(), site.shown()
    assert 8 * 2**20 < site.back_up(1) < 1.3 * 8 * 2**20
    site.write(os.urandom(4 * 2**20), 40 * 2**20)
    now = site.shown()
    added = site.back_up(2)
    assert 4 * 2**20 < added <= 1.3 * 4 * 2**20, f"{added / 2**20:.1f} MiB for 4 MiB"
    for number, content in ((1, then), (2, now)):
        site.put_back(number)
        assert site.shown() == content
        assert site.do(VerifyBackup(**site.members(number))) == ""
    assert site.names() == before
    site.do(RemoveBackup(**site.members(1)))
    site.put_back(2)
    assert site.shown() == now
    with pytest.raises(NotFound) as gone:
        site.put_back(1)
    assert gone.value.code == "backup.missing"
    assert site.names() == before


def test_asked_again_it_is_stored_once(site: Site) -> None:
    store = site.take(1)
    assert int(site.do(store)) > 0
    assert site.do(store) == ""
    site.do(replace(site.fetch_of(1), volume=site.snapshot(9)))
    assert not site.bench.do(replace(site.fetch_of(1), volume=site.snapshot(9))).changed


def test_a_larger_disk_takes_a_backup_and_a_smaller_one_does_not(site: Site) -> None:
    then = site.shown()
    site.back_up(1)
    larger = replace(site.fetch_of(1), disk_bytes=2 * SIZE, volume=site.snapshot(7))
    site.do(larger)
    out = site.volumes.parent / "larger.raw"
    qemu("qemu-img", "convert", "-f", "qcow2", "-O", "raw", site.volumes / larger.volume, out)
    assert out.read_bytes() == then + bytes(SIZE)
    with pytest.raises(Conflict) as refused:
        site.do(replace(site.fetch_of(1), disk_bytes=SIZE // 2, volume=site.snapshot(8)))
    assert refused.value.code == "backup.larger"
    assert site.snapshot(8) not in site.names()
    assert site.bench.ledger.owner(f"volume:{site.snapshot(8)}") is None


def test_what_comes_from_a_target_does_not_fill_the_hosts_disk(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A raw file first, then as much again: it ends while that is free."""
    site.back_up(1)
    before, looks = site.names(), []

    def nearly_full(_: int) -> os.statvfs_result:
        looks.append(0)
        return os.statvfs_result((1, 1, 0, 0, 2**20, 0, 0, 0, 0, 255))

    monkeypatch.setattr(os, "fstatvfs", nearly_full)
    with pytest.raises(Fatal) as refused:
        site.do(site.fetch_of(1))
    assert (refused.value.code, len(looks)) == ("host.disk_full", 1)
    assert site.names() == before


def test_one_that_is_shorter_than_was_stored_is_not_filled_up_with_zeros(site: Site) -> None:
    site.back_up(1)
    with pytest.raises(Fatal) as refused:
        site.do(replace(site.fetch_of(1), size_bytes=2 * SIZE, disk_bytes=2 * SIZE))
    assert refused.value.code == "backup.damaged"
    with pytest.raises(Conflict) as differs:
        site.do(replace(site.take(2), size_bytes=2 * SIZE))
    assert differs.value.code == "volume.differs"


def test_what_is_not_mounted_or_not_installed_is_told_before_anything_is_written(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = site.take(1)
    site.mount(mounted=False)
    with pytest.raises(NotFound) as absent:
        site.do(store)
    assert absent.value.code == "backup.no_target"
    assert not site.repository.exists()
    site.mount()
    monkeypatch.setattr(shutil, "which", lambda _, path: None)
    with pytest.raises(NotFound) as missing:
        site.do(store)
    assert (missing.value.code, "prepare-host" in (missing.value.hint or "")) == ("backup.no_restic", True)
    assert not site.repository.exists()


def test_another_password_opens_nothing(site: Site) -> None:
    site.back_up(1)
    with pytest.raises(Fatal) as refused:
        site.do(replace(site.fetch_of(1), password="another"))
    assert refused.value.code == "backup.password"
    assert "another" not in repr(replace(site.fetch_of(1), password="another"))


def test_a_target_that_is_made_anew_under_its_name_takes_backups(site: Site) -> None:
    """What the earlier one has left of a VM is no backup, and has the password that nobody knows any more."""
    site.back_up(1)
    anew = replace(site.take(2), password="of another secret")
    with pytest.raises(Fatal) as refused:
        site.do(anew)
    assert refused.value.code == "backup.password"
    site.do(RemoveBackup(**site.members(1)))
    assert int(site.do(anew)) > 0


def test_damage_is_found(site: Site) -> None:
    site.back_up(1)
    largest = max((path for path in (site.repository / "data").rglob("*") if path.is_file()), key=os.path.getsize)
    largest.chmod(0o600)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    with pytest.raises(Fatal) as refused:
        site.do(VerifyBackup(**site.members(1)))
    assert refused.value.code == "backup.failed"


def test_locks_of_the_dead_are_taken_away_and_those_of_others_are_not(site: Site) -> None:
    """A forget that was killed leaves a lock that keeps all others out."""
    site.back_up(1)
    environment = {**os.environ, "RESTIC_PASSWORD": repository_password(SECRET, site.bench.vm)}
    restic = ["restic", "--no-cache", "--repo", str(site.repository)]
    began = subprocess.Popen([*restic, "check", "--read-data"], env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not any("tmp" not in path.name for path in (site.repository / "locks").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(began.pid, 19)  # it goes no further
    try:
        with pytest.raises(Retryable) as busy:
            site.do(RemoveBackup(**site.members(1)))
        assert busy.value.code == "backup.busy"
    finally:
        began.kill()
        began.wait()
    site.do(RemoveBackup(**site.members(1)))
    assert not any(path.is_file() for path in (site.repository / "snapshots").iterdir())


def test_one_that_was_begun_and_not_ended_makes_place_for_another(site: Site) -> None:
    """The agent died while it made the repository: there is none that anything could be removed from."""
    assert not site.bench.do(RemoveBackup(**site.members(1))).changed
    site.repository.with_name(f"{site.bench.vm}.part").mkdir()
    (site.repository.with_name(f"{site.bench.vm}.part") / "keys").mkdir()
    site.back_up(1)
    assert not site.repository.with_name(f"{site.bench.vm}.part").exists()


def test_one_that_is_verified_for_nobody_is_read_no_further(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[threading.Event] = []

    def slow(_argv: list[str], _take: Any, *, ended: threading.Event, **_limits: Any) -> Finished:
        seen.append(ended)
        assert ended.wait(60)
        return Finished(1, "it was given up")

    site.back_up(1)
    monkeypatch.setattr(agent_backups, "pour", slow)
    monkeypatch.setattr(copies, "_ROUND_S", 0.05)
    verify = VerifyBackup(**site.members(1))
    token = FencingToken(site="s", epoch=1, operation="verify", attempt=1)
    while not seen:
        assert site.bench.performer.perform(verify, token).unfinished
    assert not site.bench.performer.perform(replace(verify, password="", given_up=True), token).unfinished
    assert seen[0].is_set()


@pytest.mark.parametrize("which", ["store", "fetch"])
def test_what_is_ended_in_the_middle_leaves_nothing(site: Site, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """restic sleeps; whoever takes the operation back deletes the snapshot."""
    site.back_up(2)
    store = site.take(1)
    fetch = replace(site.fetch_of(2), volume=site.snapshot(9))
    action, volume = (store, store.volume) if which == "store" else (fetch, fetch.volume)
    before = site.names() - {volume}
    began = threading.Event()

    def slow(argv: list[str], *more: Any, **options: Any) -> Finished:
        if not {"backup", "dump"} & set(argv):
            return run(argv, *more, **options)
        began.set()
        options.pop("stdin", None)
        return run(["sleep", "600"], **options)

    monkeypatch.setattr(agent_backups, "run", slow)
    monkeypatch.setattr(agent_backups, "pour", lambda argv, _take, **options: slow(argv, **options))
    monkeypatch.setattr(copies, "_ROUND_S", 0.05)
    token = FencingToken(site="s", epoch=1, operation="long", attempt=1)
    while not began.is_set():
        assert site.bench.performer.perform(action, token).unfinished
    assert site.bench.performer.perform(action, token).unfinished
    site.bench.performer.perform(DeleteVolume(vm=site.bench.vm, volume=volume), token)
    assert site.names() == before
    assert site.bench.ledger.owner(f"volume:{volume}") is None


def test_what_one_that_did_not_end_has_put_there_is_taken_away(site: Site) -> None:
    """The target would stay full of what nothing names: no backup is listed that could be deleted."""
    site.back_up(1)
    before = site.stored()
    store = site.take(2)
    raw = site.volumes.parent / "more.raw"
    raw.write_bytes(os.urandom(96 * 2**20))
    environment = {**os.environ, "RESTIC_PASSWORD": store.password}
    words = ["backup", "--quiet", "--tag", store.backup, "--stdin", "--stdin-filename", "disk"]
    with raw.open("rb") as disk:
        began = subprocess.Popen(
            ["restic", "--no-cache", "--repo", str(site.repository), *words], env=environment, stdin=disk
        )
    deadline = time.monotonic() + 30
    while site.stored() < before + 2**24:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    began.kill()
    began.wait()
    site.do(RemoveBackup(**site.members(2)))
    assert site.stored() == before
    site.do(VerifyBackup(**site.members(1)))


def test_a_target_that_does_not_answer_keeps_nobody(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(argv: list[str], **options: Any) -> Finished:
        return run(["sleep", "600"] if argv[0] == "stat" else argv, **options)

    monkeypatch.setattr(agent_backups, "run", hangs)
    monkeypatch.setattr(agent_backups, "_STAT_S", 0.2)
    with pytest.raises(Unknown) as silent:
        site.do(RemoveBackup(**site.members(1)))
    assert silent.value.code == "backup.hung"


def test_a_repository_that_cannot_be_looked_at_is_not_taken_for_none(site: Site) -> None:
    """As where the server of an NFS mount has another file system there by now."""
    site.repository.symlink_to(site.repository)
    with pytest.raises(Fatal) as refused:
        site.do(RemoveBackup(**site.members(1)))
    assert refused.value.code == "backup.failed"


def test_a_target_that_is_full_says_so() -> None:
    said = "Fatal: unable to save snapshot: write /b/x: no space left on device"
    told = agent_backups._error_of(said)
    assert (told.code, told.details) == ("backup.target_full", said)


def test_the_password_is_what_openssl_says() -> None:
    printed = subprocess.run(
        ["openssl", "dgst", "-sha256", "-hmac", SECRET], input=b"vm", capture_output=True, check=True
    )
    assert printed.stdout.decode().split()[-1] == repository_password(SECRET, "vm")
