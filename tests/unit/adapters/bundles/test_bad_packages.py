# SPDX-License-Identifier: Apache-2.0
"""Debs and rpms that are large or broken inside: little memory, one line."""

from __future__ import annotations

import io
import lzma
import re
import resource
import struct
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.adapters.bundles.library import BundleLibrary
from orchestrator.adapters.files.opening import Readable
from orchestrator.core.drivers.bundle import NewBundle
from orchestrator.core.errors import InvalidInput
from tests.fakes.driver_files import PgpSigner, deb_of, rpm_file, run_file

SIGNER = PgpSigner()
MIB = 1024 * 1024
_DATA = re.compile(r"^VmData:\s+(\d+) kB$", re.MULTILINE)


@pytest.fixture
def library(tmp_path: Path) -> BundleLibrary:
    (tmp_path / "kept").mkdir()
    return BundleLibrary(tmp_path / "kept", Readable(never_below=tmp_path / "kept"))


def taken(library: BundleLibrary, path: Path, signature: str | None) -> str:
    """``kept``, or the code of the refusal, which is one line."""
    try:
        with library.take(NewBundle(source=str(path), signature=signature, key=SIGNER.key), 7.0) as bundle:
            bundle.keep()
    except InvalidInput as error:
        return error.code if error.message.isprintable() else repr(error.message)
    return "kept"


@contextmanager
def at_most(mib: int) -> Iterator[None]:
    """More memory than this is not to be had beside what this process has. Files that are mapped do not count."""
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    now = _DATA.search(Path("/proc/self/status").read_text())
    assert now is not None
    resource.setrlimit(resource.RLIMIT_DATA, (int(now[1]) * 1024 + mib * MIB, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def many_tags() -> bytes:
    """An rpm whose header of signatures has nothing but a million tags."""
    lead = b"\xed\xab\xee\xdb".ljust(96, b"\0")
    index = b"".join(struct.pack(">IIII", tag, 7, 0, 1) for tag in range(MIB))
    return lead + b"\x8e\xad\xe8\x01" + b"\0" * 4 + struct.pack(">II", len(index) // 16, 16) + index + b"\0" * 16


@pytest.mark.parametrize(("content", "inside", "outcome"), [
    (lambda: SIGNER.rpm_file(b"\0" * 64 * MIB), True, "kept"),
    (lambda: SIGNER.sign_deb(deb_of(b"\0" * 64 * MIB)), True, "bundle.unknown_content"),
    (lambda: run_file() + b"\0" * 64 * MIB, False, "kept"),
    (many_tags, True, "bundle.unknown_content"),
    (many_tags, False, "bundle.unknown_content"),
    (lambda: rpm_file() + b"\0" * 64 * MIB, True, "bundle.not_signed"),
], ids=["rpm", "deb", "run", "tags", "tags signed beside", "unsigned"])  # fmt: skip
def test_a_file_of_64_mib_takes_little_memory(
    library: BundleLibrary, tmp_path: Path, content: Callable[[], bytes], inside: bool, outcome: str
) -> None:
    (tmp_path / "f").write_bytes(content())
    signature = None if inside else SIGNER.sign(content())
    with at_most(40):
        assert taken(library, tmp_path / "f", signature) == outcome


def _control(name: str = "./control", more: dict[str, str] | None = None, *, size: int | None = None) -> bytes:
    member = tarfile.TarInfo(name)
    member.pax_headers, member.size = more or {}, 4
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(b"a: b"))
    return packed.getvalue() if size is None else _resized(packed.getvalue(), size)


def _resized(archive: bytes, size: int) -> bytes:
    """With another size in its first header, in the form that numbers below zero have."""
    head = bytearray(archive[:512])
    head[124:136] = (256**12 + size).to_bytes(13)[-12:] if size < 0 else b"\x80" + size.to_bytes(11)
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    return bytes(head) + archive[512:]


def _nested(kind: bytes) -> bytes:
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = kind, 1
    return (member.tobuf() + b"x".ljust(512, b"\0")) * 3000


BROKEN = {
    "sparse map of no numbers": _control(more={"GNU.sparse.map": "a,b", "GNU.sparse.size": "1"}),
    "sparse map that is odd": _control(more={"GNU.sparse.map": "1,2,3", "GNU.sparse.size": "1"}),
    "sparse 0.0 of no numbers": _control(more={"GNU.sparse.size": "x", "GNU.sparse.numblocks": "y"}),
    "sparse 1.0 without a map": _control(more={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}),
    "sparse of no size": _control(more={"GNU.sparse.map": "0,1", "GNU.sparse.realsize": "x"}),
    "a size that is no number": _control(more={"size": "x"}),
    "a size below zero": _control(size=-512),
    "a size far below zero": _control(size=-(2**70)),
    "a size beyond the file": _control(size=2**60),
    "long names in long names": _nested(tarfile.GNUTYPE_LONGNAME),
    "headers in headers": _nested(tarfile.XHDTYPE),
    "global headers in headers": _nested(tarfile.XGLTYPE),
    "no archive": b"\xff" * 2048,
    "nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_signed_deb_whose_control_archive_is_broken_is_refused(
    library: BundleLibrary, tmp_path: Path, name: str
) -> None:
    (tmp_path / "f").write_bytes(SIGNER.sign_deb(deb_of(BROKEN[name])))
    assert taken(library, tmp_path / "f", None) == "bundle.unknown_content"


def of_a_large_dictionary() -> bytes:
    return lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}])


@pytest.mark.parametrize("packed", [
    bytes, lambda: b"\0", lambda: b"\xff" * 4096, lambda: lzma.compress(b"x" * 8192)[:60], of_a_large_dictionary,
], ids=["nothing", "a NUL", "ones", "cut off", "a dictionary of 1 GiB"])  # fmt: skip
@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
def test_what_does_not_unpack_is_refused(
    library: BundleLibrary, tmp_path: Path, packing: str, packed: Callable[[], bytes]
) -> None:
    (tmp_path / "f").write_bytes(SIGNER.sign_deb(deb_of(packed(), packing)))
    with at_most(200):
        assert taken(library, tmp_path / "f", None) == "bundle.unknown_content"
