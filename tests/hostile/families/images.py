# SPDX-License-Identifier: Apache-2.0
"""Base images: headers that lie, files that are cut, flipped bits, and files that are no disks."""

from __future__ import annotations

import io
import os
import sqlite3
import struct
import subprocess
import tarfile
import zipfile
from contextlib import closing
from functools import cache, partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.adapters.images.inspecting import Found, inspect
from orchestrator.adapters.images.refused import MAX_VIRTUAL_BYTES
from orchestrator.core.errors import InvalidInput
from tests.hostile.families.family import Attack, Family

KINDS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "of the old version": ("-o", "compat=0.10"),
    "compressed": ("-c",),
    "compressed with zstd": ("-c", "-o", "compression_type=zstd"),
    "with extended L2 entries": ("-o", "extended_l2=on"),
    "with small clusters": ("-o", "cluster_size=512"),
    "with large clusters": ("-o", "cluster_size=2M"),
    "preallocated": ("-o", "preallocation=metadata"),
}
FIELDS = {
    "version": (4, 4), "backing file offset": (8, 8), "backing file size": (16, 4), "cluster bits": (20, 4),
    "size": (24, 8), "encryption": (32, 4), "L1 entries": (36, 4), "L1 offset": (40, 8), "refcount offset": (48, 8),
    "refcount clusters": (56, 4), "snapshots": (60, 4), "snapshots offset": (64, 8), "features": (72, 8),
    "compatible features": (80, 8), "autoclear features": (88, 8), "refcount order": (96, 4), "header length": (100, 4),
    "compression": (104, 1), "first extension": (112, 4), "length of the first extension": (116, 4),
}  # fmt: skip
VALUES = (
    0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 22, 31, 32, 63, 64, 65, 104, 105, 112, 255, 256, 511, 512, 1023, 4096, 65535, 65536,
    65537, 1 << 20, 1 << 24, 1 << 31, (1 << 31) + 1, (1 << 32) - 1, 0x44415441, 0x0537BE77, 1 << 40, 1 << 56, 1 << 62,
    1 << 63, (1 << 64) - 1,
)  # fmt: skip
CUTS = (*range(1, 100, 2), 99)
"""In hundredths of the file."""


@cache
def content(kind: str) -> bytes:
    """An image of 1 MB whose last cluster is not full when it is compressed."""
    with TemporaryDirectory() as directory:
        raw, image = Path(directory, "raw"), Path(directory, "image")
        letters = bytes(range(64, 96))
        raw.write_bytes(b"".join(letters[n % 32 :] + os.urandom(16) + letters[: n % 32] for n in range(12_544)))
        os.truncate(raw, 602_112)
        words = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", *KINDS[kind], str(raw), str(image)]
        subprocess.run(words, check=True, capture_output=True)
        return image.read_bytes()


def _inspected(image: bytes, path: Path) -> Found | InvalidInput:
    path.write_bytes(image)
    try:
        return inspect(path, None)
    except InvalidInput as error:
        return error


def _refused(image: bytes, where: Path) -> None:
    path = where / "image"
    said = _inspected(image, path)
    assert isinstance(said, InvalidInput), f"taken as {said}"
    assert said.code in {"image.unsafe", "image.too_large"}
    assert said.message.isprintable()
    assert (path.read_bytes(), list(where.iterdir())) == (image, [path])


def _bounded(image: bytes, where: Path) -> None:
    """What is taken all the same stands alone and has a size that is allowed."""
    path = where / "image"
    found = _inspected(image, path)
    if isinstance(found, InvalidInput):
        assert found.code in {"image.unsafe", "image.too_large"}
        return
    assert 0 < found.virtual_bytes <= MAX_VIRTUAL_BYTES
    told = subprocess.run(["qemu-img", "info", "-f", found.format, path], check=True, capture_output=True).stdout
    assert not any(word in told for word in (b"backing file:", b"data file:", b"encrypted: yes"))


def _with_field(kind: str, field: str, value: int, where: Path) -> None:
    at, size = FIELDS[field]
    image = bytearray(content(kind))
    image[at : at + size] = value.to_bytes(size, "big")
    _bounded(bytes(image), where)


