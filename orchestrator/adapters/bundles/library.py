# SPDX-License-Identifier: Apache-2.0
"""Driver bundles of this control plane: each kept once, under its SHA-256, after digest and signature were checked."""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import sys
import tarfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.adapters.bundles.openpgp import Signed, check_detached, check_inside
from orchestrator.adapters.bundles.packages import AR_MAGIC, RPM_MAGIC, ar_members, rpm_headers
from orchestrator.adapters.files.copying import PrivateCopies, Refusals
from orchestrator.adapters.files.opening import Readable
from orchestrator.core.drivers.bundle import (
    BundleContent,
    DriverBundle,
    NewBundle,
    content_of_package,
    content_of_run,
    unknown_content,
)
from orchestrator.core.errors import Fatal, InvalidInput
from orchestrator.ports.files import TakenFile

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


MAX_BUNDLE_BYTES: Final = 8 * 1024**3
_AT_ONCE: Final = 2
"""Files whose headers are in memory, some tens of MiB each."""


class BundleLibrary:
    """Implements ports/files.BundleFiles below one directory."""

    def __init__(self, directory: Path, files: Readable) -> None:
        self._directory = directory
        self._files = files
        self._judging = threading.BoundedSemaphore(_AT_ONCE)
        self._copies = PrivateCopies(
            directory,
            Refusals(
                max_bytes=MAX_BUNDLE_BYTES,
                too_large=_too_large,
                digest_differs="bundle.digest_differs",
                not_stored="bundle.not_stored",
            ),
        )

    def remove(self, sha256: str) -> None:
        (self._directory / sha256).unlink(missing_ok=True)

    def checked(self, sha256: str) -> Path:
        """:raises Fatal: ``bundle.damaged``"""
        path = self._directory / sha256
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise _damaged(sha256, str(error)) from error
        if digest != sha256:
            raise _damaged(sha256, f"found {digest}")
        return path

    @contextmanager
    def take(self, wanted: NewBundle, now: float) -> Iterator[TakenFile[DriverBundle]]:
        """Copy it, check digest and signature, then read what it is.

        :raises InvalidInput: ``bundle.…``
        :raises Fatal: ``bundle.not_stored``
        """
        with (
            self._opened(wanted.source) as chunks,
            self._copies.of(chunks, wanted.sha256, wanted.size_bytes) as copied,
        ):
            with self._judging:
                signed = _checked(copied.path, wanted)
                content = content_of(copied.path)
            bundle = DriverBundle(
                sha256=copied.sha256,
                content=content,
                size_bytes=copied.size,
                key_id=signed.key_id,
                comment=signed.comment,
                created_at=now,
            )
            yield TakenFile(bundle, lambda: copied.path.replace(self._directory / copied.sha256))

    @contextmanager
    def _opened(self, source: str | Iterator[bytes]) -> Iterator[Iterator[bytes]]:
        if not isinstance(source, str):
            yield source
        elif not source.startswith("/"):
            raise _refused(source, "only absolute paths are allowed")
        else:
            with self._files.open(source, _refused) as chunks:
                yield chunks


def _checked(path: Path, wanted: NewBundle) -> Signed:
    if wanted.signature is None:
        return check_inside(path, wanted.key)
    return check_detached(path, wanted.signature, wanted.key)


def _too_large() -> InvalidInput:
    return unknown_content(f"the file has more than {MAX_BUNDLE_BYTES // 1024**3}GiB")


def _damaged(sha256: str, details: str) -> Fatal:
    return Fatal(
        "bundle.damaged",
        f"driver bundle {sha256[:12]} is not what it was when it was checked",
        hint=f"'vgpuctl driver bundle remove {sha256[:12]}', then add it again; no host was touched",
        details=details,
    )


def _refused(source: str, why: str) -> InvalidInput:
    return InvalidInput(
        "bundle.source_refused",
        f"driver bundle {ascii(source)[:120]} is refused: {why}",
        hint="name a file that the server can read by its absolute path",
    )
