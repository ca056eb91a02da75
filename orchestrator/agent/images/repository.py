# SPDX-License-Identifier: Apache-2.0
"""A repository of restic, of one VM: what is done in it wherever it lies, and one below a target that is mounted."""

from __future__ import annotations

import json
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from orchestrator.agent.images import files
from orchestrator.agent.process import ChildHangs, ChildTalksTooMuch, Finished, pour, run
from orchestrator.core.errors import Fatal, NotFound, Retryable, Unknown, VgpuctlError

DISK: Final = "disk"
"""What a disk is called in its repository; a data volume is by its name and id. Each is a snapshot of restic's own, and
those of one backup have its tag."""
_LIMITS: Final = ("prlimit", "--as=4294967296", "--core=0", "--", "nice", "-n", "10")
_ENVIRONMENT: Final = {"GOMAXPROCS": "2", "RESTIC_PROGRESS_FPS": "0.01"}
_STAT_S: Final = 60.0
"""Whether a repository is there is known by then, or the target does not answer."""
_MAX_NAMES: Final = 2**20
"""Bytes of them, of a target."""
_MAX_PRINTED: Final = 64 * 2**20
"""Bytes of a list: 100,000 snapshots have less."""
_SIGNS: Final[tuple[tuple[str, type[VgpuctlError], str, str, str], ...]] = (
    ("already locked", Retryable, "backup.busy", "another run of restic has the repository",
     "wait for it; the lock of one that died on another host ends after half an hour"),
    ("wrong password or no key", Fatal, "backup.password", "the repository has another password",
     "is what is mounted there the target that it was made in?"),
    ("no space left", Fatal, "backup.target_full", "the target of backups is full",
     "make its file system larger, or 'vgpuctl backup delete ID' what is not needed"),
    ("quota", Fatal, "backup.target_full", "the target of backups has no room left by its quota",
     "raise its quota, or 'vgpuctl backup delete ID' what is not needed"),
    ("minimum free drive", Fatal, "backup.target_full", "the target of backups is full",
     "give its storage more room, or 'vgpuctl backup delete ID' what is not needed"),
    ("access denied", Fatal, "backup.s3_denied", "the target's key may not do that in its bucket",
     "'vgpuctl backup target set NAME --credentials-file FILE' takes one that may list, read, write and delete"),
    ("no snapshot", NotFound, "backup.missing", "the backup is not in its repository",
     "is what is mounted there the target that it was made in?"),
)  # fmt: skip
"""What restic says → what it is."""
_NO_LOCK: Final = ("no space left", "read-only file system")
"""What it says, before it reads anything, of a target that no lock can be written to."""


