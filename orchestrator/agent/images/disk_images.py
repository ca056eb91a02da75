# SPDX-License-Identifier: Apache-2.0
"""What an image file says of itself, and qemu-img, always with explicit formats and with limits: an image is somebody's
untrusted input.

qcow2: QEMU docs/interop/qcow2.txt. A header is read from the first bytes without running anything on the file. It is
only ever read as the format it was given as: a raw disk may carry any bytes at its start, put there by a guest.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orchestrator.agent.images import files
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.agent.process import ChildHangs, run
from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.domain_xml.firmware import nvram_file
from orchestrator.core.errors import Conflict, Fatal, Unknown

_HEADER = struct.Struct(">4sIQIIQ")
"""magic, version, backing file offset, backing file size, cluster bits, virtual size"""
_MAGIC = b"QFI\xfb"
_INCOMPATIBLE_OFFSET = 72
_EXTERNAL_DATA_FILE = 1 << 2
_MAX_BACKING_NAME = 1023
_HEADER_BYTES = 112


@dataclass(frozen=True)
class ImageHeader:
    virtual_bytes: int
    """Size of the disk that a guest sees."""
    backing_name: str | None
    external_data: bool


def read_header(path: Path, image_format: ImageFormat) -> ImageHeader:
    """:raises Fatal: ``image.malformed``
    :raises OSError: the file cannot be read"""
    if image_format == "raw":
        return ImageHeader(virtual_bytes=path.stat().st_size, backing_name=None, external_data=False)
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
        if len(head) < _INCOMPATIBLE_OFFSET:
            raise _malformed("it is too short")
        magic, version, offset, size, _cluster_bits, virtual = _HEADER.unpack_from(head)
        if magic != _MAGIC or version not in (2, 3):
            raise _malformed("it has no qcow2 header")
        backing = None
        if offset:
            if size > _MAX_BACKING_NAME:
                raise _malformed("its backing file name is too long")
            file.seek(offset)
            backing = file.read(size).decode(errors="replace")
    features = 0
    if version == 3 and len(head) >= _INCOMPATIBLE_OFFSET + 8:
        (features,) = struct.unpack_from(">Q", head, _INCOMPATIBLE_OFFSET)
    return ImageHeader(virtual, backing, bool(features & _EXTERNAL_DATA_FILE))


def backing_of(volume: Path, unread: str | None = None) -> str | None:
    """The file that a disk of ours says it lies on. ``unread``: of one whose file system does not let it be read."""
    try:
        name = read_header(volume, "qcow2").backing_name
        return None if name is None else os.path.normpath(volume.parent / name)
    except (FileNotFoundError, Fatal):
        return None
    except OSError:
        return unread


def is_unused(base: Path) -> bool:
    """Whether a base image is there, and no disk beside it lies on it. :raises Conflict: ``image.in_use``"""
    if not base.exists():
        return False
    disks = (base.parent.parent / "volumes").iterdir()
    users = [disk.name for disk in disks if backing_of(disk, unread=str(base)) == str(base)]
    if users:
        raise Conflict(
            "image.in_use", "disks on this host are based on the image", hint="delete their VMs first",
            details=", ".join(sorted(users)),
        )  # fmt: skip
    return True


def image_format_of(base: Path) -> ImageFormat:
    """Of a base image, as its name says."""
    return "raw" if base.suffix == ".raw" else "qcow2"


def check_base_image(path: Path, image_format: ImageFormat) -> ImageHeader:
    """The header of an image that stands alone.

    :raises Fatal: ``image.malformed``, ``image.not_alone``
    """
    header = read_header(path, image_format)
    if header.backing_name is not None or header.external_data:
        raise Fatal(
            "image.not_alone",
            "the image refers to another file",
            hint="flatten it: qemu-img convert -f qcow2 -O qcow2 IN OUT",
            details=f"backing file {header.backing_name!a}, external data file: {header.external_data}",
        )
    return header


def _malformed(why: str) -> Fatal:
    return Fatal("image.malformed", f"the image is not what it was said to be: {why}", hint="check its format")


_SECONDS = 60
_LUKS_S = 150
"""QEMU measures how fast the processor derives keys."""
_KEY = ("--object", "secret,id=key,file=/dev/stdin")
_OPENS = {"format": "luks", "key-secret": "key"}
_LUKS = ("key-secret=key", "cipher-alg=aes-256", "iter-time=10")


def create_overlay(
    path: Path, *, base: Path, base_format: ImageFormat, size_bytes: int, passphrase: str | None = None
) -> None:
    """A qcow2 file at ``path`` that shows ``base`` and takes the writes; with a passphrase these are encrypted.

    :raises Fatal: ``volume.failed``; :raises Unknown: ``volume.hung``"""
    beneath = ("-b", str(base), "-F", base_format)
    if passphrase is None:
        _qemu_img("create", "-q", "-f", "qcow2", *beneath, str(path), str(size_bytes))
        return
    how = ("-o", ",".join(("encrypt.format=luks", *(f"encrypt.{option}" for option in _LUKS))))
    of = ("-f", "qcow2", *how, *beneath, str(path), str(size_bytes))
    _qemu_img("create", "-q", *_KEY, *of, limit_s=_LUKS_S, passphrase=passphrase)


def lay_on(path: Path, *, base: Path, base_format: ImageFormat) -> None:
    """Say in the header of an overlay that its base is there; what it shows is not read.

    :raises Fatal: ``volume.failed``
    :raises Unknown: ``volume.hung``
    """
    _qemu_img("rebase", "-q", "-u", "-f", "qcow2", "-b", str(base), "-F", base_format, str(path))


def create_empty(path: Path, *, size_bytes: int) -> None:
    """A qcow2 file with nothing in it or beneath it.

    :raises Fatal: ``volume.failed``; :raises Unknown: ``volume.hung``"""
    _qemu_img("create", "-q", "-f", "qcow2", str(path), str(size_bytes))


def make_raw(path: Path, size_bytes: int) -> None:
    """A raw file that is one hole."""
    with path.open("xb") as file:
        file.truncate(size_bytes)


def make_encrypted(path: Path, size_bytes: int, passphrase: str) -> None:
    """A LUKS file with a key of its own, and a hole for what a guest sees of it. The passphrase is drawn and cannot be
    guessed, so that deriving a key of it need take no time. It stands in memory alone, which qemu-img reads.

    :raises Fatal: ``volume.failed``; :raises Unknown: ``volume.hung``"""
    of = ("-f", "luks", "-o", ",".join(_LUKS), str(path), str(size_bytes))
    _qemu_img("create", "-q", *_KEY, *of, limit_s=_LUKS_S, passphrase=passphrase)


def copy_raw(source: Path, target: Path, *, limit_s: int, ended: threading.Event) -> None:
    """To another raw file, with holes, until ``ended``.

    :raises Fatal: ``volume.failed``; :raises Unknown: ``volume.hung``"""
    formats = ("-f", "raw", "-O", "raw")
    _qemu_img("convert", "-q", *formats, str(source), str(target), limit_s=limit_s, ended=ended)


def copy_overlay(
    source: Path, target: Path, *, base: Path, base_format: ImageFormat, limit_s: int, ended: threading.Event
) -> None:
    """What a qcow2 file shows that lies on ``base`` or on nothing, to a new one on ``base``, until ``ended``.

    :raises Conflict: ``vm.file_foreign``: it lies on something else
    :raises Fatal: ``volume.failed``; :raises Unknown: ``volume.hung``"""
    out = ("-O", "qcow2", "-B", str(base), "-F", base_format)
    shown = _shown(source, base, base_format)
    _qemu_img("convert", "-q", *out, shown, str(target), limit_s=limit_s, ended=ended)


def to_raw(
    source: Path, target: Path, *, base: Path, base_format: ImageFormat, limit_s: int, ended: threading.Event
) -> None:
    """As :func:`copy_overlay`, to a raw file with holes."""
    shown = _shown(source, base, base_format)
    _qemu_img("convert", "-q", "-O", "raw", shown, str(target), limit_s=limit_s, ended=ended)


def flatten(
    source: Path, target: Path, *, base: Path, base_format: ImageFormat, limit_s: int, ended: threading.Event
) -> None:
    """As :func:`copy_overlay`, to a qcow2 file on nothing."""
    shown = _shown(source, base, base_format)
    _qemu_img("convert", "-q", "-O", "qcow2", shown, str(target), limit_s=limit_s, ended=ended)


def from_raw(source: Path, target: Path, *, base: Path | None, limit_s: int, ended: threading.Event) -> None:
    """What a raw file holds, to a qcow2 file on ``base``, of which it shows nothing, or on nothing.

    :raises Fatal: ``volume.failed``; :raises Unknown: ``volume.hung``"""
    formats = ("-f", "raw", "-O", "qcow2")
    beneath = () if base is None else ("-B", str(base), "-F", image_format_of(base))
    _qemu_img("convert", "-q", *formats, *beneath, str(source), str(target), limit_s=limit_s, ended=ended)


def _shown(source: Path, base: Path, base_format: ImageFormat, *, encrypted: bool = False) -> str:
    """For QEMU, which is told here what it opens, to the last file: a QEMU that its guest took over can write any
    header into a disk.

    :raises Conflict: ``vm.file_foreign``"""
    header, backing = read_header(source, "qcow2"), backing_of(source)
    if header.external_data or backing not in {None, str(base)}:
        hint = "look at the host: 'vgpuctl doctor --host HOST'"
        raise Conflict(
            "vm.file_foreign", "the VM's disk lies on a file that is not its", hint=hint, details=source.name
        )
    beneath = None if backing is None else _opened(base, base_format, None)
    opened = _opened(source, "qcow2", beneath)
    return f"json:{json.dumps(opened | ({'encrypt': _OPENS} if encrypted else {}))}"


def make_larger(path: Path, *, size_bytes: int) -> None:
    """A qcow2 file that we have made: what it shows has zeros behind it.

    :raises Fatal: ``volume.failed``; :raises Unknown: ``volume.hung``"""
    _qemu_img("resize", "-q", "-f", "qcow2", str(path), str(size_bytes))


def grow_overlay(
    path: Path, *, base: Path, base_format: ImageFormat, size_bytes: int, passphrase: str | None = None
) -> None:
    """As :func:`make_larger`, of one that a guest's QEMU has written, which lies on ``base`` or on nothing.
    ``passphrase``: of one that is encrypted.

    :raises Conflict: ``vm.file_foreign``: it lies on something else
    :raises Fatal: ``volume.failed``; :raises Unknown: ``volume.hung``"""
    shown, key = _shown(path, base, base_format, encrypted=passphrase is not None), () if passphrase is None else _KEY
    _qemu_img("resize", "-q", *key, shown, str(size_bytes), passphrase=passphrase)


def _opened(path: Path, image_format: ImageFormat, beneath: dict[str, object] | None) -> dict[str, object]:
    """As QEMU opens it."""
    file: dict[str, object] = {"driver": image_format, "file": {"driver": "file", "filename": str(path)}}
    return file | ({"backing": beneath} if image_format == "qcow2" else {})


def _qemu_img(
    *args: str, limit_s: int = _SECONDS, ended: threading.Event | None = None, passphrase: str | None = None
) -> None:
    """``passphrase``: what it reads as :data:`_KEY` says, of memory that has no name."""
    if passphrase is None:
        _run(*args, limit_s=limit_s, ended=ended)
        return
    with os.fdopen(os.memfd_create("key"), "w+b") as key:
        key.write(passphrase.encode())
        key.flush()
        key.seek(0)
        _run(*args, limit_s=limit_s, ended=ended, stdin=key)


def _run(*args: str, limit_s: int, ended: threading.Event | None, stdin: IO[bytes] | None = None) -> None:
    limits = ("prlimit", "--as=2147483648", f"--cpu={limit_s // 2}", "--core=0", "--")
    try:
        finished = run([*limits, "qemu-img", *args], limit_s=limit_s, ended=ended, stdin=stdin)
    except ChildHangs as error:
        raise Unknown("volume.hung", "the host's disk did not answer in time", hint="look at the host") from error
    except OSError as error:
        raise Fatal(
            "volume.failed", "qemu-img is missing on the host", hint="install qemu-utils", details=str(error)
        ) from error
    if finished.code:
        raise Fatal("volume.failed", "the disk could not be made", hint="is the disk full?", details=finished.output)


@dataclass(frozen=True)
class NvramFiles:
    paths: Paths
    ledger: Ledger

    @contextmanager
    def owned(self, vm: str) -> Iterator[None]:
        """Record the owner before a definition names the file, and take it back when no definition came of it. The
        directory comes with the first VM that boots by UEFI.

        :raises Conflict: ``host.owned_by_other``; :raises Fatal: ``host.storage_failed``"""
        try:
            self.paths.nvram.mkdir(exist_ok=True)
            self.paths.nvram.chmod(0o711)  # QEMU's account has to get through to its file
        except OSError as error:
            raise files.storage_error(error) from error
        self.ledger.claim(_key(vm), vm)
        try:
            yield
        except BaseException:
            if not self._file(vm).exists():
                self.ledger.release(_key(vm))
            raise

    def content(self, vm: str) -> bytes:
        """b"": it has none."""
        owner = self.ledger.owner(_key(vm))
        file = self._file(vm)
        return file.read_bytes() if owner is not None and owner.vm == vm and file.exists() else b""

    def put(self, vm: str, content: bytes) -> None:
        """As they came from another host. :raises Conflict: ``host.owned_by_other``; :raises Fatal: of a file"""
        with self.owned(vm), files.written_whole(self._file(vm), mode=0o600) as part:
            part.write_bytes(content)

    def settle(self, vm: str) -> None:
        """Write down again whose it is, if it is there.

        :raises Conflict: ``host.owned_by_other``"""
        if self._file(vm).exists():
            self.ledger.claim(_key(vm), vm)

    def remove(self, vm: str) -> None:
        """Gone already is fine, and so is that it never was."""
        owner = self.ledger.owner(_key(vm))
        if owner is not None and owner.vm == vm:
            files.remove(self._file(vm))
            self.ledger.release(_key(vm))

    def _file(self, vm: str) -> Path:
        return self.paths.nvram / files.check_file_name(nvram_file(vm))


def _key(vm: str) -> str:
    return f"nvram:{nvram_file(vm)}"
