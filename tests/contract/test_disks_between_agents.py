# SPDX-License-Identifier: Apache-2.0
"""A VM's disk goes from one agent to another through the controller, whole or not at all."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.agent.images import pool_disks, volume_copies
from orchestrator.agent.images.disk_images import read_header
from orchestrator.agent.images.files import is_partial
from orchestrator.agent.images.store import Storage
from orchestrator.core.actions.host_actions import ActionResult, CreateVolume, DeleteVolume, FencingToken
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.errors import Conflict, Denied, Fatal, Retryable, VgpuctlError
from tests.contract.agent_over_ssh import SITE, Chain, chain

MIB = 1024 * 1024
VM = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10"
DISK = f"{VM}.qcow2"


def token(attempt: int = 1) -> FencingToken:
    return FencingToken(site=SITE, epoch=1, operation="op", attempt=attempt)


@dataclass(frozen=True)
class Pair:
    source: Chain
    target: Chain
    link: SshHostLink
    copy: VolumeCopy

    def moved(self, copy: VolumeCopy | None = None, *, attempt: int = 1) -> ActionResult:
        ends = (self.source.host, token(attempt), self.target.host, token(attempt))
        return self.link.copy_volume(*ends, copy or self.copy, lambda _: None)

    def disks(self) -> list[Path]:
        """What has come, once the target's agent has noticed the end of the stream."""
        settled = time.monotonic() + 10.0
        while True:
            found = list((self.target.storage / "volumes").iterdir())
            if not any(is_partial(path) for path in found) or time.monotonic() > settled:
                return found
            time.sleep(0.01)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """The source has a disk of which the guest has written 3 MiB far apart, and UEFI variables."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    image = tmp_path / "image.raw"
    image.write_bytes(os.urandom(MIB))
    sha256 = hashlib.sha256(image.read_bytes()).hexdigest()
    with chain(tmp_path / "one") as one, chain(tmp_path / "two", one.key_file) as two:
        link = SshHostLink(site=SITE, key_file=one.key_file)
        target = dataclasses.replace(two, host=dataclasses.replace(two.host, name="h2"))
        copy = VolumeCopy(vm=VM, volume=DISK, base_sha256=sha256, base_format="raw", size_bytes=64 * MIB)
        for host in (one.host, target.host):
            link.send_image(host, image, sha256, "raw", token())
        disk = CreateVolume(vm=VM, volume=DISK, base_sha256=sha256, base_format="raw", size_bytes=64 * MIB)
        link.perform(one.host, disk, token())
        path = one.storage / "volumes" / DISK
        for at in (2, 30, 60):
            written = f"write -P {at} {at}M 1M"
            subprocess.run(["qemu-io", "-f", "qcow2", "-c", written, str(path)], check=True, capture_output=True)
        one.agent.storage.nvram.put(VM, b"variables" * 1000)
        yield Pair(one, target, link, copy)
        link.close()


def shown(path: Path) -> str:
    """Digest of what a guest sees of a disk."""
    raw = path.with_suffix(".shown")
    subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(path), str(raw)], check=True)
    digest = hashlib.sha256(raw.read_bytes()).hexdigest()
    raw.unlink()
    return digest


def test_the_guest_sees_the_same_disk_and_finds_its_variables(pair: Pair) -> None:
    result = pair.moved()
    assert (result.changed, result.message) == (True, "3.3MiB copied")
    (disk,) = pair.disks()
    assert read_header(disk, "qcow2").backing_name == str(
        pair.target.storage / "images" / f"{pair.copy.base_sha256}.raw"
    )
    assert shown(disk) == shown(pair.source.storage / "volumes" / DISK)
    assert pair.target.agent.storage.nvram.content(VM) == b"variables" * 1000
    assert [(file.name, file.owner) for file in pair.link.observe(pair.target.host).volumes] == [(DISK, VM)]
    assert not pair.link.perform(pair.source.host, DeleteVolume(vm="other", volume="b.qcow2"), token()).changed
    assert (pair.source.storage / "volumes" / DISK).exists(), "a copy takes nothing away"
    assert pair.moved().changed, "a second time it is copied anew"


def test_holes_take_no_room(pair: Pair) -> None:
    pair.moved()
    (disk,) = pair.disks()
    source = (pair.source.storage / "volumes" / DISK).stat()
    assert disk.stat().st_blocks <= source.st_blocks + 64


def test_what_is_cut_on_its_way_is_nowhere(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = volume_copies.records

    def cut(storage: Storage, vm: str, path: Path) -> Iterator[bytes]:
        yield from list(whole(storage, vm, path))[:-1]
        raise OSError(errno.EIO, "the disk cannot be read")

    monkeypatch.setattr(volume_copies, "records", cut)
    with pytest.raises(Retryable) as refused:
        pair.moved()
    assert refused.value.code == "volume.cut"
    assert pair.disks() == []
    monkeypatch.undo()
    assert pair.moved().changed


def spoiled(record: bytes) -> bytes:
    return record[:-1] + bytes([record[-1] ^ 1])


def test_what_was_changed_on_its_way_is_nowhere(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = volume_copies.records

    def changed(storage: Storage, vm: str, path: Path) -> Iterator[bytes]:
        *first, disk, last = whole(storage, vm, path)
        yield from (*first, spoiled(disk), last)

    monkeypatch.setattr(volume_copies, "records", changed)
    with pytest.raises(Retryable) as refused:
        pair.moved()
    assert refused.value.code == "volume.cut"
    assert pair.disks() == []


def test_a_disk_on_another_file_than_its_image_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a host says that the disk is."""
    disk = pair.source.storage / "volumes" / DISK
    rebase = ["qemu-img", "rebase", "-u", "-f", "qcow2", "-b", "/etc/shadow", "-F", "raw", str(disk)]
    subprocess.run(rebase, check=True, capture_output=True)
    monkeypatch.setattr(volume_copies, "check_may_go", lambda storage, vm, volume: storage.paths.volumes / volume)
    with pytest.raises(Fatal) as refused:
        pair.moved()
    assert refused.value.code == "volume.malformed"
    assert pair.disks() == []


@pytest.mark.parametrize(
    "copy,code",
    [
        ({"size_bytes": 32 * MIB}, "volume.malformed"),
        ({"base_sha256": "0" * 64}, "image.missing"),
        ({"volume": "other.qcow2"}, "volume.missing"),
        ({"vm": "other"}, "vm.file_foreign"),
        ({"volume": "../../etc/shadow"}, "host.file_name_invalid"),
    ],
)
def test_what_does_not_fit_what_was_asked_for_is_refused(pair: Pair, copy: dict[str, Any], code: str) -> None:
    with pytest.raises(VgpuctlError) as refused:
        pair.moved(dataclasses.replace(pair.copy, **copy))
    assert refused.value.code == code
    assert pair.disks() == []


def test_a_disk_that_is_open_does_not_go(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_disks, "open_below", lambda _paths, path: frozenset({path}))
    with pytest.raises(Conflict) as refused:
        pair.moved()
    assert refused.value.code == "volume.in_use"


def test_an_older_attempt_is_refused_by_either_host(pair: Pair) -> None:
    pair.moved(attempt=2)
    with pytest.raises(Denied) as refused:
        pair.moved(attempt=1)
    assert refused.value.code == "agent.stale_token"


def test_no_more_goes_in_a_second_than_was_asked_for(pair: Pair) -> None:
    begun = time.monotonic()
    pair.moved(dataclasses.replace(pair.copy, max_bytes_per_s=2 * MIB))
    assert time.monotonic() - begun > 1.0
