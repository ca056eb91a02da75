# SPDX-License-Identifier: Apache-2.0
"""Backups of disks by restic: one repository for each VM below a target that is mounted here. What is in it is the
disk as its guest sees it: no header that a guest's QEMU could have written is read when it comes back."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from orchestrator.agent.images import files
from orchestrator.agent.images.disk_images import from_raw, image_format_of, read_header, to_raw
from orchestrator.agent.images.pool_mounts import is_mounted
from orchestrator.agent.images.store import Storage
from orchestrator.agent.process import PROGRAMS, ChildHangs, Finished, pour, run
from orchestrator.core.actions.backups import (
    FetchBackup,
    RemoveBackup,
    StoreBackup,
    UsesRepository,
    VerifyBackup,
)
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.errors import Conflict, Fatal, NotFound, Retryable, Unknown, VgpuctlError
from orchestrator.core.vms.backup import DIRECTORY

_FILE: Final = "disk"
"""What a disk is called in its repository."""
_LIMITS: Final = ("prlimit", "--as=4294967296", "--core=0", "--", "nice", "-n", "10")
_ENVIRONMENT: Final = {"GOMAXPROCS": "2", "RESTIC_PROGRESS_FPS": "0.01"}
_STAT_S: Final = 60.0
"""Whether a repository is there is known by then, or the target does not answer."""
_MEASURED_EVERY: Final = 64 * 2**20
"""Bytes of a backup that comes: who fills a host's disk has the VMs on it stopped."""
_HOLE: Final = 64 * 1024
_SIGNS: Final[tuple[tuple[str, type[VgpuctlError], str, str, str], ...]] = (
    ("already locked", Retryable, "backup.busy", "another run of restic has the repository",
     "wait for it; the lock of one that died on another host ends after half an hour"),
    ("wrong password or no key", Fatal, "backup.password", "the repository has another password",
     "is what is mounted there the target that it was made in?"),
    ("no space left", Fatal, "backup.target_full", "the target of backups is full",
     "make its file system larger, or 'vgpuctl backup delete ID' what is not needed"),
    ("no snapshot", NotFound, "backup.missing", "the backup is not in its repository",
     "is what is mounted there the target that it was made in?"),
)  # fmt: skip
"""What restic says → what it is."""


