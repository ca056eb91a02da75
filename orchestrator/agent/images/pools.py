# SPDX-License-Identifier: Apache-2.0
"""Pools on this host: directories that other hosts mount too (core/hosts/pool.py). Nothing is written where nothing is
mounted, nor where another directory is than the one that was declared.

A lease says which host may open a disk or volume there: a file that holds the host's machine id. QEMU locks what it
opens for writing besides, over NFS and CephFS as well (docs/system/images.rst, "image locking"): the same bytes tell
here that a host which a lease is taken from still writes.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from orchestrator.agent.images import files
from orchestrator.agent.images.pool_mounts import Mount, mounts
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.actions.pools import DeclarePool, WithdrawPool
from orchestrator.core.errors import Conflict, Fatal, Retryable, VgpuctlError
from orchestrator.core.hosts.pool import held_elsewhere, is_the_pool, pool_of, short_of
from orchestrator.core.hosts.snapshot import FileSnapshot, PoolSnapshot
from orchestrator.core.names import is_uuid
from orchestrator.core.units import MIB
from orchestrator.core.vms.volume import is_reader

MARKER: Final = "vgpuctl-pool"
_DIRECTORIES: Final = ("images", "volumes", "data", "leases")
_HOLD: Final = ("volumes", "data")
_LIMIT_S: Final = 3.0
"""A file system over the network may not answer at all; then its pool is told so, and nothing else waits for it."""
_CHANGE_S: Final = 30.0
"""The same where something is changed there."""
_SILENT: Final = "its file system does not answer"
_WRITES: Final = 101
"""RAW_LOCK_PERM_BASE and BLK_PERM_WRITE's bit of QEMU's block/file-posix.c: held by who writes."""
_HELD: Final = frozenset({"OFDLCK", "POSIX"})
"""Locks on bytes in /proc/locks (proc(5)); who waits for one has an arrow in that place."""
_LOCK: Final = struct.Struct("hhqqi4x")
"""struct flock: type, whence, start, length, pid."""
_MAX_BYTES: Final = 4096
"""Of a lease or a pool's id, which are far shorter."""


T = TypeVar("T")
_Check = Callable[[], None]
_Observed = tuple[PoolSnapshot, tuple[FileSnapshot, ...]]
"""A pool, and the disks there of VMs of this host."""


