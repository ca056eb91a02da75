# SPDX-License-Identifier: Apache-2.0
"""Images, volumes and seeds on this host."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from orchestrator.agent.images import files
from orchestrator.agent.images.data_volumes import DataVolumes
from orchestrator.agent.images.disk_images import (
    NvramFiles,
    backing_of,
    check_base_image,
    create_overlay,
    is_unused,
    read_header,
)
from orchestrator.agent.images.pool_disks import PoolDisks, check_closed
from orchestrator.agent.images.pool_mounts import mounts
from orchestrator.agent.images.pools import MountedPools
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.agent.turns import Turns
from orchestrator.core.actions.host_actions import ActionResult, CreateVolume, ImageFormat
from orchestrator.core.actions.pools import LeaveDisks
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, VgpuctlError
from orchestrator.core.hosts.pool import file_path, pool_of
from orchestrator.core.hosts.snapshot import FileSnapshot
from orchestrator.core.hosts.volume_key import passphrase_of
from orchestrator.core.vms.disk_snapshot import SNAPSHOT_FILE, snapshot_file
from orchestrator.core.vms.vm import MAX_DISK_BYTES, memory_file

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_KINDS = {"volumes": "volume", "seeds": "seed", "data": "attached", "nvram": "nvram"}
"""Directory of ours → what its files are in the ledger."""
_MAX_SEED_BYTES = 8 * 1024 * 1024
_CHUNK = 256 * 1024
_BASES_S = 30.0
"""How long a pool may take to have all headers of its disks read."""
_MAX_CHAIN = 64
"""Files that lie on each other; a chain that is longer is none that runs."""


def image_name(sha256: str, image_format: ImageFormat) -> str:
    """:raises InvalidInput: ``image.sha256_invalid``"""
    if _SHA256.fullmatch(sha256) is None or image_format not in ("qcow2", "raw"):
        raise InvalidInput("image.sha256_invalid", "an image is named by 64 lower-case hex digits and qcow2 or raw")
    return f"{sha256}.{image_format}"


def holds_files(paths: Paths) -> bool:
    """Whether disks or seeds of VMs are here, which nobody else puts there.

    :raises Fatal: ``host.storage_failed``"""
    try:
        file_names = [
            path
            for directory in (paths.volumes, paths.seeds, paths.data)
            if directory.is_dir()
            for path in directory.iterdir()
        ]
    except OSError as error:
        raise files.storage_error(error) from error
    return any(not files.is_partial(path) for path in file_names)


class Storage:
    """Every file is owned by a VM in the ledger, but base images, which are everybody's, and data volumes."""

    def __init__(self, paths: Paths, ledger: Ledger) -> None:
        """:raises Fatal: ``host.storage_failed``"""
        self.paths = paths
        self._ledger = ledger
        self._bases = Turns()
        """Of the own directory, and of each pool: from whether a base image is there, or is nobody's base, is read
        until that has been acted upon."""
        self.pools = MountedPools(paths)
        self.shared = PoolDisks(paths, ledger, self.pools)
        self.data = DataVolumes(paths, ledger, self.pools)
        self.nvram = NvramFiles(paths, ledger)
        try:
            # QEMU runs as a user of its own and has to get through to the files, not to list them.
            paths.storage.mkdir(parents=True, exist_ok=True)
            paths.storage.chmod(0o711)
            for directory in (paths.images, paths.volumes, paths.seeds, paths.data):
                directory.mkdir(exist_ok=True)
                directory.chmod(0o711)
                files.remove_partial_files(directory)
            paths.pools.mkdir(exist_ok=True)  # where other hosts may be writing: nothing is removed there
            paths.pools.chmod(0o711)
        except OSError as error:
            raise files.storage_error(error) from error

    @property
    def directory(self) -> Path:
        """Which holds volumes, seeds and data volumes."""
        return self.paths.storage

    def disk_path(self, volume: str) -> Path:
        """Of a VM's disk. Of one in a pool it is raised what ``MountedPools.home`` does."""
        return self._home(files.check_file_name(volume)) / "volumes" / volume

    def _home(self, file: str) -> Path:
        pool = pool_of(file)
        return self.paths.storage if pool is None else self.pools.home(pool)

    def create_volume(self, action: CreateVolume) -> ActionResult:
        """In a pool the host alone may open it then.

        :raises Fatal: ``image.missing``, ``volume.smaller_than_image``, ``volume.failed``, ``host.disk_full``
        :raises Conflict: ``host.foreign_file``, ``volume.differs``, ``volume.no_key``
        :raises InvalidInput: ``volume.size_invalid``"""
        target = self.disk_path(action.volume)
        base = target.parent.parent / "images" / image_name(action.base_sha256, action.base_format)
        if action.size_bytes > MAX_DISK_BYTES:
            raise InvalidInput("volume.size_invalid", f"no disk has {action.size_bytes} bytes", hint="64TiB at most")
        if self.is_ours(target, "volume", action.vm):
            header = read_header(target, "qcow2")
            if backing_of(target) != str(base) or header.virtual_bytes != action.size_bytes:
                raise Conflict("volume.differs", "the VM's disk exists with another size or image", details=target.name)
            return ActionResult(changed=False)
        with self._bases.of(str(target.parent.parent)):
            if pool_of(action.volume) is not None:
                self._keep_in_pool(base)
                self.pools.hold(action.volume, target)
            try:
                self._make_volume(action, target, base)
            finally:
                if pool_of(action.volume) is not None and not target.exists():
                    self.pools.let_go(action.volume)
        return ActionResult(changed=True)

    def _keep_in_pool(self, base: Path) -> None:
        """A pool has its own copy of each image that disks in it lie on."""
        own = self.paths.images / base.name
        if not base.exists() and own.exists():
            with files.written_whole(base, mode=0o644) as part:
                shutil.copyfile(own, part)

    def _make_volume(self, action: CreateVolume, target: Path, base: Path) -> None:
        if not base.exists():
            raise Fatal("image.missing", "the base image is not on the host", hint="send it first", details=base.name)
        smallest = check_base_image(base, action.base_format).virtual_bytes
        if action.size_bytes < smallest:
            raise Fatal(
                "volume.smaller_than_image",
                "the disk is smaller than the image",
                hint=f"ask for at least {-(-smallest // 1024**2)}MiB",
                details=f"{action.size_bytes} < {smallest} bytes",
            )
        with self.owned("volume", target, action.vm, base.name), files.written_whole(target, mode=0o600) as part:
            beneath = (
                base if pool_of(target.name) is None else Path("..", "images", base.name)
            )  # wherever it is mounted
            size, key = action.size_bytes, passphrase_of(target.name, action.keys)
            create_overlay(part, base=beneath, base_format=action.base_format, size_bytes=size, passphrase=key)

    def write_seed(self, vm: str, seed: str, iso_base64: str) -> ActionResult:
        """:raises InvalidInput: ``seed.invalid``"""
        target = self.paths.seeds / files.check_file_name(seed)
        try:
            content = base64.b64decode(iso_base64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidInput("seed.invalid", "the seed is not base64", details=str(error)) from error
        if not 0 < len(content) <= _MAX_SEED_BYTES:
            raise InvalidInput("seed.invalid", f"a seed has 1 to {_MAX_SEED_BYTES} bytes, this one {len(content)}")
        if self.is_ours(target, "seed", vm) and target.read_bytes() == content:
            return ActionResult(changed=False)
        with self.owned("seed", target, vm), files.written_whole(target, mode=0o600) as part:
            part.touch(mode=0o600)
            part.write_bytes(content)
        return ActionResult(changed=True)

    def delete_volume(self, vm: str, volume: str) -> ActionResult:
        """Of one in a pool that another host may open it is only forgotten that the VM is here."""
        files.check_file_name(volume)
        if pool_of(volume) is None:
            return self._delete(self.paths.volumes, "volume", vm, volume)
        if not self.pools.is_held_here(volume):
            return self.shared.leave(LeaveDisks(vm=vm, files=(volume,)))
        result = self._delete(self.disk_path(volume).parent, "volume", vm, volume)
        self.pools.let_go(volume)
        return result

    def delete_seed(self, vm: str, seed: str) -> ActionResult:
        return self._delete(self.paths.seeds, "seed", vm, seed)

    def delete_image(self, sha256: str, image_format: ImageFormat) -> ActionResult:
        """What cannot be read counts as based on it. Of no home it is removed where disks of another lie on it.

        :raises Conflict: ``image.in_use``; :raises Retryable: ``pool.silent``, ``pool.images_busy``"""
        name, own, pools = image_name(sha256, image_format), self.paths.storage, tuple(mounts(self.paths))

        def of_all(act: Callable[[Path], bool]) -> bool:
            changed = [
                self.pools.of_images(pool, partial(self._with_base, pool.directory, name, act), _BASES_S)
                for pool in pools
            ]
            return any([*changed, self._with_base(own, name, act)])

        of_all(is_unused)
        return ActionResult(changed=of_all(lambda base: is_unused(base) and files.remove(base)))

    def _with_base(self, home: Path, name: str, act: Callable[[Path], bool]) -> bool:
        with self._bases.of(str(home)):
            return act(home / "images" / name)

    def has_image(self, sha256: str, image_format: ImageFormat) -> bool:
        return (self.paths.images / image_name(sha256, image_format)).exists()

    def receive_image(
        self, sha256: str, image_format: ImageFormat, size_bytes: int, read: Callable[[int], bytes]
    ) -> ActionResult:
        """Take exactly ``size_bytes`` from ``read`` and keep them when digest and header are right.

        :raises Fatal: ``image.cut``, ``image.digest_differs``, ``image.malformed``, ``image.not_alone``"""
        target = self.paths.images / image_name(sha256, image_format)
        with files.written_whole(target, mode=0o644) as part:
            digest = _copy(read, part, size_bytes)
            if digest != sha256:
                raise Fatal(
                    "image.digest_differs", "the image changed on its way", hint="send it again", details=digest
                )
            check_base_image(part, image_format)
        return ActionResult(changed=True)

    def settle(self, vm: str, volume: str, seed: str) -> None:
        """Write down again that these are the VM's, as far as they are here; in a pool, which may be away, they are.

        :raises Conflict: ``host.owned_by_other``"""
        disks = (volume, memory_file(vm), *(file.name for file in self.paths.volumes.glob(snapshot_file(vm, "*"))))
        files_of = (*(("volume", "volumes", name) for name in disks), ("seed", "seeds", seed))
        for kind, directory, name in files_of:
            if pool_of(files.check_file_name(name)) or (self.paths.storage / directory / name).exists():
                self._ledger.claim(f"{kind}:{name}", vm)
        self.nvram.settle(vm)

    def check_file_of(self, vm: str, path: str) -> None:
        """That a disk, a seed or UEFI variables are this VM's, where their name says; a disk on an image of ours.

        :raises Conflict: ``vm.file_foreign``"""
        file = Path(path)
        is_below = path == file_path(str(self.paths.storage), file.parent.name, file.name)
        kind = _KINDS.get(file.parent.name) if is_below else None
        own = kind is not None and self._owner(kind, file.name) == vm
        if not own or file.is_symlink() or (kind == "volume" and self._on_foreign_image(file)):
            raise _foreign_file(path)

    def image_beneath(self, vm: str, volume: str) -> str | None:
        """Name of the image that the VM's disk was made on, as the ledger says; of a disk from before that was written
        there, as its header does. None: the disk is not made yet.

        :raises Conflict: ``vm.file_foreign``"""
        owner = self._ledger.owner(f"volume:{files.check_file_name(volume)}")
        if owner is not None and owner.vm == vm and owner.detail:
            return owner.detail
        file = self.disk_path(volume)
        if not file.exists():
            return None
        self.check_file_of(vm, str(file))
        return Path(backing_of(file) or "/").name

    def disk_bytes(self, volume: str) -> int:
        """What the guest sees of it; 0: it is not there, or cannot be read."""
        try:
            return read_header(self.disk_path(volume), "qcow2").virtual_bytes
        except (OSError, VgpuctlError):
            return 0

    def check_image_beneath(self, vm: str, disk: str, image: str) -> None:
        """That a disk is said to lie on the image that it was made on.

        :raises Conflict: ``vm.file_foreign``"""
        file, beneath = Path(disk), Path(image)
        ours = disk == file_path(str(self.paths.storage), "volumes", file.name)
        ours = ours and beneath.parent == file.parent.parent / "images"
        if not ours or beneath.name != self.image_beneath(vm, file.name) or beneath.is_symlink():
            raise _foreign_file(image)

    def check_not_ours(self, path: str) -> None:
        """That a file which somebody else gave a domain is none that we made, nor lies on one.

        :raises Conflict: ``vm.file_foreign``"""
        ours, file = self.paths.storage.resolve(), Path(path)
        for _ in range(_MAX_CHAIN):
            if ours in file.resolve().parents:
                raise _foreign_file(path)
            beneath = _beneath(file)
            if beneath is None:
                return
            file = beneath

    def _on_foreign_image(self, file: Path) -> bool:
        """That a file is not there, QEMU will tell. A file for its data is one more that a header can name."""
        if not file.exists():
            return False
        try:
            header = read_header(file, "qcow2")
        except (OSError, Fatal):
            return True
        base = Path(os.path.normpath(file.parent / (header.backing_name or "/")))
        return header.external_data or base.parent != file.parent.parent / "images" or base.is_symlink()

    def volumes(self) -> tuple[FileSnapshot, ...]:
        return self._list(self.paths.volumes, "volume")

    def seeds(self) -> tuple[FileSnapshot, ...]:
        return self._list(self.paths.seeds, "seed")

    def images(self) -> tuple[FileSnapshot, ...]:
        return self._list(self.paths.images, "image")

    def _delete(self, directory: Path, kind: str, vm: str, name: str) -> ActionResult:
        path, changed = directory / files.check_file_name(name), False
        if self.is_ours(path, kind, vm):
            if not name.endswith(SNAPSHOT_FILE):  # that is only read: what copies it to another VM's disk goes on
                self.check_closed(path, kind)
            changed = files.remove(path)
        if self._owner(kind, path.name) == vm:
            files.remove_parts(path)
            self._ledger.release(f"{kind}:{path.name}")
        return ActionResult(changed=changed)

    def check_closed(self, path: Path, kind: str) -> None:
        """:raises Conflict: ``volume.in_use``, ``seed.in_use``: something has it open, or nobody can tell"""
        check_closed(self.paths, path, kind)

    def is_ours(self, path: Path, kind: str, vm: str) -> bool:
        """Whether the file exists and is this VM's.

        :raises Conflict: ``host.foreign_file`` when it exists and is somebody else's"""
        if not path.exists():
            return False
        if self._owner(kind, path.name) != vm:
            raise Conflict("host.foreign_file", f"{path.name} exists and is not this VM's", hint="look at the host")
        return True

    def _owner(self, kind: str, name: str) -> str | None:
        owner = self._ledger.owner(f"{kind}:{name}")
        return None if owner is None else owner.vm

    @contextmanager
    def owned(self, kind: str, target: Path, vm: str, made_on: str = "") -> Iterator[None]:
        """Record the owner first, and take it back when no file came of it."""
        self._ledger.claim(f"{kind}:{target.name}", vm, detail=made_on)
        try:
            yield
        finally:
            if not target.exists():
                self._ledger.release(f"{kind}:{target.name}")

    def _list(self, directory: Path, kind: str) -> tuple[FileSnapshot, ...]:
        snapshots = []
        for path in sorted(directory.iterdir()):
            if files.is_partial(path):
                continue
            name = os.fsencode(path.name).decode(errors="backslashreplace")  # anybody may have put a file there
            snapshots.append(FileSnapshot(name=name, size_bytes=files.taken(path), owner=self._owner(kind, name)))
        return tuple(snapshots)


def _beneath(file: Path) -> Path | None:
    """The file that a qcow2 file says it lies on. None: there is none, or it is no such file."""
    try:
        name = read_header(file, "qcow2").backing_name if file.is_file() else None
        return None if name is None else (file.resolve().parent / name.removeprefix("file:")).resolve()
    except (OSError, RuntimeError, ValueError, Fatal):  # links in a circle, a name that no file can have
        return None


def _foreign_file(path: str) -> Conflict:
    return Conflict(
        "vm.file_foreign",
        "the VM's definition takes a file that is not the VM's",
        hint="look at the host: 'vgpuctl doctor --host HOST'",
        details=path,
    )


def _copy(read: Callable[[int], bytes], part: Path, size_bytes: int) -> str:
    digest = hashlib.sha256()
    missing = size_bytes
    with part.open("xb") as file:
        while missing:
            chunk = read(min(_CHUNK, missing))
            if not chunk:
                raise Fatal("image.cut", "the image was cut on its way", hint="send it again")
            file.write(chunk)
            digest.update(chunk)
            missing -= len(chunk)
    return digest.hexdigest()
