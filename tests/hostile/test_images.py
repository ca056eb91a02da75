# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.adapters.images.inspecting import Found, inspect
from tests.hostile.families.images import KINDS
from tests.hostile.site import Site, code_for, command

MIB = 1024**2
TIB = 1024**4


def _qemu_img(*words: str | Path) -> None:
    subprocess.run(["qemu-img", *map(str, words)], check=True, capture_output=True)


def _base(path: Path) -> Path:
    base = path.with_name("base.img")
    _qemu_img("create", "-f", "qcow2", base, "1M")
    return base


def _backing(path: Path) -> None:
    _qemu_img("create", "-f", "qcow2", "-F", "qcow2", "-b", _base(path), path)


def _backing_by_json(path: Path) -> None:
    name = f'json:{{"driver":"qcow2","file":{{"driver":"file","filename":"{_base(path)}"}}}}'
    _qemu_img("create", "-f", "qcow2", "-F", "qcow2", "-b", name, path)


def _backing_of_the_network(path: Path) -> None:
    _qemu_img("create", "-f", "qcow2", "-u", "-F", "raw", "-b", "nbd://127.0.0.1:9/x", path, "1M")


def _backing_of_an_old_version(path: Path) -> None:
    _qemu_img("create", "-f", "qcow2", "-o", "compat=0.10", "-u", "-F", "raw", "-b", "/etc/shadow", path, "1M")


def _data_file(path: Path) -> None:
    _qemu_img("create", "-f", "qcow2", "-o", f"data_file={path.with_name('data.raw')},data_file_raw=on", path, "1M")


def _vmdk(path: Path) -> None:
    text = b'# Disk DescriptorFile\nversion=1\ncreateType="monolithicFlat"\nRW 8 FLAT "/etc/shadow" 0\n'
    path.write_bytes(text.ljust(64 * 1024, b"\0"))


def _luks_within(path: Path) -> None:
    """qemu-img measures first how fast the processor derives keys; where its clock is too coarse, only sometimes."""
    key = ("--object", "secret,id=s,data=x", "-o", "encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10")
    for _ in range(50):
        done = subprocess.run(["qemu-img", "create", "-f", "qcow2", *key, path, "1M"], capture_output=True, check=False)
        if done.returncode == 0:
            return
        assert b"accurate CPU usage" in done.stderr
    raise AssertionError(done.stderr)


def _made(kind: str, *options: str) -> Callable[[Path], None]:
    return lambda path: _qemu_img("create", "-f", kind, *options, path, "1M")


def _planted(path: Path) -> None:
    """A raw disk whose guest wrote the header of an image that refers to a file of the host."""
    _backing_of_an_old_version(path)
    with path.open("r+b") as disk:
        disk.truncate(4 * MIB)


def _bomb(path: Path) -> None:
    _qemu_img("create", "-f", "qcow2", path, str(60 * TIB))


def _cut(path: Path) -> None:
    _qemu_img("create", "-f", "qcow2", path, "1M")
    os.truncate(path, 60)


def _written(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def _luks(path: Path) -> None:
    path.write_bytes(b"LUKS\xba\xbe" + struct.pack(">H", 1) + bytes(4088))


IMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a backing file": (_backing, "image.unsafe"),
    "a backing file as JSON": (_backing_by_json, "image.unsafe"),
    "a backing file in the network": (_backing_of_the_network, "image.unsafe"),
    "a backing file in the old header": (_backing_of_an_old_version, "image.unsafe"),
    "an external data file": (_data_file, "image.unsafe"),
    "a flat extent": (_vmdk, "image.unsafe"),
    "vmdk of several files": (_made("vmdk", "-o", "subformat=monolithicFlat"), "image.unsafe"),
    "vdi": (_made("vdi"), "image.unsafe"),
    "vhdx": (_made("vhdx"), "image.unsafe"),
    "vpc": (_made("vpc"), "image.unsafe"),
    "qed": (_made("qed"), "image.unsafe"),
    "parallels": (_made("parallels"), "image.unsafe"),
    "bochs": (_written(b"Bochs Virtual HD Image".ljust(4096, b"\0")), "image.unsafe"),
    "BitLocker": (_written(b"\xeb\x58\x90-FVE-FS-".ljust(4096, b"\0")), "image.unsafe"),
    "7z": (_written(b"7z\xbc\xaf\x27\x1c".ljust(4096, b"\0")), "image.unsafe"),
    "a planted header": (_planted, "image.unsafe"),
    "a bomb of 60 TiB": (_bomb, "image.too_large"),
    "cut": (_cut, "image.unsafe"),
    "AES": (_made("qcow2", "--object", "secret,id=s,data=x", "-o", "encrypt.format=aes,encrypt.key-secret=s"),
            "image.unsafe"),
    "LUKS within": (_luks_within, "image.unsafe"),
    "LUKS": (_luks, "image.unsafe"),
    "a disk with nothing on it": (_written(bytes(4 * MIB)), "image.unsafe"),
    "empty": (_written(b""), "image.unsafe"),
    "text": (_written(b"127.0.0.1 localhost\n"), "image.unsafe"),
    "gzip": (_written(b"\x1f\x8b\x08" + b"\0" * 509), "image.unsafe"),
    "ISO 9660 with a script before it": (_written(b"#!/bin/sh\n".ljust(513, b"#")), "image.unsafe"),
}  # fmt: skip