class MountedPools:
    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._overdue: dict[str, Future[Any]] = {}
        """The question about a pool, or its images, that has had no answer for longer than its limit."""

    def home(self, pool: str) -> Path:
        """Its directory, ``pool`` as hosts call it.

        :raises Retryable: ``pool.not_mounted``, ``pool.silent``, ``pool.unreadable``
        :raises Conflict: ``pool.is_another``, ``pool.no_locks``"""
        return self.asked(pool, lambda directory: directory)

    def asked(self, pool: str, ask: Callable[[Path], T]) -> T:
        """Of its directory, once that is seen to be the pool's. Raises as :meth:`home`, and what ``ask`` raises."""
        name = short_of(pool)
        directory = self._mounted(name)

        def question() -> T:
            _check_is(pool, directory)
            return ask(directory)

        return self.within_limit(name, question)

    def declare(self, action: DeclarePool) -> ActionResult:
        """:raises Retryable: ``pool.not_mounted``, ``pool.silent``, ``pool.unreadable``
        :raises Conflict: ``pool.is_another``, ``pool.no_locks``
        :raises Fatal: ``host.disk_full``, ``host.storage_failed``"""
        return self._changed(action.name, partial(_declared, action, self._mounted(action.name)))

    def withdraw(self, action: WithdrawPool) -> ActionResult:
        """Gone already is fine.

        :raises Retryable: ``pool.not_mounted``, ``pool.silent``, ``pool.unreadable``
        :raises Conflict: ``pool.in_use``"""
        return self._changed(action.name, partial(_withdrawn, action, self._mounted(action.name)))

    def observe(self, owners: Mapping[str, str]) -> tuple[tuple[PoolSnapshot, ...], tuple[FileSnapshot, ...]]:
        """Those that are mounted, and of the disks there those of VMs of this host. ``owners``: file → VM."""
        observed = [self._observed(pool, owners) for pool in mounts(self._paths)]
        return tuple(pool for pool, _ in observed), tuple(disk for _, disks in observed for disk in disks)

    def lease(self, file: str) -> str | None:
        """Machine id of the host that may open the file; None: none. Raises as :meth:`home`.

        :raises Retryable: ``pool.unreadable``"""
        return self.asked(pool_of(file) or "", lambda directory: _text(_lease(directory, file)))

    def is_held_here(self, file: str) -> bool:
        return self.lease(file) == self._own_id()

    def check_held(self, file: str) -> None:
        """:raises Conflict: ``pool.held_elsewhere``"""
        holder = self.lease(file)
        if holder != self._own_id():
            hint = "the VM moved, or was started elsewhere: 'vgpuctl list-vms -A' tells its host"
            raise held_elsewhere(file, holder, hint)

    def check_no_other(self, file: str, gone: str | None) -> None:
        """That no other host may open it. ``gone``: machine that is given up.

        :raises Conflict: ``pool.held_elsewhere``"""
        holder = self.lease(file)
        if holder not in {None, gone, self._own_id()}:
            raise held_elsewhere(file, holder, "a VM of that host had it last: detach it there, or forget the host")

    def hold(self, file: str, path: Path) -> bool:
        """This host alone may open it from now on, whoever might before. Whether it was another's, or nobody's.

        :raises Conflict: ``pool.open_elsewhere``"""
        own, pool = self._own_id(), pool_of(file) or ""
        directory = self.home(pool)

        def taken(still_asked: _Check) -> bool:
            _check_is(pool, directory)
            if _text(_lease(directory, file)) == own:
                return False
            if path.exists() and is_written(path) and not self._is_locked_here(path):
                raise Conflict(
                    "pool.open_elsewhere", "another host has the disk in the pool open for writing",
                    hint="the VM must be stopped there first", details=file,
                )  # fmt: skip
            with files.written_whole(_lease(directory, file), mode=0o644, check=still_asked) as part:
                part.write_text(f"{own}\n")
            return True

        return self._changed(short_of(pool), taken)

    def let_go(self, file: str) -> None:
        """If it is held here."""
        own, pool = self._own_id(), pool_of(file) or ""
        directory = self.home(pool)

        def left(still_asked: _Check) -> None:
            _check_is(pool, directory)
            if _text(_lease(directory, file)) == own:
                still_asked()
                files.remove(_lease(directory, file))

        self._changed(short_of(pool), left)

    def _is_locked_here(self, path: Path) -> bool:
        """Whether the lock on writing is of a process on this host: a VM that came while it runs has it before it goes
        on (libvirt 11.1 and newer), and QEMU lets no second one have it."""
        info, text = path.stat(), reading.text(self._paths.proc / "locks") or ""
        place = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
        return any(
            words[5] == place and int(words[6]) <= _WRITES and (words[7] == "EOF" or int(words[7]) >= _WRITES)
            for words in map(str.split, text.splitlines())
            if words[1] in _HELD
        )

    def _own_id(self) -> str:
        own = reading.text(self._paths.etc / "machine-id")
        if not own:
            raise Fatal("host.storage_failed", "the host has no machine id", hint="systemd-machine-id-setup makes one")
        return own

    def _mounted(self, name: str) -> Path:
        pool = next((pool for pool in mounts(self._paths) if pool.name == name), None)
        if pool is None:
            raise Retryable(
                "pool.not_mounted", f"nothing is mounted for pool {name} on the host",
                hint=f"mount it at {self._paths.pools / name}",
            )  # fmt: skip
        if pool.problem is not None:
            raise Conflict(
                "pool.no_locks", f"pool {name} is mounted without locks that other hosts see",
                hint="mount it by NFS 4 without local_lock, or as CephFS", details=pool.problem,
            )  # fmt: skip
        return pool.directory

    def _observed(self, pool: Mount, owners: Mapping[str, str]) -> _Observed:
        if pool.problem is not None:
            return PoolSnapshot(name=pool.name, pool_id=None, problem=pool.problem), ()
        try:
            return self.within_limit(pool.name, partial(_observed, pool, owners))
        except Retryable:
            return PoolSnapshot(name=pool.name, pool_id=None, problem=_SILENT), ()

    def within_limit(self, pool: str, ask: Callable[[], T], limit_s: float | None = None) -> T:
        """What ``ask`` returns or raises, on a thread: it waits in the kernel for as long as the other side is away.

        :raises Retryable: ``pool.silent``: it may still end, and nothing is asked of the pool until then"""
        answer = self._asked(pool, ask, _LIMIT_S if limit_s is None else limit_s)
        if answer is None:
            hint = "what it is mounted from is away or slow, or the network to it: look there"
            raise Retryable("pool.silent", f"pool {pool} does not answer on the host", hint=hint)
        return answer.result()

    def _changed(self, pool: str, change: Callable[[_Check], T]) -> T:
        """As :meth:`within_limit`. ``change`` calls what it gets directly before whatever it changes: that raises once
        nobody waits for it, who may have taken all back by then."""
        given_up = threading.Event()

        def still_asked() -> None:
            if given_up.is_set():
                raise CancelledError

        try:
            return self.within_limit(pool, partial(change, still_asked), _CHANGE_S)
        finally:
            given_up.set()

    def of_images(self, pool: Mount, ask: Callable[[], T], limit_s: float) -> T:
        """As :meth:`within_limit`, where much is read, or waited for: that takes long in a pool that is well.

        :raises Retryable: ``pool.silent``, ``pool.unreadable``; ``pool.images_busy``: it may still end, and no other
            begins until then"""
        self.within_limit(pool.name, partial(_text, pool.directory / MARKER))
        answer = self._asked(f"{pool.name}/images", ask, limit_s)
        if answer is None:
            raise Retryable(
                "pool.images_busy", f"images of pool {pool.name} are being copied or looked through on the host",
                hint="try again later",
            )  # fmt: skip
        return answer.result()

    def _asked(self, about: str, ask: Callable[[], T], limit_s: float) -> Future[T] | None:
        """None: it takes longer, or one that was asked before does."""
        overdue, answer = self._overdue.get(about), Future[T]()
        if overdue is None or overdue.done():
            threading.Thread(target=_answered, args=(answer, ask), daemon=True).start()
            if wait([answer], limit_s).done:
                return answer
            self._overdue[about] = answer
        return None


