# SPDX-License-Identifier: Apache-2.0
"""Disks of VMs that go to another host or come from one, and snapshots that go to the controller, as
core/actions/volume_copy.py says that they travel."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from orchestrator.agent.images import files
from orchestrator.agent.images.disk_images import lay_on, read_header
from orchestrator.agent.images.store import Storage, image_name
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.actions.volume_copy import (
    DISK,
    END,
    MAX_RECORD,
    MAX_VARIABLES,
    RECORD,
    SIZE,
    VARIABLES,
    VolumeCopy,
)
from orchestrator.core.errors import Fatal, NotFound, Retryable
from orchestrator.core.hosts.pool import pool_of
from orchestrator.core.units import GIB
from orchestrator.core.vms.disk_snapshot import SNAPSHOT_FILE

_NO_DATA_LEFT = 6
"""ENXIO of lseek(2): behind the last byte that is no hole."""


def check_may_go(storage: Storage, vm: str, volume: str) -> Path:
    """:raises NotFound: ``volume.missing``; :raises Conflict: ``vm.file_foreign``, ``volume.in_use``"""
    path = storage.disk_path(volume)
    if not path.exists():
        raise NotFound("volume.missing", "the VM's disk is not on the host", hint="look at the host", details=path.name)
    if volume.endswith(SNAPSHOT_FILE):  # it lies on an image or on nothing, and no guest writes to it
        storage.is_ours(path, "volume", vm)
    else:
        storage.check_file_of(vm, str(path))
    storage.check_closed(path, "volume")
    return path


def records(storage: Storage, vm: str, path: Path) -> Iterator[bytes]:
    """All that is sent of the disk, and of UEFI variables where there are any: a snapshot has none.

    :raises OSError: it cannot be read"""
    digest = hashlib.sha256()
    in_pool = pool_of(path.name) is not None
    variables = b"" if path.name.endswith(SNAPSHOT_FILE) else storage.nvram.content(vm)
    with path.open("rb") as file:
        for head, content in _contents(file, variables, whole=not in_pool):
            digest.update(head)
            digest.update(content)
            yield head + content
    yield RECORD.pack(END, 0, digest.digest_size) + digest.digest()


def _contents(file: BinaryIO, variables: bytes, *, whole: bool) -> Iterator[tuple[bytes, bytes]]:
    """``whole``: with the disk itself, which a host that has its pool need not be sent."""
    size = os.fstat(file.fileno()).st_size
    yield RECORD.pack(SIZE, size, 0), b""
    for at in range(0, len(variables), MAX_RECORD):
        part = variables[at : at + MAX_RECORD]
        yield RECORD.pack(VARIABLES, at, len(part)), part
    for begin, end in _extents(file.fileno(), size) if whole else ():
        for at in range(begin, end, MAX_RECORD):
            content = os.pread(file.fileno(), min(MAX_RECORD, end - at), at)
            yield RECORD.pack(DISK, at, len(content)), content


def _extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """What is no hole: from where to where."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == _NO_DATA_LEFT:
                return
            raise
        end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, end


def check_may_come(storage: Storage, copy: VolumeCopy) -> None:
    """:raises Fatal: ``image.missing``; :raises Conflict: ``host.foreign_file``, ``volume.in_use``"""
    target, base = _paths(storage, copy)
    if pool_of(copy.volume) is not None:
        return
    if not base.exists():
        raise Fatal("image.missing", "the base image is not on the host", hint="send it first", details=base.name)
    if storage.is_ours(target, "volume", copy.vm):
        storage.check_closed(target, "volume")


def take(storage: Storage, copy: VolumeCopy, read: Callable[[int], bytes]) -> ActionResult:
    """Write what comes, and keep it when its digest and its header are right; what the VM had there is replaced.

    :raises Retryable: ``volume.cut``
    :raises Fatal: ``volume.malformed``, ``volume.failed``, ``host.disk_full``
    """
    if pool_of(copy.volume) is not None:
        return _take_variables(storage, copy, read)
    target, base = _paths(storage, copy)
    with storage.owned("volume", target, copy.vm, base.name), files.written_whole(target, mode=0o600) as part:
        with part.open("xb") as file:
            incoming = _Incoming(file, most=copy.size_bytes + copy.size_bytes // 4 + GIB)
            incoming.receive(read)
        _check(part, base, copy)
        if incoming.variables:
            storage.nvram.put(copy.vm, bytes(incoming.variables))
    return ActionResult(changed=True)


def _take_variables(storage: Storage, copy: VolumeCopy, read: Callable[[int], bytes]) -> ActionResult:
    """Of a VM whose disk is in a pool of both hosts, which sends no more."""
    with TemporaryFile() as file:
        incoming = _Incoming(file, most=copy.size_bytes)
        incoming.receive(read)
    if incoming.variables:
        storage.nvram.put(copy.vm, bytes(incoming.variables))
    return ActionResult(changed=True)


def _paths(storage: Storage, copy: VolumeCopy) -> tuple[Path, Path]:
    """Of the disk, and of the image that it lies on."""
    target = storage.disk_path(copy.volume)
    return target, target.parent.parent / "images" / image_name(copy.base_sha256, copy.base_format)


class _Incoming:
    """Another host is not believed: what it sends stays within the file that is expected."""

    def __init__(self, file: BinaryIO, *, most: int) -> None:
        """``most``: bytes that an overlay for such a disk may have."""
        self.variables = bytearray()
        self._file = file
        self._most = most

    def receive(self, read: Callable[[int], bytes]) -> None:
        """To the end. :raises Retryable: ``volume.cut``; :raises Fatal: ``volume.malformed``"""
        digest = hashlib.sha256()
        while True:
            head = _exactly(read, RECORD.size)
            kind, at, length = RECORD.unpack(head)
            if length > MAX_RECORD:
                raise _cut("a record is too long")
            content = _exactly(read, length)
            if kind == END:
                if content != digest.digest():
                    raise _cut("its digest is another one")
                return
            digest.update(head)
            digest.update(content)
            self._keep(kind, at, content)

    def _keep(self, kind: bytes, at: int, content: bytes) -> None:
        if kind == VARIABLES and at == len(self.variables) and at + len(content) <= MAX_VARIABLES:
            self.variables += content
        elif kind in (DISK, SIZE) and at + len(content) <= self._most:
            if kind == SIZE:
                self._file.truncate(at)
            self._file.seek(at)
            self._file.write(content)
        else:
            raise _malformed(f"{kind!r} at {at}")


def _check(part: Path, base: Path, copy: VolumeCopy) -> None:
    """That it lies on its base and on nothing else, and has the size that the VM's disk has. Where the base is, hosts
    may differ."""
    try:
        header = read_header(part, "qcow2")
    except Fatal as error:
        raise _malformed(error.message) from error
    named = Path(header.backing_name or "/")
    if header.external_data or named.name != base.name or header.virtual_bytes != copy.size_bytes:
        raise _malformed(f"it lies on {ascii(header.backing_name)[:200]} and has {header.virtual_bytes} bytes")
    if named != base:
        lay_on(part, base=base, base_format=copy.base_format)


def _exactly(read: Callable[[int], bytes], size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        chunk = read(size - len(content))
        if not chunk:
            raise _cut(f"{len(content)} of {size} bytes came")
        content += chunk
    return bytes(content)


def _cut(why: str) -> Retryable:
    return Retryable("volume.cut", "the disk was cut on its way", hint="it is copied again", details=why)


def _malformed(why: str) -> Fatal:
    return Fatal("volume.malformed", "the disk is not what it was said to be", hint="look at its host", details=why)