@pytest.mark.fault("F121")
@pytest.mark.parametrize("kind", IMAGES)
def test_a_hostile_image_is_refused_and_nothing_of_it_is_kept(site: Site, tmp_path: Path, kind: str) -> None:
    make, code = IMAGES[kind]
    path = tmp_path / "image"
    make(path)
    site.refused("POST", "/v1/images", {"name": "bad", "source": str(path)}, code=code)
    with site.untouched():
        done = command(site.state, "image", "add", "bad", str(path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: ")
    assert code.encode() in done.stderr


@pytest.mark.parametrize(
    "kind",
    ["vmdk of several files", "vdi", "vhdx", "vpc", "qed", "parallels", "bochs", "LUKS", "BitLocker", "7z", "gzip"],
)
def test_what_is_something_else_is_no_raw_disk_because_somebody_says_so(site: Site, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "image"
    IMAGES[kind][0](path)
    site.refused("POST", "/v1/images", {"name": "bad", "source": str(path), "format": "raw"}, code="image.unsafe")


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_image_is_taken_however_it_keeps_its_clusters(tmp_path: Path, kind: str) -> None:
    """Each piece is somewhere else in its cluster, and the file ends with the last."""
    raw, image = tmp_path / "raw", tmp_path / "image"
    with raw.open("wb") as disk:
        disk.truncate(4 * MIB)
        for number in range(1, 31):
            disk.seek(number * 132 * 1024)
            disk.write(b"x" * 4096)
    _qemu_img("convert", "-f", "raw", "-O", "qcow2", *KINDS[kind], str(raw), image)
    _qemu_img("check", "-q", image)
    assert inspect(image, None) == Found("qcow2", 4 * MIB)


def _symlink(path: Path) -> None:
    path.symlink_to("/etc/shadow")


def _hard_link(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"\0" * 512)
    os.link(other, path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize("make", [_symlink, _hard_link, os.mkfifo, Path.mkdir, _socket], ids=lambda make: make.__name__)
def test_what_is_no_file_of_its_own_is_not_read(site: Site, tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "image")
    body = {"name": "bad", "source": str(tmp_path / "image")}
    site.refused("POST", "/v1/images", body, code="image.source_refused")


SOURCES = (
    "", "x.img", "../../etc/shadow", "/tmp/../etc/shadow", "/proc/self/environ", "/dev/zero", "/dev/sda", "/etc",
    "file:///etc/shadow", "nbd://host/x", "ftp://host/x", "ssh://host/x", "json:{}", "file:fd:3", "fd:3", "/dev/fd/0",
    "http://", "http://user:secret@host/x", "http://[::1/x", "http:///x", "-rf", "/a\nb", "/a\x00b", "/\u202e", "//",
    "\\\\host\\x", "data:,x", "/a,format=raw", "/a:b", "HTTP://host/x", " /etc/hosts", "~/x", "$HOME/x", "/\ud83d",
)  # fmt: skip


def test_a_source_is_a_path_or_an_address(site: Site) -> None:
    for source in SOURCES:
        code = code_for(source, "image.source_refused")
        said = site.refused("POST", "/v1/images", {"name": "bad", "source": source}, code=code)
        assert "secret" not in said


@pytest.mark.parametrize("digest", ["", "x", "0" * 63, "0" * 65, "g" * 64, "\u0660" * 64, "0" * 63 + "\n"])
def test_a_digest_that_is_none_is_refused_before_anything_is_read(site: Site, digest: str) -> None:
    body = {"name": "bad", "source": "/nowhere", "sha256": digest}
    code = "request.invalid" if len(digest) > 64 else "image.digest_invalid"
    site.refused("POST", "/v1/images", body, code=code)
