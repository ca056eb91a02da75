# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import errno
import hashlib
import io
import struct
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.agent.images.disk_images import check_base_image, read_header
from orchestrator.agent.images.store import Storage
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.core.actions.host_actions import CreateVolume, ImageFormat
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, VgpuctlError

MIB = 1024 * 1024
OLD_PART = "a.qcow2.part-0123"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    paths = Paths(root=root, storage=tmp_path / "storage")
    (paths.volumes).mkdir(parents=True)
    (paths.volumes / OLD_PART).write_text("half")
    return Storage(paths, Ledger(paths.ledger, site="s", epoch=1, boot_id="b"))


def qemu_img(*args: str | Path) -> None:
    subprocess.run(["qemu-img", *map(str, args)], check=True, capture_output=True)


def received(storage: Storage, content: bytes, image_format: ImageFormat = "qcow2") -> str:
    digest = hashlib.sha256(content).hexdigest()
    storage.receive_image(digest, image_format, len(content), io.BytesIO(content).read)
    return digest


@pytest.mark.fault("F124")
def test_what_a_crash_left_half_written_is_gone_after_the_start(storage: Storage) -> None:
    assert storage.volumes() == ()


def test_headers_tell_size_and_references(tmp_path: Path) -> None:
    alone, overlay, data = tmp_path / "alone", tmp_path / "overlay", tmp_path / "data"
    qemu_img("create", "-f", "qcow2", alone, "32M")
    qemu_img("create", "-f", "qcow2", "-b", alone, "-F", "qcow2", overlay, "64M")
    qemu_img("create", "-f", "qcow2", "-o", f"data_file={tmp_path / 'raw'}", data, "32M")
    assert check_base_image(alone, "qcow2").virtual_bytes == 32 * MIB
    assert read_header(overlay, "qcow2").backing_name == str(alone)
    for hostile in (overlay, data):
        with pytest.raises(Fatal) as refused:
            check_base_image(hostile, "qcow2")
        assert refused.value.code == "image.not_alone"
    assert check_base_image(overlay, "raw").backing_name is None


@pytest.mark.parametrize(
    "content",
    [b"", b"QFI\xfb", b"\0" * 200, b"VMDK" * 50, struct.pack(">4sIQIIQ", b"QFI\xfb", 3, 104, 5000, 16, 1) + b"\0" * 80],
)
def test_what_is_no_qcow2_is_refused_without_running_anything_on_it(storage: Storage, content: bytes) -> None:
    with pytest.raises(Fatal) as refused:
        received(storage, content)
    assert refused.value.code == "image.malformed"
    assert storage.images() == ()


@pytest.mark.fault("F123")
def test_a_pool_that_is_full_in_the_middle_of_a_copy_keeps_no_part_of_it(storage: Storage, tmp_path: Path) -> None:
    content = io.BytesIO(b"x" * 3 * MIB)

    def read(size: int) -> bytes:
        if content.tell() >= MIB:
            raise OSError(errno.ENOSPC, "No space left on device")
        return content.read(min(size, MIB))

    files = {path for path in (tmp_path / "storage").rglob("*") if path.is_file()}
    with pytest.raises(Fatal) as full:
        storage.receive_image("0" * 64, "raw", 3 * MIB, read)
    assert full.value.code == "host.disk_full"
    assert {path for path in (tmp_path / "storage").rglob("*") if path.is_file()} == files
    assert storage.images() == ()


def test_a_cut_image_never_becomes_visible(storage: Storage) -> None:
    with pytest.raises(Fatal) as refused:
        storage.receive_image("0" * 64, "raw", 100, io.BytesIO(b"short").read)
    assert refused.value.code == "image.cut"
    assert storage.images() == ()


@pytest.mark.fault("F125")
def test_an_image_stays_while_a_disk_is_based_on_it(storage: Storage, tmp_path: Path) -> None:
    qemu_img("create", "-f", "qcow2", tmp_path / "image", "32M")
    digest = received(storage, (tmp_path / "image").read_bytes())
    volume = CreateVolume(vm="a", volume="a.qcow2", base_sha256=digest, base_format="qcow2", size_bytes=64 * MIB)
    storage.create_volume(volume)
    with pytest.raises(Conflict) as refused:
        storage.delete_image(digest, "qcow2")
    assert refused.value.code == "image.in_use"
    storage.delete_volume("a", "a.qcow2")
    assert storage.delete_image(digest, "qcow2").changed
    assert not storage.delete_image(digest, "qcow2").changed


