# SPDX-License-Identifier: Apache-2.0
"""Runs inside a lab host, under the server's own Python: an agent's ledger and a server's database that are written to
without a pause, and what is in them after the power was cut.

``write DIRECTORY COUNT [DEVICE]``: one entry after the other in both; each is told once both say that it is kept, on
standard output or as a mark in the log of that device. ``check DIRECTORY TOLD``: what is there then.
``cuts DIRECTORY COUNT SEED``: as many cuts in the log of a device mapper's log-writes target: what the device had made
durable by then and not a block more, mounted and checked.
"""

from __future__ import annotations

import itertools
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestrator.adapters.store.database import SqlStore
from orchestrator.agent.ledger import Ledger

_KEY = b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ="
_VM = "6d0e6b5e-95a0-4f5c-8f67-3a0f1f5a2f10"
_SUPER = struct.Struct("<QQQI")
_ENTRY = struct.Struct("<QQQQ")
_DISCARD, _MARK = 4, 8
"""linux/drivers/md/dm-log-writes.c: flags of an entry; sizes are in sectors of the log."""


@contextmanager
def _opened(directory: Path) -> Iterator[tuple[SqlStore, Ledger]]:
    """As server and agent open them: what they cannot use is an error here."""
    store = SqlStore(f"sqlite:///{directory / 'vgpuctl.sqlite'}", key=_KEY, new_site="site")
    ledger = Ledger(directory / "ledger", site="site", epoch=1, boot_id="boot-1")
    try:
        yield store, ledger
    finally:
        ledger.close()
        store.close()


def write(directory: Path, count: int, device: str | None) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with _opened(directory) as (store, ledger):
        _tell("ready", device)
        for number in range(1, count + 1):
            with store.begin() as tx:
                tx.audit.append(at=0.0, actor="uid:0", action="write", subject=str(number), outcome="done")
            ledger.claim(f"volume:{number}", _VM, detail=str(number))
            _tell(str(number), device)


def _tell(what: str, device: str | None) -> None:
    if device is None:
        sys.stdout.write(f"{what}\n")
        sys.stdout.flush()
    else:
        subprocess.run(["dmsetup", "message", device, "0", "mark", what], check=True)


def check(directory: Path, told: int) -> tuple[int, int]:
    """How many entries database and ledger have, which is each from the first on.

    :raises AssertionError: what was told is not kept, or a file is damaged"""
    for file in (directory / "vgpuctl.sqlite", directory / "ledger" / "ledger.sqlite"):
        with closing(sqlite3.connect(file)) as db:
            found = db.execute("PRAGMA integrity_check").fetchall()
        assert found == [("ok",)], (file, found)
    with _opened(directory) as (store, ledger):
        with store.read() as tx:
            stored = [int(record.subject) for record in tx.audit.all()]
        owned = sorted(int(name) for name in ledger.owned("volume:"))
    assert stored == list(range(1, len(stored) + 1)), stored
    assert owned == list(range(1, len(owned) + 1)), owned
    assert told <= len(owned) <= len(stored) <= len(owned) + 1, (told, len(owned), len(stored))
    return len(stored), len(owned)


@dataclass(frozen=True)
class _Entry:
    sector: int
    sectors: int
    flags: int
    mark: str
    at: int
    """Where its data begins in the log."""


def _entries(log: BinaryIO) -> tuple[int, list[_Entry]]:
    """Size of a sector, and all entries in the order in which the device made them durable."""
    _, _, count, size = _SUPER.unpack(log.read(_SUPER.size))
    found, at = list[_Entry](), size
    for _ in range(count):
        log.seek(at)
        head = log.read(size)
        sector, sectors, flags, length = _ENTRY.unpack(head[: _ENTRY.size])
        mark = head[_ENTRY.size : _ENTRY.size + length].decode() if flags & _MARK else ""
        found.append(_Entry(sector, sectors, flags, mark, at + size))
        at += size + (0 if flags & _DISCARD else sectors * size)
    return size, found


def cuts(directory: Path, count: int, seed: str) -> int:
    """How many were checked. ``directory``: ``base`` is the disk as it was before, ``log`` what happened to it."""
    disk, cut, mounted = directory / "base", directory / "cut", directory / "mounted"
    mounted.mkdir(exist_ok=True)
    with (directory / "log").open("rb") as log, disk.open("r+b") as base:
        size, entries = _entries(log)
        begun = next(number for number, one in enumerate(entries) if one.mark == "ready")
        chosen = set(random.Random(seed).sample(range(begun + 1, len(entries)), count))
        told = 0
        for number, one in enumerate(entries):
            told = int(one.mark) if one.mark.isdigit() else told
            if one.sectors and not one.flags & _DISCARD:
                log.seek(one.at)
                base.seek(one.sector * size)
                base.write(log.read(one.sectors * size))
            if number in chosen:
                base.flush()
                shutil.copyfile(disk, cut)
                _check_mounted(cut, mounted, told)
    return len(chosen)


def _check_mounted(disk: Path, mounted: Path, told: int) -> None:
    subprocess.run(["mount", "-o", "loop", disk, mounted], check=True)
    try:
        check(mounted / "state", told)
    finally:
        subprocess.run(["umount", mounted], check=True)


def main(words: list[str]) -> None:
    verb, directory, *rest = words
    if verb == "write":
        write(Path(directory), int(rest[0]), next(itertools.islice(rest, 1, None), None))
    elif verb == "check":
        sys.stdout.write("{} {}\n".format(*check(Path(directory), int(rest[0]))))
    else:
        sys.stdout.write(f"{cuts(Path(directory), int(rest[0]), rest[1])}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
