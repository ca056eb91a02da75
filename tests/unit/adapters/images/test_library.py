# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from orchestrator.adapters import whole_answer
from orchestrator.adapters.files.opening import Readable
from orchestrator.adapters.images import qemu_check
from orchestrator.adapters.images.library import ImageLibrary
from orchestrator.adapters.images.sources import Downloads, Sources
from orchestrator.adapters.public_addresses import Network
from orchestrator.core.errors import InvalidInput, VgpuctlError
from orchestrator.core.vms.image import Image, NewImage
from tests.fakes.dripping import BODY, CHUNK, HEAD, STATUS, dripping

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


def library_of(state: Path, networks: tuple[Network, ...] = ()) -> ImageLibrary:
    (state / "images").mkdir(exist_ok=True)
    files = Readable(never_below=state / "images")
    return ImageLibrary(state / "images", Sources(files=files, downloads=Downloads(networks)))


@pytest.fixture
def library(tmp_path: Path) -> ImageLibrary:
    return library_of(tmp_path, (ip_network("127.0.0.0/8"),))


def take(library: ImageLibrary, wanted: NewImage, now: float) -> Image:
    with library.take(wanted, now) as taken:
        taken.keep()
    return taken.described


def kept(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "images").iterdir())


def test_a_good_image_is_kept_once_under_its_hash(library: ImageLibrary, tmp_path: Path) -> None:
    source = tmp_path / "guest.img"
    source.write_bytes(qcow2())
    digest = hashlib.sha256(qcow2()).hexdigest()
    image = take(library, NewImage(name="guest", source=str(source), sha256=digest.upper()), 7.0)
    assert (image.sha256, image.format, image.virtual_size_bytes, image.created_at) == (digest, "qcow2", 64 * MIB, 7.0)
    assert library.path(digest, "qcow2").read_bytes() == qcow2()
    take(library, NewImage(name="again", source=str(source)), 8.0)
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
    image = take(library, NewImage(name="guest", source=str(source)), 7.0)
    assert source.read_bytes() != qcow2()
    assert library.path(image.sha256, image.format).read_bytes() == qcow2()
    assert image.sha256 == hashlib.sha256(qcow2()).hexdigest()


def test_a_raw_disk_has_the_size_of_its_file(library: ImageLibrary, tmp_path: Path) -> None:
    source = tmp_path / "disk.raw"
    source.write_bytes(b"\0" * MIB)
    image = take(library, NewImage(name="r", source=str(source), format="raw"), 0.0)
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
        take(library, NewImage(name="x", source=str(source)), 0.0)
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
        take(library, NewImage(name="x", source=str(path)), 0.0)
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
        take(library, NewImage(name="x", source=source), 0.0)
    assert caught.value.code == "image.source_refused"
    assert kept(tmp_path) == []


def test_another_digest_is_refused_and_nothing_kept(library: ImageLibrary, tmp_path: Path) -> None:
    source = tmp_path / "guest.img"
    source.write_bytes(qcow2())
    with pytest.raises(InvalidInput) as caught:
        take(library, NewImage(name="x", source=str(source), sha256="0" * 64), 0.0)
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
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", unquote(self.path.removeprefix("/to/")))
            self.send_header("Content-Length", "0")
            self.end_headers()
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
    image = take(library, NewImage(name="x", source=f"{server}/good"), 0.0)
    assert image.sha256 == hashlib.sha256(qcow2()).hexdigest()


@pytest.mark.parametrize("path", ["cut", "missing"])
def test_a_download_that_fails_or_is_cut_is_no_image(
    library: ImageLibrary, tmp_path: Path, server: str, path: str
) -> None:
    with pytest.raises(VgpuctlError) as caught:
        take(library, NewImage(name="x", source=f"{server}/{path}"), 0.0)
    assert caught.value.code == "image.download_failed"
    assert kept(tmp_path) == []


@pytest.mark.parametrize("first", [BODY, HEAD, STATUS, CHUNK])
def test_a_download_that_drips_is_no_image(
    library: ImageLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(whole_answer, "FILE_S", 0.3)
    began = time.monotonic()
    with dripping(first) as address, pytest.raises(VgpuctlError) as caught:
        take(library, NewImage(name="x", source=f"http://{address}/drips"), 0.0)
    assert caught.value.code == "image.download_failed"
    assert 0.3 <= time.monotonic() - began < 3
    assert kept(tmp_path) == []


OWN = ("127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]", "localhost", "2130706433", "0x7f000001", "0.0.0.0",
       "[::]", "169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "224.0.0.1", "127.1",
       "[64:ff9b::7f00:1]", "[::127.0.0.1]", "[2002:7f00:1::]", "[fd00:ec2::254]", "100.100.100.200", "10.0.0.5",
       "192.168.1.5", "172.16.0.5", "[fec0::1]")  # fmt: skip


@pytest.mark.parametrize("host", OWN)
def test_a_download_from_the_servers_own_machine_or_link_is_refused(tmp_path: Path, server: str, host: str) -> None:
    port = server.rpartition(":")[2]
    with pytest.raises(VgpuctlError) as caught:
        take(library_of(tmp_path), NewImage(name="x", source=f"http://{host}:{port}/good"), 0.0)
    assert caught.value.code == "image.source_refused"
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest", "http://[::1]/x", "file:///etc/hostname", "ftp://x/y"]
)
def test_a_redirect_to_what_may_not_be_asked_is_refused(library: ImageLibrary, server: str, target: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        take(library, NewImage(name="x", source=f"{server}/to/{quote(target, safe='')}"), 0.0)
    assert caught.value.code == "image.source_refused"


def test_a_redirect_is_followed_and_one_without_an_end_is_not(library: ImageLibrary, server: str) -> None:
    found = take(library, NewImage(name="x", source=f"{server}/to/{quote('/good', safe='')}"), 0.0)
    assert found.sha256 == hashlib.sha256(qcow2()).hexdigest()
    with pytest.raises(VgpuctlError) as caught:
        take(library, NewImage(name="x", source=f"{server}/to/"), 0.0)
    assert caught.value.code == "image.download_failed"


def test_nothing_is_read_through_a_link_or_from_the_servers_own_directory(
    library: ImageLibrary, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "guest").write_bytes(qcow2())
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "images" / "own").write_bytes(qcow2())
    for source, why in (("link/guest", "symbolic link"), ("images/own", "own directory")):
        with pytest.raises(InvalidInput) as caught:
            take(library, NewImage(name="x", source=str(tmp_path / source)), 0.0)
        assert (caught.value.code, why in caught.value.message) == ("image.source_refused", True)


def test_only_files_of_the_directories_that_are_set_are_read(tmp_path: Path) -> None:
    for name in ("allowed", "state", "allowed-not"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "guest").write_bytes(qcow2())
    files = Readable(below=(tmp_path / "allowed",), never_below=tmp_path / "state")
    library = ImageLibrary(tmp_path / "state" / "images", Sources(files=files, downloads=Downloads()))
    assert take(library, NewImage(name="x", source=str(tmp_path / "allowed" / "guest")), 0.0).format == "qcow2"
    for source in (tmp_path / "allowed-not" / "guest", tmp_path / "allowed" / ".." / "allowed-not" / "guest"):
        with pytest.raises(InvalidInput) as caught:
            take(library, NewImage(name="x", source=str(source)), 0.0)
        assert caught.value.code == "image.source_refused"


def test_partial_files_of_a_dead_process_are_swept(tmp_path: Path) -> None:
    directory = tmp_path / "images"
    directory.mkdir()
    (directory / "x.part").write_bytes(b"x")
    library_of(tmp_path)
    assert kept(tmp_path) == []