def _answered(answer: Future[T], ask: Callable[[], T]) -> None:
    try:
        answer.set_result(ask())
    except BaseException as error:  # noqa: BLE001 - raised by whoever waits; unanswered, the pool was silent for good
        answer.set_exception(error)


def _declared(action: DeclarePool, directory: Path, still_asked: _Check) -> ActionResult:
    pool_id = _id_in(directory)
    if pool_id is not None and pool_id != action.pool_id:
        raise _another(action.name, pool_id)
    _check_not_linked(directory)
    try:
        for name in _DIRECTORIES:
            (directory / name).mkdir(exist_ok=True)
            (directory / name).chmod(0o711)  # QEMU's account has to get through to the files, not to list them
    except OSError as error:
        raise files.storage_error(error) from error
    if pool_id is None:
        with files.written_whole(directory / MARKER, mode=0o644, check=still_asked) as part:
            part.write_text(f"{action.pool_id}\n")
    return ActionResult(changed=pool_id is None)


def _withdrawn(action: WithdrawPool, directory: Path, still_asked: _Check) -> ActionResult:
    if _id_in(directory) != action.pool_id:
        return ActionResult(changed=False)
    try:
        held = [path.name for kind in _HOLD for path in _listed(directory / kind)]
        if held:
            raise Conflict(
                "pool.in_use", f"{len(held)} disks and volumes are in the pool",
                hint=f"no VM or volume has them any more: remove them by hand, below {directory} on the host",
                details=", ".join(sorted(held)[:5]),
            )  # fmt: skip
        for kind in _DIRECTORIES:
            for path in (directory / kind).glob("*"):
                still_asked()
                path.unlink()
            if (directory / kind).is_dir():
                still_asked()
                (directory / kind).rmdir()
    except OSError as error:
        raise files.storage_error(error) from error
    still_asked()
    return ActionResult(changed=files.remove(directory / MARKER))