@dataclass(frozen=True)
class Repository:
    """Of one VM. ``ended``: set when nobody wants what is done there any more."""

    directory: Path
    password: str
    ended: threading.Event
    limit_s: int

    def tagged(self, tag: str) -> list[str]:
        """Ids of the snapshots that have it; none where there is no repository. No lock is written, for which a full
        target has no room."""
        if not self._exists():
            return []
        lines = self._run("snapshots", "--no-lock", "--json", "--tag", tag).splitlines()
        snapshots = json.loads(next((line for line in lines if line.startswith("[")), "[]"))
        return [str(snapshot["id"]) for snapshot in snapshots]

    def make(self) -> None:
        """Whole, unless it is there. One without backups that has another password is of an earlier target that was
        called so, and is replaced."""
        exists = self._exists()
        if exists and not self._is_left():
            return
        part = self.directory.with_name(f"{self.directory.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        if exists:
            self.directory.rename(part)
            shutil.rmtree(part, ignore_errors=True)
        self._done("init", at=part)
        part.rename(self.directory)
        files.sync(self.directory.parent)

    def _is_left(self) -> bool:
        if any((self.directory / "snapshots").iterdir()):
            return False
        try:
            self._run("cat", "config", "--no-lock")
        except Fatal as error:
            if error.code == "backup.password":
                return True
            raise
        return False

    def add(self, file: Path, tag: str, max_bytes_per_s: int) -> str:
        """By how many bytes it grew. ``max_bytes_per_s``: written there; 0: as much as goes."""
        limit = ("--limit-upload", str(max_bytes_per_s // 1024)) if max_bytes_per_s else ()
        with file.open("rb") as disk:
            file_words = ("--stdin", "--stdin-filename", _FILE)
            words = ("backup", *limit, "--json", "--host", "vgpuctl", "--tag", tag, *file_words)
            output = self._unlocked(lambda: self._run(*words, stdin=disk))  # nothing is read before it has the lock
        summary = next(line for line in reversed(output.splitlines()) if '"summary"' in line)
        return str(json.loads(summary)["data_added"])

    def read(self, tag: str, take: Callable[[bytes], object]) -> None:
        """What is in it, in order. restic compares each piece with its digest.

        :raises NotFound: ``backup.missing``"""
        snapshots = self.tagged(tag)
        if not snapshots:
            raise _error_of("no snapshot")
        argv = self._argv("dump", "--no-lock", snapshots[-1], f"/{_FILE}")
        try:
            finished = pour(argv, take, limit_s=self.limit_s, ended=self.ended, environment=self._environment)
        except ChildHangs as error:
            raise _hung(error) from error
        _judge(finished)

    def remove(self, tag: str) -> bool:
        """With what no other one needs: also what one that did not end has put there, which no snapshot names. Gone
        already is fine; False: there is no repository."""
        if not self._exists():
            return False
        if snapshots := self.tagged(tag):
            self._done("forget", "--prune", *snapshots)
        else:
            self._prune()
        return True

    def _prune(self) -> None:
        """Left to the next one where another run has the repository, or a full target has no room for a lock."""
        try:
            self._done("prune")
        except Retryable:
            pass
        except Fatal as error:
            if error.code != "backup.target_full":
                raise

    def _exists(self) -> bool:
        """A child looks: a target that does not answer would keep the thread, and with it the VM, for as long.

        :raises Unknown: ``backup.hung``; :raises Fatal: ``backup.failed``: it cannot be told"""
        try:
            stated = run(["stat", "--", str(self.directory / "config")], limit_s=_STAT_S, ended=self.ended)
        except ChildHangs as error:
            raise _hung(error) from error
        if stated.code and "No such file" not in stated.output:
            raise _error_of(stated.output)
        return not stated.code

    @property
    def _environment(self) -> dict[str, str]:
        return {**_ENVIRONMENT, "RESTIC_PASSWORD": self.password}

    def _argv(self, *words: str, at: Path | None = None) -> list[str]:
        return [*_LIMITS, "restic", "--no-cache", "--repo", str(at or self.directory), *words]

    def _done(self, *words: str, at: Path | None = None) -> str:
        return self._unlocked(lambda: self._run(*words, at=at))

    def _unlocked(self, once: Callable[[], str]) -> str:
        """Once more without the locks of those that died here."""
        try:
            return once()
        except Retryable:
            self._run("unlock")
            return once()

    def _run(self, *words: str, at: Path | None = None, stdin: IO[bytes] | None = None) -> str:
        try:
            finished = run(
                self._argv(*words, at=at), limit_s=self.limit_s, ended=self.ended, stdin=stdin,
                environment=self._environment,
            )  # fmt: skip
        except ChildHangs as error:
            raise _hung(error) from error
        return _judge(finished)


def _judge(finished: Finished) -> str:
    if finished.code:
        raise _error_of(finished.output)
    return finished.output


def _hung(error: ChildHangs) -> Unknown:
    hint = "look at the host, and at what is mounted there"
    return Unknown("backup.hung", "restic did not end in time", hint=hint, details=str(error))


def _error_of(output: str) -> VgpuctlError:
    for sign, family, code, message, hint in _SIGNS:
        if sign in output.lower():
            return family(code, message, hint=hint, details=output[-2000:])
    return Fatal(
        "backup.failed", "restic could not do it", hint="the details hold what it said", details=output[-2000:]
    )


@dataclass(frozen=True)
class BackupsOfDisks:
    """``ended``: set when nobody wants it any more; it is given up then, whatever is raised."""

    storage: Storage

    def store(self, action: StoreBackup, ended: threading.Event) -> ActionResult:
        """:raises NotFound: ``snapshot.missing``, ``backup.no_target``, ``backup.no_restic``
        :raises Conflict: ``volume.differs``
        :raises Fatal: ``host.disk_full``, ``volume.failed`` and those of :data:`_SIGNS`"""
        repository = self._repository(action, ended)
        repository.make()
        if repository.tagged(action.backup):
            return ActionResult(changed=False)
        source = self.storage.paths.volumes / files.check_file_name(action.volume)
        image = self.storage.image_beneath(action.of_vm, action.disk)
        if image is None or not self.storage.is_ours(source, "volume", action.of_vm):
            hint = "run the command again: it takes another one"
            raise NotFound("snapshot.missing", "the snapshot is not on the host", hint=hint, details=source.name)
        if read_header(source, "qcow2").virtual_bytes != action.size_bytes:
            raise Conflict("volume.differs", "the snapshot is of another size", hint="look at the host")
        base, limit = self.storage.paths.images / image, action.limit_s
        files.check_free(source.parent, files.taken(source) + files.taken(base))
        with files.scratch(source) as raw:
            to_raw(source, raw, base=base, base_format=image_format_of(base), limit_s=limit, ended=ended)
            return ActionResult(changed=True, message=repository.add(raw, action.backup, action.max_bytes_per_s))

    def fetch(self, action: FetchBackup, ended: threading.Event) -> ActionResult:
        """:raises NotFound: ``backup.missing``, ``backup.no_target``, ``backup.no_restic``
        :raises Conflict: ``host.foreign_file``, ``backup.larger``
        :raises Fatal: ``backup.damaged``, ``host.disk_full``, ``volume.failed``; nothing is left"""
        target = self.storage.paths.volumes / files.check_file_name(action.volume)
        if self.storage.is_ours(target, "volume", action.vm):
            return ActionResult(changed=False)
        repository = self._repository(action, ended)
        with (
            self.storage.owned("volume", target, action.vm, "stopped"),
            files.written_whole(target, mode=0o600) as part,
            files.scratch(target) as raw,
        ):
            with raw.open("xb") as file:
                fetched = Sparse(file.fileno(), action.disk_bytes)
                repository.read(action.backup, fetched.take)
                _check_whole(fetched, action)
                file.truncate(action.disk_bytes)
            files.check_free(raw.parent, files.taken(raw))
            from_raw(raw, part, limit_s=action.limit_s, ended=ended)
        return ActionResult(changed=True)

    def verify(self, action: VerifyBackup, ended: threading.Event) -> ActionResult:
        """One that goes on for another action has been ended before.

        :raises Fatal: ``backup.damaged``, and those of :data:`_SIGNS`"""
        if action.given_up:
            return ActionResult(changed=False)
        counted = Sparse(None, action.size_bytes)
        self._repository(action, ended).read(action.backup, counted.take)
        _check_whole(counted, action)
        return ActionResult(changed=False)

    def remove(self, action: RemoveBackup, ended: threading.Event) -> ActionResult:
        """Gone already is fine; unchanged where there is no repository."""
        return ActionResult(changed=self._repository(action, ended).remove(action.backup))

    @property
    def handlers(self) -> dict[type[HostAction], Callable[..., ActionResult]]:
        return {
            StoreBackup: self.store,
            FetchBackup: self.fetch,
            VerifyBackup: self.verify,
            RemoveBackup: self.remove,
        }

    def _repository(self, action: UsesRepository, ended: threading.Event) -> Repository:
        """:raises NotFound: ``backup.no_restic``, ``backup.no_target``: where nothing is mounted it would be the
        host's own disk"""
        target = self.storage.paths.backups / files.check_file_name(action.target)
        if not is_mounted(self.storage.paths, target):
            hint = f"mount it at {DIRECTORY}/{action.target} of the agent's directory, /var/lib/vgpuctl-agent"
            raise NotFound("backup.no_target", f"backup target {action.target} is not mounted on the host", hint=hint)
        if shutil.which("restic", path=PROGRAMS) is None:
            hint = "install the package restic there: 'playbooks/prepare-host.yml' does"
            raise NotFound("backup.no_restic", "restic is not installed on the host", hint=hint)
        return Repository(target / files.check_file_name(action.of_vm), action.password, ended, action.limit_s)


class Sparse:
    """Writes what comes to a file, zeros as holes; None: nowhere. It takes ``most`` bytes and no more."""

    def __init__(self, descriptor: int | None, most: int) -> None:
        self._descriptor, self._most = descriptor, most
        self.size_bytes = 0

    def take(self, piece: bytes) -> None:
        """:raises Conflict: ``backup.larger``"""
        if self.size_bytes + len(piece) > self._most:
            raise Conflict("backup.larger", "the backup is larger than the VM's disk", hint="restore it to a larger VM")
        for begin in range(0, len(piece), _HOLE):
            part = piece[begin : begin + _HOLE]
            if self._descriptor is not None and part.count(0) != len(part):
                _write(self._descriptor, part, self.size_bytes + begin)
        self.size_bytes += len(piece)
        if self._descriptor is not None and self.size_bytes % _MEASURED_EVERY < len(piece):
            system = os.fstatvfs(self._descriptor)
            files.check_enough(system.f_bavail * system.f_frsize, os.fstat(self._descriptor).st_blocks * 512)


def _write(descriptor: int, part: bytes, offset: int) -> None:
    while part:
        written = os.pwrite(descriptor, part, offset)
        part, offset = part[written:], offset + written


def _check_whole(read: Sparse, action: UsesRepository) -> None:
    """:raises Fatal: ``backup.damaged``"""
    if read.size_bytes != action.size_bytes:
        hint = "make another one: 'vgpuctl backup run NAME'"
        text = f"the backup holds {read.size_bytes} bytes, not {action.size_bytes}"
        raise Fatal("backup.damaged", text, hint=hint)
