# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import os
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from orchestrator.adapters.images import qemu_check
from orchestrator.adapters.images.library import ImageLibrary
from orchestrator.core.errors import InvalidInput, VgpuctlError
from orchestrator.core.image import NewImage

MIB = 1024**2


def qcow2(size: int = 64 * MIB, *, backing: bool = False, incompatible: int = 0) -> bytes:
    """Version 3 as QEMU's docs/interop/qcow2.txt describes it: header, refcount table, its block, an empty L1 table."""
    header = struct.pack(
        ">4sIQIIQIIQQIIQQQQII",
        b"QFI\xfb", 3, 1024 if backing else 0, 11 if backing else 0, 16, size, 0, 1, 3 * 65536, 65536, 1, 0, 0,
        incompatible, 0, 0, 4, 104,
    )  # fmt: skip
    content = bytearray(4 * 65536)
    content[: len(header)] = header
    content[65536:65544] = struct.pack(">Q", 2 * 65536)
    content[2 * 65536 : 2 * 65536 + 8] = struct.pack(">4H", 1, 1, 1, 1)
    if backing:
        content[1024:1035] = b"/etc/passwd"
    return bytes(content)


VMDK = b'# Disk DescriptorFile\nversion=1\ncreateType="monolithicFlat"\nRW 8 FLAT "/etc/passwd" 0\n'.ljust(65536, b"\0")


@pytest.fixture
def library(tmp_path: Path) -> ImageLibrary:
    return ImageLibrary(tmp_path / "images")


def kept(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "images").iterdir())


def test_a_good_image_is_kept_once_under_its_hash(library: ImageLibrary, tmp_path: Path) -> None:
    source = tmp_path / "guest.img"
    source.write_bytes(qcow2())
    digest = hashlib.sha256(qcow2()).hexdigest()
    image = library.take(NewImage(name="guest", source=str(source), sha256=digest.upper()), 7.0)
    assert (image.sha256, image.format, image.virtual_size_bytes, image.created_at) == (digest, "qcow2", 64 * MIB, 7.0)
    assert library.path(digest, "qcow2").read_bytes() == qcow2()
    library.take(NewImage(name="again", source=str(source)), 8.0)
    assert kept(tmp_path) == [f"{digest}.qcow2"]
    library.remove(digest, "qcow2")
    assert kept(tmp_path) == []


@pytest.mark.fault("F122")
def test_what_takes_the_sources_place_during_the_check_is_not_kept(
    library: ImageLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "guest.img"
    source.write_bytes(qcow2())
    check = qemu_check.check

    def exchange(path: Path) -> qemu_check.Checked:
        source.write_bytes(qcow2(backing=True))
        return check(path)

    monkeypatch.setattr(qemu_check, "check", exchange)
    image = library.take(NewImage(name="guest", source=str(source)), 7.0)
    assert source.read_bytes() != qcow2()
    assert library.path(image.sha256, image.format).read_bytes() == qcow2()
    assert image.sha256 == hashlib.sha256(qcow2()).hexdigest()


def test_a_raw_disk_has_the_size_of_its_file(library: ImageLibrary, tmp_path: Path) -> None:
    source = tmp_path / "disk.raw"
    source.write_bytes(b"\0" * MIB)
    image = library.take(NewImage(name="r", source=str(source), format="raw"), 0.0)
    assert (image.format, image.virtual_size_bytes) == ("raw", MIB)


@pytest.mark.fault("F121")
@pytest.mark.parametrize(
    "content,code",
    [
        (qcow2(backing=True), "image.unsafe"),
        (qcow2(incompatible=1 << 2), "image.unsafe"),
        (qcow2(60 * 1024**4), "image.too_large"),
        (qcow2(0), "image.too_large"),
        (VMDK, "image.unsafe"),
        (b"", "image.unsafe"),
        (b"127.0.0.1 localhost\n", "image.unsafe"),
    ],
    ids=["backing-file", "data-file", "bomb", "no-disk", "vmdk-extent", "empty", "text"],
)
def test_a_hostile_image_is_refused_and_not_kept(
    library: ImageLibrary, tmp_path: Path, content: bytes, code: str
) -> None:
    source = tmp_path / "hostile"
    source.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        library.take(NewImage(name="x", source=str(source)), 0.0)
    assert caught.value.code == code
    assert kept(tmp_path) == []


def _symlink(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def _hard_link(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"\0" * MIB)
    os.link(other, path)


@pytest.mark.parametrize("make", [_symlink, _hard_link, os.mkfifo, Path.mkdir], ids=["symlink", "link", "fifo", "dir"])
def test_what_is_no_regular_file_of_its_own_is_refused(
    library: ImageLibrary, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "source"
    make(path)
    with pytest.raises(InvalidInput) as caught:
        library.take(NewImage(name="x", source=str(path)), 0.0)
    assert caught.value.code == "image.source_refused"
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    "source",
    [
        "", "image.qcow2", "/tmp/../etc/shadow", "/dev/zero", "/nowhere", "file:///etc/shadow", "nbd://host/x",
        'json:{"file":{}}', "ftp://host/x", "http://", "https://user:secret@host/x", "/a\nb", "-rf", "http://[::1/x",
    ],
)  # fmt: skip
def test_other_sources_are_refused(library: ImageLibrary, tmp_path: Path, source: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        library.take(NewImage(name="x", source=source), 0.0)
    assert caught.value.code == "image.source_refused"
    assert kept(tmp_path) == []


def test_another_digest_is_refused_and_nothing_kept(library: ImageLibrary, tmp_path: Path) -> None:
    source = tmp_path / "guest.img"
    source.write_bytes(qcow2())
    with pytest.raises(InvalidInput) as caught:
        library.take(NewImage(name="x", source=str(source), sha256="0" * 64), 0.0)
    assert caught.value.code == "image.digest_differs"
    assert kept(tmp_path) == []


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = qcow2()
        if self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:1000])
            return
        self.send_response(200 if self.path == "/good" else 404)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Quiet."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def test_an_image_is_downloaded(library: ImageLibrary, server: str) -> None:
    image = library.take(NewImage(name="x", source=f"{server}/good"), 0.0)
    assert image.sha256 == hashlib.sha256(qcow2()).hexdigest()


@pytest.mark.parametrize("path", ["cut", "missing"])
def test_a_download_that_fails_or_is_cut_is_no_image(
    library: ImageLibrary, tmp_path: Path, server: str, path: str
) -> None:
    with pytest.raises(VgpuctlError) as caught:
        library.take(NewImage(name="x", source=f"{server}/{path}"), 0.0)
    assert caught.value.code == "image.download_failed"
    assert kept(tmp_path) == []


def test_partial_files_of_a_dead_process_are_swept(tmp_path: Path) -> None:
    directory = tmp_path / "images"
    directory.mkdir()
    (directory / "x.part").write_bytes(b"x")
    ImageLibrary(directory)
    assert kept(tmp_path) == []