def _lease(directory: Path, file: str) -> Path:
    return directory / "leases" / file


def _check_is(pool: str, directory: Path) -> None:
    pool_id = _id_in(directory)
    if pool_id is None or not is_the_pool(pool, pool_id):
        raise _another(short_of(pool), pool_id)
    _check_not_linked(directory)


def is_written(path: Path) -> bool:
    """Whether some process on any host has it open for writing, by QEMU's locks.

    :raises Retryable: ``pool.locks_unknown``: the file system does not say"""
    try:
        with path.open("rb") as file:
            question = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _WRITES, 1, 0)
            kind, *_ = _LOCK.unpack(fcntl.fcntl(file.fileno(), fcntl.F_OFD_GETLK, question))
    except OSError as error:
        raise Retryable(
            "pool.locks_unknown", "the pool's file system does not tell who has the disk open",
            hint="mount it with locks: NFS 4 or CephFS", details=str(error),
        ) from error  # fmt: skip
    return bool(kind != fcntl.F_UNLCK)


def _observed(pool: Mount, owners: Mapping[str, str]) -> _Observed:
    try:
        pool_id = _id_in(pool.directory)
        space = os.statvfs(pool.directory)
        listed = (path for kind in _HOLD for path in _listed(pool.directory / kind))
        ours = sum(files.taken(path) for path in listed if not is_reader(path.name))
        present = ((file, vm, pool.directory / "volumes" / file) for file, vm in owners.items())
        disks = tuple(
            FileSnapshot(name=file, size_bytes=files.taken(path), owner=vm)
            for file, vm, path in sorted(present)
            if path.exists() and pool_id is not None and is_the_pool(pool_of(file) or "", pool_id)
        )
    except (OSError, VgpuctlError) as error:
        return PoolSnapshot(name=pool.name, pool_id=None, problem=f"it cannot be read: {error}"), ()
    total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    step = max(MIB, total // 100)
    snapshot = PoolSnapshot(
        name=pool.name, pool_id=pool_id, capacity_bytes=(free + ours) // MIB * MIB, free_bytes=free // step * step
    )
    return snapshot, disks


def _listed(directory: Path) -> Iterable[Path]:
    return [path for path in directory.iterdir() if not files.is_partial(path)] if directory.is_dir() else []


def _text(path: Path) -> str | None:
    """None: it is not there. Over a network much else goes wrong, which says nothing of what is there.

    Its directory is opened first, which has an NFS client ask the server whether that has changed (close-to-open):
    else a name that was not there is taken to be missing for up to a minute (nfs(5), lookupcache and acdirmax).

    :raises Retryable: ``pool.unreadable``"""
    try:
        os.close(os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY))
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(file, _MAX_BYTES).decode(errors="replace").strip()
        finally:
            os.close(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Retryable(
            "pool.unreadable", f"{path.name} in the pool cannot be read",
            hint="what it is mounted from has a fault, or the network to it: look there", details=str(error),
        ) from error  # fmt: skip


def _id_in(directory: Path) -> str | None:
    """None: it was not declared.

    :raises Conflict: ``pool.is_another``: the file holds no id; :raises Retryable: ``pool.unreadable``"""
    text = _text(directory / MARKER)
    if text is not None and not is_uuid(text):
        raise _another(directory.name, text)
    return text


def _check_not_linked(directory: Path) -> None:
    """Other hosts write there: nothing of it may lead elsewhere.

    :raises Conflict: ``pool.is_another``"""
    linked = [name for name in _DIRECTORIES if (directory / name).is_symlink()]
    if linked:
        raise _another(directory.name, f"a link called {linked[0]}")


def _another(name: str, pool_id: str | None) -> Conflict:
    return Conflict(
        "pool.is_another",
        f"what is mounted for pool {name} on the host is another directory",
        hint=f"mount the pool's own there; 'vgpuctl pool show {name}' tells its id",
        details=f"it holds {'no id' if pool_id is None else ascii(pool_id)[:60]}",
    )
