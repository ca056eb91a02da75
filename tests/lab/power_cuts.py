# SPDX-License-Identifier: Apache-2.0
"""Runs inside a small machine, under the server's own Python: an agent's ledger and a server's database that are
written to without a pause, and what is in them after the power was cut.

``DIRECTORY [DEVICE COUNT]``: says what is there, then puts one entry after the other into both; each is told once both
say that it is kept: in a line, or as a mark in the log of that device (dm-log-writes), and then only so many.
"""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from orchestrator.agent.ledger import Ledger
from orchestrator.store.database import Store

_KEY = b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ="
_VM = "6d0e6b5e-95a0-4f5c-8f67-3a0f1f5a2f10"


@contextmanager
def opened(directory: Path) -> Iterator[tuple[Store, Ledger]]:
    """As server and agent open them: what they cannot use is an error here."""
    directory.mkdir(parents=True, exist_ok=True)
    store = Store(f"sqlite:///{directory / 'vgpuctl.sqlite'}", key=_KEY, new_site="site")
    ledger = Ledger(directory / "ledger", site="site", epoch=1, boot_id="boot-1")
    try:
        yield store, ledger
    finally:
        ledger.close()
        store.close()


def found(directory: Path) -> tuple[int, int]:
    """How many entries database and ledger have, each from the first on.

    :raises AssertionError: one is missing before others, or a file is damaged"""
    for file in (directory / "vgpuctl.sqlite", directory / "ledger" / "ledger.sqlite"):
        with closing(sqlite3.connect(file)) as db:
            whole = db.execute("PRAGMA integrity_check").fetchall()
        assert whole == [("ok",)], (file, whole)
    with opened(directory) as (store, ledger):
        with store.read() as tx:
            stored = [int(record.subject) for record in tx.audit.all()]
        owned = sorted(int(name) for name in ledger.owned("volume:"))
    assert stored == list(range(1, len(stored) + 1)), stored
    assert owned == list(range(1, len(owned) + 1)), owned
    return len(stored), len(owned)


def write(directory: Path, tell: Callable[[str], None], count: int | None) -> None:
    """Goes on where the last power cut has left both."""
    stored, owned = found(directory)
    tell(f"found.{stored}.{owned}")
    with opened(directory) as (store, ledger):
        for number in itertools.islice(itertools.count(owned + 1), count):
            if number > stored:
                with store.begin() as tx:
                    tx.audit.append(at=0.0, actor="uid:0", action="write", subject=str(number), outcome="done")
            ledger.claim(f"volume:{number}", _VM, detail=str(number))
            tell(f"kept.{number}")


def _say(what: str) -> None:
    sys.stdout.write(f"\n{what}<\n")
    sys.stdout.flush()


def _mark(device: str) -> Callable[[str], None]:
    def tell(what: str) -> None:
        subprocess.run(["dmsetup", "message", device, "0", "mark", what], check=True)

    return tell


if __name__ == "__main__":
    directory, *rest = sys.argv[1:]
    if rest:
        write(Path(directory), _mark(rest[0]), int(rest[1]))
    else:
        write(Path(directory), _say, None)
