# SPDX-License-Identifier: Apache-2.0
"""VMDK images: what is all in one file is made qcow2; what names another file, or lies about itself, is refused."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.adapters.files.opening import Readable
from orchestrator.adapters.images.confined import INTO
from orchestrator.adapters.images.library import ImageLibrary
from orchestrator.adapters.images.sources import Downloads, Sources
from orchestrator.core.errors import InvalidInput
from orchestrator.core.vms.image import Image, NewImage

MIB = 1024**2
DISK = bytes(510) + b"\x55\xaa" + b"content of the disk" * 4096
Change = Callable[[bytearray], None]


def qemu_img(*words: str | Path) -> str:
    return subprocess.run(["qemu-img", *map(str, words)], check=True, capture_output=True, text=True).stdout


def made(path: Path, kind: str = "monolithicSparse") -> Path:
    raw = path.with_name("source.raw")
    raw.write_bytes(DISK.ljust(4 * MIB, b"\0"))
    qemu_img("convert", "-f", "raw", "-O", "vmdk", "-o", f"subformat={kind}", raw, path)
    return path


def taken(directory: Path, source: Path) -> Image:
    library = ImageLibrary(
        directory / "images", Sources(files=Readable(never_below=directory / "images"), downloads=Downloads())
    )
    with library.take(NewImage(name="x", source=iter([source.read_bytes()])), 0.0) as file:
        file.keep()
        return file.described


@pytest.mark.parametrize("kind", ["monolithicSparse", "streamOptimized"])
def test_one_that_is_all_in_one_file_is_kept_as_qcow2_with_the_same_disk(tmp_path: Path, kind: str) -> None:
    image = taken(tmp_path, made(tmp_path / "disk.vmdk", kind))
    assert (image.format, image.virtual_size_bytes) == ("qcow2", 4 * MIB)
    (kept,) = (tmp_path / "images").iterdir()
    assert (kept.name, kept.stat().st_size) == (image.file, image.size_bytes)
    qemu_img("convert", "-f", "qcow2", "-O", "raw", kept, tmp_path / "again.raw")
    assert (tmp_path / "again.raw").read_bytes() == (tmp_path / "source.raw").read_bytes()
    assert taken(tmp_path, tmp_path / "disk.vmdk").sha256 == image.sha256, "the same again is the same image"


def refused(directory: Path, source: Path) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        taken(directory, source)
    assert list((directory / "images").iterdir()) == []
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("kind", ["monolithicFlat", "twoGbMaxExtentSparse", "twoGbMaxExtentFlat"])
def test_one_of_several_files_is_refused(tmp_path: Path, kind: str) -> None:
    assert refused(tmp_path, made(tmp_path / "disk.vmdk", kind)).code == "image.unsafe"


def test_one_on_top_of_another_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "base.vmdk")
    qemu_img("create", "-f", "vmdk", "-b", tmp_path / "base.vmdk", "-F", "vmdk", tmp_path / "top.vmdk")
    assert "on top of another file" in refused(tmp_path, tmp_path / "top.vmdk").message


def text(old: bytes, new: bytes) -> Change:
    """In the descriptor, which keeps its length."""

    def change(content: bytearray) -> None:
        at = content.index(old, 512)
        descriptor = bytes(content[512 : 512 * 21]).replace(old, new, 1)[: 512 * 20].ljust(512 * 20, b"\0")
        assert at < 512 * 21
        content[512 : 512 * 21] = descriptor

    return change


def number(at: int, value: int, form: str = "<Q") -> Change:
    def change(content: bytearray) -> None:
        struct.pack_into(form, content, at, value)

    return change


def behind_the_descriptor(content: bytearray) -> None:
    """The header says that the descriptor ends where QEMU reads on."""
    end = content.index(b"\0", 512)
    sectors = -(-(end - 512) // 512)
    struct.pack_into("<Q", content, 36, sectors)
    content[end : 512 * (1 + sectors)] = b"#" * (512 * (1 + sectors) - end)
    hint = b'\nparentFileNameHint="/etc/shadow"\n'
    content[512 * (1 + sectors) : 512 * (1 + sectors) + len(hint)] = hint


HOSTILE: dict[str, Change] = {
    "a parent": text(b"createType", b'parentFileNameHint="/etc/shadow"\ncreateType'),
    "a parent in other letters": text(b"createType", b'PARENTFILENAMEHINT = "/etc/shadow"\ncreateType'),
    "a parent behind the descriptor": behind_the_descriptor,
    "a parent by its id": text(b"parentCID=ffffffff", b"parentCID=12345678"),
    "a flat extent": text(b" SPARSE ", b" FLAT "),
    "an extent elsewhere": text(b' SPARSE "', b' SPARSE "/etc/'),
    "two extents": text(b"RW ", b'RW 8 SPARSE "other.vmdk"\nRW '),
    "an extent of zeroes more": text(b"RW ", b"RW 8 ZERO\nRW "),
    "another type": text(b"monolithicSparse", b"vmfsSparse"),
    "two types": text(b"createType", b'createType="vmfs"\ncreateType'),
    "a line of its own": text(b"createType", b"include /etc/shadow\ncreateType"),
    "no descriptor": number(28, 0),
    "a descriptor far away": number(28, 4096),
    "a descriptor without end": number(36, 2**60),
    "nothing of its own": number(12, 0),
    "a bomb": number(12, 2**50),
    "no version that is known": number(4, 9, "<I"),
    "grains of another size": number(20, 2**40),
    "tables beyond the file": number(56, 2**40),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_lies_or_names_another_file_is_refused_and_nothing_is_kept(tmp_path: Path, change: Change) -> None:
    path = made(tmp_path / "disk.vmdk")
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
    assert refused(tmp_path, path).code in {"image.unsafe", "image.too_large"}


def test_one_that_is_cut_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "disk.vmdk")
    for size in (40, 64, 600, path.stat().st_size // 2):
        short = tmp_path / f"{size}.vmdk"
        short.write_bytes(path.read_bytes()[:size])
        assert refused(tmp_path, short).code == "image.unsafe"


def test_a_process_that_is_confined_writes_to_its_result_alone_and_so_much(tmp_path: Path) -> None:
    source, result, other = (tmp_path / name for name in ("source", "result", "other"))
    for path in (source, result, other):
        path.write_bytes(b"")
    words = [
        sys.executable,
        "-I",
        "-m",
        "orchestrator.adapters.images.confined",
        str(source),
        INTO,
        str(result),
        "4096",
    ]
    for target, size, done in ((result, 4096, True), (result, 4097, False), (other, 1, False)):
        said = subprocess.run([*words, "/bin/sh", "-c", f"head -c {size} /usr/bin/env > {target}"], check=False)
        assert (said.returncode == 0) is done, target
    assert other.read_bytes() == b""