def _cut(kind: str, hundredths: int, where: Path) -> None:
    whole = content(kind)
    _refused(whole[: len(whole) * hundredths // 100], where)


def _shorter(kind: str, missing: int, where: Path) -> None:
    _refused(content(kind)[:-missing], where)


def _flipped(kind: str, number: int, where: Path) -> None:
    """A bit of the header, of its extensions or of a table: where most of the first clusters' bytes are 0 it is set."""
    image = bytearray(content(kind))
    at = number * 37 % 4096 if number % 2 else number * 4099 % len(image)
    image[at] ^= 1 << number % 8
    _bounded(bytes(image), where)


def _tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("disk.raw"), io.BytesIO())
    return file.getvalue()


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("disk.raw", bytes(4096))
    return file.getvalue()


def _sqlite() -> bytes:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("create table secrets (id text)")
        return database.serialize()


STRANGERS = {
    "tar": _tar(), "zip": _zip(), "SQLite": _sqlite(), "HTML": b"<!DOCTYPE html>\n<html><body>404</body></html>\n",
    "JSON": b'{"error": "not found"}', "PDF": b"%PDF-1.7\n", "PNG": b"\x89PNG\r\n\x1a\n", "ELF": b"\x7fELF\x02\x01\x01",
    "a script": b"#!/bin/sh\nexit 0\n", "a private key": b"-----BEGIN OPENSSH PRIVATE KEY-----\n", "zeros": b"",
    "LUKS": b"LUKS\xba\xbe" + struct.pack(">H", 1), "LUKS 2": b"LUKS\xba\xbe" + struct.pack(">H", 2),
    "text": b"root:x:0:0::/root:/bin/sh\n", "squashfs": b"hsqs", "Parallels": b"WithoutFreeSpace", "VHD": b"conectix",
    "a boot sector without partitions": bytes(510) + b"\x55\xaa", "gzip": b"\x1f\x8b\x08", "xz": b"\xfd7zXZ\0",
    "zstd": b"\x28\xb5\x2f\xfd", "bzip2": b"BZh9",
}  # fmt: skip


def _stranger(name: str, size: int, where: Path) -> None:
    _refused(STRANGERS[name].ljust(size, b"\0"), where)


def _partitioned(extent: int, where: Path) -> None:
    """A disk whose partition goes on behind its end."""
    head = bytearray(512)
    head[446:462] = struct.pack("<B3xB3xII", 0x80, 0x83, 1, extent)
    head[510:] = b"\x55\xaa"
    _refused(bytes(head) + bytes(extent * 256), where)


HEADERS: dict[str, Attack] = {
    f"{kind}: {field} {value}": partial(_with_field, kind, field, value)
    for kind, field, value in product(("plain", "with extended L2 entries"), FIELDS, VALUES)
    if value < 1 << 8 * FIELDS[field][1]
}
CUT: dict[str, Attack] = {f"{kind}: {cut}%": partial(_cut, kind, cut) for kind, cut in product(KINDS, CUTS)}
SHORTER: dict[str, Attack] = {
    f"{kind}: {n} bytes": partial(_shorter, kind, n) for kind, n in product(KINDS, (1, 100, 511, 512, 513))
}
PARTITIONED: dict[str, Attack] = {f"a partition of {n} sectors": partial(_partitioned, n) for n in (4, 100, 5000)}
FLIPPED: dict[str, Attack] = {f"{kind}: {n}": partial(_flipped, kind, n) for kind, n in product(KINDS, range(80))}
NO_DISKS: dict[str, Attack] = {
    f"{name}, {size} bytes": partial(_stranger, name, size)
    for name, size in product(STRANGERS, (512, 10_240, 65_536, 1 << 20))
    if len(STRANGERS[name]) <= size
}

FAMILIES = (
    Family("headers of qcow2", "refused, or taken as an image that stands alone", HEADERS),
    Family("images that are cut", "refused", CUT | SHORTER | PARTITIONED),
    Family("images with a flipped bit", "refused, or taken as an image that stands alone", FLIPPED),
    Family("files that are no disks", "refused", NO_DISKS),
)
