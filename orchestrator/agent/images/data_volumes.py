# SPDX-License-Identifier: Apache-2.0
"""Data volumes on this host: files that belong to themselves, and to the VM that has them for as long as it does.

The ledger knows each by its file as ``data:<file>``, owned by its id, and as ``attached:<file>``, owned by the VM; as
``fetched:<file>`` with the id of what was fetched last to be put in its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from orchestrator.agent.images import files
from orchestrator.agent.images.disk_images import make_encrypted, make_raw
from orchestrator.agent.images.pools import MountedPools
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs.open_files import open_below
from orchestrator.core.actions.disk_snapshots import CopiedVolume
from orchestrator.core.actions.host_actions import (
    ActionResult,
)
from orchestrator.core.actions.settle_ledger import KnownVolume
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CopyDataVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
    GrowDataVolume,
    LinkDataVolume,
    ReplaceDataVolume,
)
from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.hosts.pool import pool_of
from orchestrator.core.hosts.snapshot import FileSnapshot
from orchestrator.core.hosts.volume_key import MARK, READS, VolumeKey, check_keys, is_encrypted, length_of
from orchestrator.core.names import is_name, is_uuid
from orchestrator.core.vms.vm import DATA_FILE, MAX_DISK_BYTES, MIN_DISK_BYTES
from orchestrator.core.vms.volume import is_reader, read_by

CopyFile = Callable[[str | None, Path, Path], str]
"""What is on the first file, of a VM that may run (None: of none), to the second one, which is made. Whether a guest's
file systems were frozen, as a result says it."""


def id_in(file: str) -> str:
    """Id of the volume whose file is called so.

    :raises InvalidInput: ``host.file_name_invalid``, ``volume.file_invalid``"""
    pool = pool_of(files.check_file_name(file))
    name, _, rest = file.partition(".")
    volume, _, kind = rest.partition(".")
    kinds = {"raw", f"{MARK[1:]}.raw"} if pool is None else {f"{pool}.raw"}
    read, mark, _ = kind.partition(f"{'' if pool is None else f'.{pool}'}{READS}.raw")
    if not (is_name(name) and is_uuid(volume) and (kind in kinds or (mark and is_uuid(read)))):
        raise InvalidInput("volume.file_invalid", f"{file} is no data volume's file", hint="NAME.UUID.raw")
    return volume


class DataVolumes:
    """Raw files with holes, and encrypted ones. One in a pool is in no host's ledger but that of its VM: each host that
    has the pool may make and remove it, and the one that has its lease alone may open it."""

    def __init__(self, paths: Paths, ledger: Ledger, pools: MountedPools) -> None:
        self._paths = paths
        self._ledger = ledger
        self._pools = pools

    def create(self, action: CreateDataVolume) -> ActionResult:
        """:raises Conflict: ``host.foreign_file``, ``volume.differs``
        :raises InvalidInput: ``volume.size_invalid``, ``volume.file_invalid``
        :raises Fatal: ``host.disk_full``, ``host.storage_failed``, ``volume.failed``"""
        volume, path = id_in(action.volume), self._path(action.volume)
        _check_size(action.size_bytes)
        if path.exists() or path.is_symlink():
            self._check_ours(action.volume)
            if path.stat().st_size != length_of(action.volume, action.size_bytes):
                raise Conflict("volume.differs", "the data volume exists with another size", details=path.name)
            return ActionResult(changed=False)
        with self._owned(path, volume), files.written_whole(path, mode=0o600) as part:
            if is_encrypted(action.volume):
                check_keys((action.volume,), (VolumeKey(volume=volume, passphrase=action.passphrase),))
                make_encrypted(part, action.size_bytes, action.passphrase)
            else:
                make_raw(part, action.size_bytes)
        return ActionResult(changed=True)

    @contextmanager
    def new(self, file: str, size_bytes: int) -> Iterator[Path | None]:
        """One that becomes it once all has gone well; None: it is there already. Raises as :meth:`copy`."""
        volume, path = id_in(file), self._path(file)
        _check_size(size_bytes)
        _check_plain(file)
        if path.exists() or path.is_symlink():
            self._check_ours(file)
            yield None
            return
        with self._owned(path, volume), files.written_whole(path, mode=0o600) as part:
            yield part

    def copy(self, action: CopyDataVolume, copy: CopyFile) -> ActionResult:
        """:raises NotFound: ``volume.missing``; :raises Conflict: ``host.foreign_file``, ``volume.differs``,
        ``volume.encrypted``, ``pool.held_elsewhere``; :raises InvalidInput: as :meth:`create`
        :raises Fatal: ``host.disk_full``; nothing is left"""
        _check_plain(action.of)
        with self.new(action.volume, action.size_bytes) as part:
            if part is None:
                return ActionResult(changed=False)
            quiesced = self._copy_to(part, action.of, action.size_bytes, copy)
        return ActionResult(changed=True, quiesced=quiesced)

    @contextmanager
    def beside_disk(self, copied: CopiedVolume) -> Iterator[tuple[Path, Path]]:
        """The file that is copied, and one that becomes the copy of it once all has gone well. One that is there is of
        an attempt that did not make all. Raises as :meth:`copy`."""
        volume, path = id_in(copied.volume), self._path(copied.volume)
        _check_size(copied.size_bytes)
        _check_plain(copied.volume, copied.of)
        if path.exists() or path.is_symlink():
            self._check_ours(copied.volume)
            files.remove(path)
        with self._owned(path, volume), files.written_whole(path, mode=0o600) as part:
            yield self._source(copied.of, copied.size_bytes, part), part
            os.truncate(part, copied.size_bytes)

    def replace(self, action: ReplaceDataVolume, copy: CopyFile) -> ActionResult:
        """Done again it is the same once more.

        :raises NotFound: ``volume.missing``
        :raises Conflict: ``volume.in_use``, ``volume.differs``, ``volume.encrypted``, ``host.foreign_file``,
            ``pool.held_elsewhere``
        :raises Fatal: ``host.disk_full``; the volume is as it was"""
        _check_plain(action.volume, action.of, action.copy)
        path, copied = self.existing(action.volume), self._path(action.copy)
        if path.stat().st_size > action.size_bytes:
            raise Conflict("volume.differs", "the data volume is larger", hint="a volume never shrinks")
        _check_not_read(path)
        self._check_no_other(path)
        self._check_closed(path)
        if action.of == action.copy:  # what a backup held is nowhere else, and is there until it is in the place
            self._put_fetched(path, copied)
            return self._replaced(copied)
        closed = partial(self._check_closed, path)  # somebody may start its VM on the host meanwhile
        with files.written_whole(path, mode=0o600, check=closed) as part:
            if copied.exists() and self._owner(copied.name) == id_in(copied.name):
                copied.rename(part)
            else:
                self._copy_to(part, action.of, action.size_bytes, copy)
        return self._replaced(copied)

    def _put_fetched(self, path: Path, fetched: Path) -> None:
        """Gone is done only where it was put there: somebody may have deleted it.

        :raises NotFound: ``volume.missing``"""
        mark, itself = f"fetched:{path.name}", id_in(fetched.name)
        if fetched.exists():
            self._check_ours(fetched.name)
            self._ledger.claim(mark, id_in(path.name), detail=itself)
            fetched.replace(path)
            files.sync(path.parent)
            return
        put = self._ledger.owner(mark)
        if put is None or put.detail != itself:
            words, hint = "what was fetched of the backup is not on the host any more", "restore the backup again"
            raise NotFound("volume.missing", words, hint=hint, details=fetched.name)

    def _replaced(self, copied: Path) -> ActionResult:
        if pool_of(copied.name) is None:
            self._ledger.release(f"data:{copied.name}")
        return ActionResult(changed=True)

    def _copy_to(self, part: Path, of: str, size_bytes: int, copy: CopyFile) -> str:
        quiesced = copy(self.user(of), self._source(of, size_bytes, part), part)
        os.truncate(part, size_bytes)
        return quiesced

    def _source(self, of: str, size_bytes: int, part: Path) -> Path:
        """That may be copied to ``part``."""
        source = self.existing(of)
        self._check_no_other(source)
        if source.stat().st_size > size_bytes:
            raise Conflict("volume.differs", "what is copied is larger", hint="look at the host", details=of)
        files.check_free(part.parent, files.taken(source))
        return source

    @contextmanager
    def _owned(self, path: Path, volume: str) -> Iterator[None]:
        """Whose it is is written down first, and not any more where no file comes of it."""
        if pool_of(path.name) is not None:
            yield
            return
        self._ledger.claim(f"data:{path.name}", volume)
        try:
            yield
        finally:
            if not path.exists():
                self._ledger.release(f"data:{path.name}")

    def _check_no_other(self, path: Path) -> None:
        """:raises Conflict: ``pool.held_elsewhere``, ``pool.open_elsewhere``"""
        if pool_of(path.name) is not None:
            self._pools.check_no_other(path.name, None)

    def link(self, action: LinkDataVolume) -> ActionResult:
        """:raises NotFound: ``volume.missing``
        :raises Conflict: ``volume.in_use``: a VM has it for writing; ``volume.differs``, ``host.foreign_file``,
            ``pool.held_elsewhere``
        :raises InvalidInput: ``volume.file_invalid``: it is no name to read that volume by"""
        volume, path, source = id_in(action.volume), self._path(action.volume), self.existing(action.of)
        if not is_reader(action.volume) or read_by(action.volume.removesuffix(DATA_FILE)) != action.of:
            raise InvalidInput("volume.file_invalid", f"{action.volume} reads no {action.of}", hint="look at the host")
        if (vm := self.user(action.of)) is not None:
            raise Conflict("volume.in_use", "a VM has the data volume for writing", hint="detach it first", details=vm)
        if path.exists() or path.is_symlink():
            self._check_ours(action.volume)
            if not path.samefile(source):
                raise Conflict("volume.differs", "the name is that of another file", details=path.name)
            return ActionResult(changed=False)
        if pool_of(action.of) is not None:
            self._pools.check_no_other(action.of, action.gone)
        with self._owned(path, volume):
            path.hardlink_to(source)
        return ActionResult(changed=True)

    def grow(self, action: GrowDataVolume, for_guest: Callable[[str, Path, int], bool]) -> ActionResult:
        """``for_guest``: makes it larger for a VM that runs with it; False: it does not.

        :raises NotFound: ``volume.missing``; :raises Conflict: ``volume.differs``, ``host.foreign_file``
        :raises InvalidInput: ``volume.size_invalid``"""
        path = self.existing(action.volume)
        _check_size(action.size_bytes)
        _check_not_read(path)
        before, vm = path.stat().st_size, self.user(path.name)
        after = length_of(path.name, action.size_bytes)
        if before > after:
            raise Conflict(
                "volume.differs", "the data volume is larger", hint="a volume never shrinks", details=path.name
            )
        if vm is None or not for_guest(vm, path, action.size_bytes):
            os.truncate(path, after)
        return ActionResult(changed=before != after)

    def delete(self, action: DeleteDataVolume) -> ActionResult:
        """Gone already is fine.

        :raises Conflict: ``volume.in_use``, ``host.foreign_file``, ``pool.held_elsewhere``, ``pool.open_elsewhere``"""
        path, changed = self._path(action.volume), False
        if path.exists() or path.is_symlink():
            self._check_ours(action.volume)
            vm = self.user(path.name)
            if vm is not None:
                raise Conflict("volume.in_use", "a VM has the data volume", hint="detach it first", details=vm)
            self._check_closed(path)
            if pool_of(path.name) is not None:
                self._pools.check_no_other(path.name, action.gone)
                self._pools.hold(path.name, path)
                self._pools.let_go(path.name)
            changed = files.remove(path)
        files.remove_parts(path)
        self._ledger.release(f"fetched:{path.name}")
        if pool_of(path.name) is None and self._owner(path.name) == id_in(action.volume):
            self._ledger.release(f"data:{path.name}")
        return ActionResult(changed=changed)

    def attach(self, action: AttachVolume) -> ActionResult:
        """:raises NotFound: ``volume.missing``
        :raises Conflict: ``volume.in_use``, ``host.foreign_file``, ``pool.held_elsewhere``, ``pool.open_elsewhere``"""
        path = self.existing(action.volume)
        vm = self.user(path.name)
        if vm not in {None, action.vm}:
            raise Conflict("volume.in_use", "another VM has the data volume", hint="detach it first", details=vm)
        _check_not_read(path)
        if pool_of(path.name) is not None:
            self._pools.check_no_other(path.name, action.gone)
            self._pools.hold(path.name, path)
        self._ledger.claim(f"attached:{path.name}", action.vm)
        return ActionResult(changed=vm is None)

    def detach(self, action: DetachVolume) -> ActionResult:
        """One that another VM has is left alone.

        :raises Conflict: ``volume.in_use``"""
        path = self._path(action.volume)
        if self.user(path.name) != action.vm:
            return ActionResult(changed=False)
        self._check_closed(path)
        if pool_of(path.name) is not None:
            self._pools.let_go(path.name)
        self._ledger.release(f"attached:{path.name}")
        return ActionResult(changed=True)

    def settle(self, known: Iterable[KnownVolume]) -> None:
        """Write down again that those which are here are ours, and who has them; of a pool, which may be away, that
        alone.

        :raises Conflict: ``host.owned_by_other``"""
        for of_volume in known:
            volume, file = id_in(of_volume.volume), of_volume.volume
            if pool_of(file) is None:
                path = self._paths.data / file
                if not path.is_file() or path.is_symlink():
                    continue
                self._ledger.claim(f"data:{file}", volume)
            if of_volume.vm is not None:
                self._ledger.claim(f"attached:{file}", of_volume.vm)

    def user(self, name: str) -> str | None:
        """Id of the VM that has it."""
        owner = self._ledger.owner(f"attached:{name}")
        return None if owner is None else owner.vm

    def snapshots(self) -> tuple[FileSnapshot, ...]:
        """All files here, with what they take of the disk."""
        volumes = []
        for path in sorted(self._paths.data.iterdir()):
            if files.is_partial(path):
                continue
            name = os.fsencode(path.name).decode(errors="backslashreplace")  # anybody may have put a file there
            taken = 0 if is_reader(name) else files.taken(path)
            length, owner = files.length(path), self._owner(name)
            volumes.append(FileSnapshot(name=name, size_bytes=taken, owner=owner, length_bytes=length))
        return tuple(volumes)

    def is_open(self, path: str) -> bool:
        """Whether a process has it, or that cannot be read."""
        opened = open_below(self._paths, path)
        return opened is None or path in opened

    def existing(self, file: str) -> Path:
        """Where it is. :raises NotFound: ``volume.missing``; :raises Conflict: ``host.foreign_file``"""
        path = self._path(file)
        if not path.exists():
            raise NotFound(
                "volume.missing", "the data volume is not on the host", hint="look at the host", details=path.name
            )
        self._check_ours(file)
        return path

    def _path(self, file: str) -> Path:
        id_in(file)
        pool = pool_of(file)
        return self._paths.data / file if pool is None else self._pools.home(pool) / "data" / file

    def _owner(self, name: str) -> str | None:
        if pool_of(name) is not None:
            return id_in(name)
        owner = self._ledger.owner(f"data:{name}")
        return None if owner is None else owner.vm

    def _check_ours(self, file: str) -> None:
        path = self._path(file)
        if self._owner(file) != id_in(file) or path.is_symlink() or not path.is_file():
            raise Conflict("host.foreign_file", f"{file} exists and is not ours", hint="look at the host")

    def _check_closed(self, path: Path) -> None:
        if self.is_open(str(path)):
            raise Conflict(
                "volume.in_use", "something has the data volume open", hint="stop the VM first", details=str(path)
            )


def _check_not_read(path: Path) -> None:
    """That a file which shall be written, grow or be replaced has no second name, by which VMs read it.

    :raises Conflict: ``volume.in_use``"""
    if is_reader(path.name):
        return
    with path.open("rb") as file:  # opened, NFS asks its server how many names there are
        names = os.fstat(file.fileno()).st_nlink
    if names > 1:
        raise Conflict("volume.in_use", "VMs have the data volume read-only", hint="detach it from them first")


def _check_plain(*names: str) -> None:
    """A copy that QEMU makes while a guest runs would hold what is on it as the guest sees it.

    :raises Conflict: ``volume.encrypted``"""
    if any(map(is_encrypted, names)):
        raise Conflict("volume.encrypted", "an encrypted volume is not copied", hint="copy its files in the guest")


def _check_size(size_bytes: int) -> None:
    """:raises InvalidInput: ``volume.size_invalid``"""
    if not MIN_DISK_BYTES <= size_bytes <= MAX_DISK_BYTES:
        raise InvalidInput("volume.size_invalid", f"no disk has {size_bytes} bytes", hint="16MiB to 64TiB")