@dataclass(frozen=True)
class Repository(ABC):
    """Of one VM. ``ended``: set when nobody wants what is done there any more."""

    password: str
    ended: threading.Event
    limit_s: int

    @abstractmethod
    def exists(self) -> bool:
        """:raises VgpuctlError: it cannot be told"""

    @abstractmethod
    def has_backups(self) -> bool:
        """Of one that exists."""

    @abstractmethod
    def create(self) -> None:
        """Whole, or not at all. What is there without backups goes."""

    @property
    @abstractmethod
    def _at(self) -> str:
        """As restic calls it."""

    def tagged(self, tag: str, file: str | None = None) -> list[str]:
        """Ids of the snapshots that have it, of that file where one is named; none where there is no repository. No
        lock is written, for which a full target has no room."""
        if not self.exists():
            return []
        lines = self._run("snapshots", "--no-lock", "--json", "--tag", tag).splitlines()
        snapshots = json.loads(next((line for line in lines if line.startswith("[")), "[]"))
        return [str(snapshot["id"]) for snapshot in snapshots if file is None or f"/{file}" in snapshot["paths"]]

    def make(self) -> None:
        """Unless it is there. One without backups that has another password is of an earlier target that was called
        so, and is replaced."""
        if not self.exists() or (not self.has_backups() and self._has_another_password()):
            self.create()

    def _has_another_password(self) -> bool:
        try:
            self._run("cat", "config", "--no-lock")
        except Fatal as error:
            if error.code == "backup.password":
                return True
            raise
        return False

    def listed(self, tenant: str) -> list[tuple[str, str, int, str, list[tuple[str, int]]]]:
        """Of the tenant as it was called when they were made: tag, time, bytes of the disk, name of the VM, and of each
        data volume what it is called there and its bytes."""
        moments: dict[str, tuple[str, str]] = {}
        sizes: dict[str, dict[str, int]] = {}
        for snapshot in json.loads(self._printed("snapshots", "--no-lock", "--json")):
            tags = [str(tag) for tag in snapshot.get("tags") or ()]
            of = next(iter(tags[1:]), "")
            if of.startswith(f"{tenant}/"):
                moments.setdefault(tags[0], (str(snapshot["time"]), of.partition("/")[2]))
                nodes = self._printed("ls", "--no-lock", "--json", str(snapshot["id"])).splitlines()
                files = [node for node in map(json.loads, nodes) if node.get("type") == "file"]
                sizes.setdefault(tags[0], {}).update({str(node["name"]): int(node.get("size", 0)) for node in files})
        return [
            (tag, when, sizes[tag].pop(DISK, 0), vm_name, sorted(sizes[tag].items()))
            for tag, (when, vm_name) in moments.items()
        ]

    def _printed(self, *words: str) -> str:
        """All of it. A repository of years has long lists; whoever had its password may have made longer ones.

        :raises Fatal: ``backup.failed``"""
        printed = bytearray()

        def take(piece: bytes) -> None:
            if len(printed) + len(piece) > _MAX_PRINTED:
                raise _error_of(f"restic {words[0]} prints more than {_MAX_PRINTED} bytes")
            printed.extend(piece)

        self._pour(take, *words)
        return printed.decode(errors="replace")

    def add(self, file: Path, name: str, tags: Iterable[str], max_bytes_per_s: int) -> str:
        """By how many bytes it grew. ``name``: what it is called there; ``max_bytes_per_s``: written there; 0: as much
        as goes."""
        limit = ("--limit-upload", str(max_bytes_per_s // 1024)) if max_bytes_per_s else ()
        with file.open("rb") as disk:
            file_words = ("--stdin", "--stdin-filename", name)
            words = ["backup", *limit, "--json", "--host", "vgpuctl", *(f"--tag={tag}" for tag in tags), *file_words]
            output = self._unlocked(lambda: self._run(*words, stdin=disk))  # nothing is read before it has the lock
        summary = next(line for line in reversed(output.splitlines()) if '"summary"' in line)
        return str(json.loads(summary)["data_added"])

    def read(self, tag: str, file: str, take: Callable[[bytes], object]) -> None:
        """What is in that file of it, in order. restic compares each piece with its digest. Its lock keeps a removal of
        others away, which writes what they share into other files; where no lock can be written, none can be removed.

        :raises NotFound: ``backup.missing``"""
        snapshots = self.tagged(tag, file)
        if not snapshots:
            raise _error_of("no snapshot")
        words = (snapshots[-1], f"/{file}")
        try:
            self._unlocked(lambda: self._pour(take, "dump", *words))
        except Fatal as error:
            if not any(sign in (error.details or "").lower() for sign in _NO_LOCK):
                raise
            self._pour(take, "dump", "--no-lock", *words)

    def _pour(self, take: Callable[[bytes], object], *words: str) -> str:
        argv = self._argv(*words)
        try:
            return _judge(pour(argv, take, limit_s=self.limit_s, ended=self.ended, environment=self._environment()))
        except ChildHangs as error:
            raise _hung(error) from error

    def remove(self, tag: str) -> bool:
        """With what no other one needs: also what one that did not end has put there, which no snapshot names. Gone
        already is fine; False: there is no repository."""
        if not self.exists():
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

    def _environment(self) -> dict[str, str]:
        return {**_ENVIRONMENT, "RESTIC_PASSWORD": self.password}

    def _options(self) -> list[str]:
        return []

    def _argv(self, *words: str, at: str | None = None) -> list[str]:
        return [*_LIMITS, "restic", "--no-cache", *self._options(), "--repo", at or self._at, *words]

    def _done(self, *words: str, at: str | None = None) -> str:
        return self._unlocked(lambda: self._run(*words, at=at))

    def _unlocked(self, once: Callable[[], str]) -> str:
        """Once more without the locks of those that died here."""
        try:
            return once()
        except Retryable:
            self._run("unlock")
            return once()

    def _run(self, *words: str, at: str | None = None, stdin: IO[bytes] | None = None) -> str:
        try:
            finished = run(
                self._argv(*words, at=at), limit_s=self.limit_s, ended=self.ended, stdin=stdin,
                environment=self._environment(),
            )  # fmt: skip
        except ChildHangs as error:
            raise _hung(error) from error
        return _judge(finished)


@dataclass(frozen=True)
class MountedRepository(Repository):
    directory: Path

    @property
    def _at(self) -> str:
        return str(self.directory)

    def exists(self) -> bool:
        """A child looks: a target that does not answer would keep the thread, and with it the VM, for as long.

        :raises Unknown: ``backup.hung``; :raises Fatal: ``backup.failed``: it cannot be told"""
        try:
            stated = run(["stat", "--", str(self.directory / "config")], limit_s=_STAT_S, ended=self.ended)
        except ChildHangs as error:
            raise _hung(error) from error
        if stated.code and "No such file" not in stated.output:
            raise _error_of(stated.output)
        return not stated.code

    def has_backups(self) -> bool:
        return any((self.directory / "snapshots").iterdir())

    def create(self) -> None:
        part = self.directory.with_name(f"{self.directory.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        if self.directory.exists():
            self.directory.rename(part)
            shutil.rmtree(part, ignore_errors=True)
        self._done("init", at=str(part))
        part.rename(self.directory)
        files.sync(self.directory.parent)


def listed(directory: Path) -> list[str]:
    """Names in it; a child looks, as a target may not answer.

    :raises Unknown: ``backup.hung``; :raises Fatal: ``backup.failed``"""
    try:
        return _judge(run(["ls", "-1", "--", str(directory)], limit_s=_STAT_S, most_bytes=_MAX_NAMES)).splitlines()
    except ChildTalksTooMuch as error:
        raise _error_of(str(error)) from error
    except ChildHangs as error:
        raise _hung(error) from error


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
