# SPDX-License-Identifier: Apache-2.0
"""What a bundle says of itself, read from its headers: nothing is unpacked to disk, nothing is executed."""

from __future__ import annotations

import io
import lzma
import re
import struct
import tarfile
import zlib
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.core.driver_bundle import BundleContent, content_of_package, content_of_run, unknown_content

_RUN_HEADER_BYTES: Final = 64 * 1024
"""A makeself archive begins with its script; the variables stand at its top."""
_RUN_TARGET: Final = re.compile(rb'^targetdir="?([^"\n]{1,200})"?$', re.MULTILINE)
_AR_MAGIC: Final = b"!<arch>\n"
_AR_MEMBER: Final = 60
_CONTROL_BYTES: Final = 4 * 1024 * 1024
_GZIP: Final = 31
"""zlib's window size with the format of gzip around it."""
_RPM_LEAD: Final = 96
_RPM_MAGIC: Final = b"\xed\xab\xee\xdb"
_RPM_HEADER: Final = b"\x8e\xad\xe8\x01"
_RPM_HEADER_BYTES: Final = 64 * 1024 * 1024
_RPM_TAGS: Final = {1000: "name", 1001: "version", 1022: "architecture"}
_RPM_STRING: Final = 6


def content_of(path: Path) -> BundleContent:
    """:raises InvalidInput: ``bundle.unknown_content``, ``bundle.version_invalid``, ``bundle.architecture``"""
    with path.open("rb") as file:
        first = file.read(len(_AR_MAGIC))
        file.seek(0)
        if first == _AR_MAGIC:
            return _deb(file)
        if first.startswith(_RPM_MAGIC):
            return _rpm(file)
        if first.startswith(b"#!"):
            return _run(file)
    raise unknown_content("the file is none of .run, .deb and .rpm")


def _run(file: BinaryIO) -> BundleContent:
    targets = _RUN_TARGET.findall(file.read(_RUN_HEADER_BYTES))
    if len(targets) != 1:
        raise unknown_content("the script does not say what it unpacks")
    return content_of_run(targets[0].decode("ascii", "replace"))


def _deb(file: BinaryIO) -> BundleContent:
    file.seek(len(_AR_MAGIC))
    while len(head := file.read(_AR_MEMBER)) == _AR_MEMBER:
        name, size = head[:16].rstrip().rstrip(b"/"), head[48:58].strip()
        if head[58:] != b"`\n" or not size.isdigit():
            break
        if name.startswith(b"control.tar"):
            fields = _control(name.removeprefix(b"control.tar"), file.read(min(int(size), _CONTROL_BYTES)))
            wanted = (fields.get("package", ""), fields.get("version", ""), fields.get("architecture", ""))
            return content_of_package(*wanted, "deb")
        file.seek(int(size) + int(size) % 2, io.SEEK_CUR)
    raise unknown_content("the package has no control file")


def _control(suffix: bytes, packed: bytes) -> dict[str, str]:
    """Fields of a deb's control file, by their names in lower case."""
    if suffix not in {b"", b".gz", b".xz"}:
        packing = suffix.decode("ascii", "replace")
        raise unknown_content(f"the package's control file is packed as {packing!a}, which is not read here")
    try:
        if suffix == b".gz":
            packed = zlib.decompressobj(_GZIP).decompress(packed, _CONTROL_BYTES)
        elif suffix == b".xz":
            packed = lzma.LZMADecompressor().decompress(packed, _CONTROL_BYTES)
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            member = next((one for one in archive if one.name in {"control", "./control"} and one.isreg()), None)
            content = None if member is None else archive.extractfile(member)
            text = "" if content is None else content.read(_CONTROL_BYTES).decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        raise unknown_content("the package's control file is damaged") from error
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line and not line[0].isspace())
    return {name.lower(): value.strip() for name, _, value in pairs}


def _rpm(file: BinaryIO) -> BundleContent:
    """The lead, a header of signatures (padded to 8 bytes), then the header that describes the package."""
    file.seek(_RPM_LEAD)
    _rpm_header(file)
    file.seek(-file.tell() % 8, io.SEEK_CUR)
    tags = _rpm_header(file)
    return content_of_package(tags.get("name", ""), tags.get("version", ""), tags.get("architecture", ""), "rpm")


def _rpm_header(file: BinaryIO) -> dict[str, str]:
    """Those of :data:`_RPM_TAGS` that are there."""
    intro = file.read(16)
    if len(intro) != 16 or intro[:4] != _RPM_HEADER:
        raise unknown_content("the package's header is damaged")
    entries, size = struct.unpack(">II", intro[8:])
    if entries * 16 + size > _RPM_HEADER_BYTES:
        raise unknown_content("the package's header is too large")
    index, store = file.read(entries * 16), file.read(size)
    if len(index) != entries * 16 or len(store) != size:
        raise unknown_content("the package's header is cut off")
    found: dict[str, str] = {}
    for tag, kind, offset, _count in struct.iter_unpack(">IIII", index):
        if tag in _RPM_TAGS and kind == _RPM_STRING and offset < size:
            found[_RPM_TAGS[tag]] = store[offset:].partition(b"\0")[0].decode("utf-8", "replace")
    return found