def test_an_image_goes_or_a_disk_is_made_on_it_never_both(storage: Storage) -> None:
    digest = received(storage, b"\0" * MIB, "raw")
    seen = set[tuple[str, str]]()

    def made(number: int) -> str:
        name = f"a{number}.qcow2"
        volume = CreateVolume(vm="a", volume=name, base_sha256=digest, base_format="raw", size_bytes=32 * MIB)
        return outcome(lambda: storage.create_volume(volume))

    with ThreadPoolExecutor(1) as pool:
        for number in range(30):
            making = pool.submit(made, number)
            time.sleep(number / 3000)  # qemu-img takes some milliseconds
            gone = outcome(lambda: storage.delete_image(digest, "raw"))
            seen.add((making.result(), gone))
            assert storage.has_image(digest, "raw") == (gone == "image.in_use")
            storage.delete_volume("a", f"a{number}.qcow2")
            received(storage, b"\0" * MIB, "raw")
    assert seen <= {("done", "image.in_use"), ("image.missing", "done")}
    assert ("done", "image.in_use") in seen


def outcome(act: Callable[[], object]) -> str:
    try:
        act()
    except VgpuctlError as error:
        return error.code
    return "done"


def test_what_a_guest_has_freed_of_its_disk_is_not_counted_any_more(storage: Storage) -> None:
    """The file is as long as before: what is freed are holes in it."""
    digest = received(storage, b"\0" * MIB, "raw")
    storage.create_volume(
        CreateVolume(vm="a", volume="a.qcow2", base_sha256=digest, base_format="raw", size_bytes=64 * MIB)
    )
    path = storage.paths.volumes / "a.qcow2"
    for written, least, most in ((b"x" * 8 * MIB, 8 * MIB, 10 * MIB), (b"", 0, 2 * MIB)):
        with path.open("r+b") as file:
            file.truncate(2 * MIB)
            file.seek(2 * MIB)
            file.write(written)
            file.truncate(10 * MIB)
        (seen,) = storage.volumes()
        assert least <= seen.size_bytes <= most
        assert path.stat().st_size == 10 * MIB


def test_a_disk_of_another_size_or_owner_is_a_conflict(storage: Storage, tmp_path: Path) -> None:
    digest = received(storage, b"\0" * MIB, "raw")
    volume = CreateVolume(vm="a", volume="a.qcow2", base_sha256=digest, base_format="raw", size_bytes=32 * MIB)
    storage.create_volume(volume)
    for other in (
        CreateVolume(vm="a", volume="a.qcow2", base_sha256=digest, base_format="raw", size_bytes=48 * MIB),
        CreateVolume(vm="b", volume="a.qcow2", base_sha256=digest, base_format="raw", size_bytes=32 * MIB),
    ):
        with pytest.raises(Conflict):
            storage.create_volume(other)
    with pytest.raises(Conflict):
        storage.delete_volume("b", "a.qcow2")
    assert [(v.name, v.owner) for v in storage.volumes()] == [("a.qcow2", "a")]


def test_a_disk_on_an_image_that_is_not_there_is_refused(storage: Storage) -> None:
    with pytest.raises(Fatal) as refused:
        storage.create_volume(
            CreateVolume(vm="a", volume="a.qcow2", base_sha256="0" * 64, base_format="raw", size_bytes=MIB)
        )
    assert refused.value.code == "image.missing"


def test_a_disk_that_a_process_holds_open_is_not_deleted(storage: Storage, tmp_path: Path) -> None:
    digest = received(storage, b"\0" * MIB, "raw")
    storage.create_volume(
        CreateVolume(vm="a", volume="a.qcow2", base_sha256=digest, base_format="raw", size_bytes=32 * MIB)
    )
    descriptors = tmp_path / "root/proc/7/fd"
    descriptors.mkdir(parents=True)
    (descriptors / "3").symlink_to(tmp_path / "storage/volumes/a.qcow2")
    with pytest.raises(Conflict) as refused:
        storage.delete_volume("a", "a.qcow2")
    assert refused.value.code == "volume.in_use"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc/passwd", "-rf", "a\n", "A.iso", "a.part-1", "ü", "x" * 200]
)
def test_a_file_name_that_leads_elsewhere_is_refused(storage: Storage, name: str) -> None:
    with pytest.raises(InvalidInput):
        storage.write_seed("a", name, "AAAA")
    with pytest.raises(InvalidInput):
        storage.delete_volume("a", name)


@pytest.mark.parametrize("text", ["", "not base64!", "AAA", base64.b64encode(b"x" * (9 * MIB)).decode()])
def test_a_seed_that_is_none_is_refused(storage: Storage, text: str) -> None:
    with pytest.raises(VgpuctlError) as refused:
        storage.write_seed("a", "a.iso", text)
    assert refused.value.code == "seed.invalid"
    assert storage.seeds() == ()


@pytest.mark.fault("F124")
def test_a_seed_is_replaced_whole(storage: Storage, tmp_path: Path) -> None:
    first, second = (base64.b64encode(text).decode() for text in (b"one", b"two"))
    assert storage.write_seed("a", "a.iso", first).changed
    assert not storage.write_seed("a", "a.iso", first).changed
    assert storage.write_seed("a", "a.iso", second).changed
    assert (tmp_path / "storage/seeds/a.iso").read_bytes() == b"two"
    assert (tmp_path / "storage/seeds/a.iso").stat().st_mode & 0o077 == 0
