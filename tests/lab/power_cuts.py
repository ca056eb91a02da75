# SPDX-License-Identifier: Apache-2.0
"""Runs inside a lab host, under the server's own Python: an agent's ledger and a server's database that are written to
without a pause, and what is in them after the power was cut.

``write DIRECTORY``: one entry after the other in both; each is told on standard output once both say that it is kept.
``check DIRECTORY TOLD``: what is there then.
"""

from __future__ import annotations

import itertools
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from orchestrator.adapters.store.database import SqlStore
from orchestrator.agent.ledger import Ledger

_KEY = b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ="
_VM = "6d0e6b5e-95a0-4f5c-8f67-3a0f1f5a2f10"


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


def write(directory: Path) -> None:
    """Until the power is cut."""
    directory.mkdir(parents=True, exist_ok=True)
    with _opened(directory) as (store, ledger):
        for number in itertools.count(1):
            with store.begin() as tx:
                tx.audit.append(at=0.0, actor="uid:0", action="write", subject=str(number), outcome="done")
            ledger.claim(f"volume:{number}", _VM, detail=str(number))
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


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


def main(words: list[str]) -> None:
    verb, directory, *rest = words
    if verb == "write":
        write(Path(directory))
    else:
        sys.stdout.write("{} {}\n".format(*check(Path(directory), int(rest[0]))))


if __name__ == "__main__":
    main(sys.argv[1:])
