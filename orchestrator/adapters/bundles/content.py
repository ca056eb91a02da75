# SPDX-License-Identifier: Apache-2.0
"""What a bundle says of itself, read from its headers: nothing is unpacked to disk, nothing is executed."""

from __future__ import annotations

import io
import lzma
import re
import sys
import tarfile
import zlib
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.adapters.bundles.packages import AR_MAGIC, RPM_MAGIC, ar_members, rpm_headers
from orchestrator.core.drivers.bundle import BundleContent, content_of_package, content_of_run, unknown_content

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_RUN_HEADER_BYTES: Final = 64 * 1024
"""A makeself archive begins with its script; the variables stand at its top."""
_RUN_TARGET: Final = re.compile(rb'^targetdir="?([^"\n]{1,200})"?$', re.MULTILINE)
_CONTROL_BYTES: Final = 4 * 1024 * 1024
_MAX_MEMBERS: Final = 100
"""Sizes below zero have tarfile go back and never end."""
_XZ_BYTES: Final = 128 * 1024 * 1024
"""What 'xz -9' needs is half of that."""
_GZIP: Final = 31
"""zlib's window size with the format of gzip around it."""
_DAMAGED: Final = (
    OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError, tarfile.TarError,
    ValueError, TypeError, LookupError, ArithmeticError, AssertionError, MemoryError, RecursionError,
)  # fmt: skip
"""What unpacking raises; tarfile also whatever its own parts do: headers in headers, sparse files, sizes below zero."""
_NAME, _VERSION, _RELEASE, _ARCHITECTURE = 1000, 1001, 1002, 1022
"""Tags of an rpm's header."""


def content_of(path: Path) -> BundleContent:
    """:raises InvalidInput: ``bundle.unknown_content``, ``bundle.version_invalid``, ``bundle.architecture``"""
    with path.open("rb") as file:
        first = file.read(len(AR_MAGIC))
        file.seek(0)
        if first == AR_MAGIC:
            return _deb(file)
        if first.startswith(RPM_MAGIC):
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
    member = next((member for member in ar_members(file) if member.stem == "control"), None)
    if member is None:
        raise unknown_content("the package has no control file")
    file.seek(member.start)
    fields = _control(member.packing, file.read(min(member.size, _CONTROL_BYTES)))
    wanted = (fields.get("package", ""), fields.get("version", ""), fields.get("architecture", ""))
    return content_of_package(*wanted, "deb")


def _control(suffix: str, packed: bytes) -> dict[str, str]:
    """Fields of a deb's control file, by their names in lower case."""
    if suffix not in {"", ".gz", ".xz", ".zst"}:
        raise unknown_content(f"the package's control file is packed as {suffix!a}, which is not read here")
    try:
        with tarfile.open(fileobj=io.BytesIO(_unpacked(suffix, packed)), mode="r:") as archive:
            member = next(
                (
                    entry
                    for entry in islice(archive, _MAX_MEMBERS)
                    if entry.name in {"control", "./control"} and entry.isreg()
                ),
                None,
            )
            content = None if member is None else archive.extractfile(member)
            text = "" if content is None else content.read(_CONTROL_BYTES).decode("utf-8", "replace")
    except _DAMAGED as error:
        raise unknown_content("the package's control file is damaged") from error
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line and not line[0].isspace())
    return {name.lower(): value.strip() for name, _, value in pairs}


def _unpacked(suffix: str, packed: bytes) -> bytes:
    """Not more than :data:`_CONTROL_BYTES` of it."""
    if suffix == ".gz":
        return zlib.decompressobj(_GZIP).decompress(packed, _CONTROL_BYTES)
    if suffix == ".xz":
        return lzma.LZMADecompressor(memlimit=_XZ_BYTES).decompress(packed, _CONTROL_BYTES)
    if suffix == ".zst":
        return zstd.ZstdDecompressor().decompress(packed, _CONTROL_BYTES)
    return packed


def _rpm(file: BinaryIO) -> BundleContent:
    _, package = rpm_headers(file)
    name, version, release, architecture = (package.text(tag) for tag in (_NAME, _VERSION, _RELEASE, _ARCHITECTURE))
    return content_of_package(name, version, architecture, "rpm", release)
