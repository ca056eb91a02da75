# SPDX-License-Identifier: Apache-2.0
"""What the agent must not forget: whom it obeys, how far each operation got, and who owns each object.

Every change is on disk (SQLite, synchronous=FULL) before the effect it is about, so that after a crash an object
on the host is either not there or known to be ours.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import Conflict, Denied, Fatal
from orchestrator.core.host_actions import Token

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS attempts (
  number INTEGER PRIMARY KEY AUTOINCREMENT, operation TEXT NOT NULL UNIQUE, attempt INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS owners (
  object TEXT PRIMARY KEY, vm TEXT NOT NULL, boot_id TEXT, detail TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS gpus (address TEXT PRIMARY KEY);
"""

_KEPT_OPERATIONS = 100_000
"""Operations remembered; an attempt of one that is older than so many others cannot still be on its way."""


@dataclass(frozen=True)
class Ownership:
    """``vm`` owns an object; ``detail`` is what it was made as (a vGPU type, a digest)."""

    vm: str
    detail: str


class Ledger:
    """One file; safe to use from many threads."""

    def __init__(self, directory: Path, *, site: str, epoch: int, boot_id: str) -> None:
        """:raises Fatal: ``agent.ledger_unusable``"""
        self._site, self._boot_id = site, boot_id
        self._lock = threading.Lock()
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(
                directory / "ledger.sqlite", check_same_thread=False, isolation_level=None, timeout=10
            )
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(error) from error
        with self._write():
            self._check_site()
            self._raise_epoch(epoch)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def check_site(self, site: str) -> None:
        """:raises Denied: ``agent.other_site``"""
        if site != self._site:
            raise Denied(
                "agent.other_site",
                "this host obeys another control plane",
                hint="take it over with vgpuctl host add --take-over if the other one is gone",
            )

    def admit(self, token: Token) -> None:
        """Remember the token, or refuse one that is older than what was seen.

        :raises Denied: ``agent.other_site`` or ``agent.stale_token``
        """
        self.check_site(token.site)
        with self._write():
            epoch = self._epoch()
            row = self._one("SELECT attempt FROM attempts WHERE operation = ?", token.operation)
            seen = -1 if row is None else int(str(row[0]))
            if token.epoch < epoch or (token.epoch == epoch and token.attempt < seen):
                raise Denied(
                    "agent.stale_token",
                    "a newer controller or attempt took this operation over",
                    details=f"epoch {token.epoch}, attempt {token.attempt}; seen: epoch {epoch}, attempt {seen}",
                )
            if token.epoch > epoch or token.attempt > seen:
                self._raise_epoch(token.epoch)
                self._db.execute(
                    "INSERT INTO attempts (operation, attempt) VALUES (?, ?) "
                    "ON CONFLICT (operation) DO UPDATE SET attempt = excluded.attempt",
                    (token.operation, token.attempt),
                )
                self._db.execute(
                    "DELETE FROM attempts WHERE number <= (SELECT MAX(number) FROM attempts) - ?", (_KEPT_OPERATIONS,)
                )

    def owner(self, key: str) -> Ownership | None:
        """Who owns the object; None when it is not ours. What lives in kernel memory is nobody's after a reboot."""
        with self._lock, _translated():
            row = self._one("SELECT vm, boot_id, detail FROM owners WHERE object = ?", key)
        if row is None or row[1] not in (None, self._boot_id):
            return None
        return Ownership(vm=str(row[0]), detail=str(row[2]))

    def claim(self, key: str, vm: str, *, detail: str = "", until_reboot: bool = False) -> None:
        """Record the owner before the object is made.

        :raises Conflict: ``host.owned_by_other``
        """
        with self._write():
            row = self._one("SELECT vm, boot_id FROM owners WHERE object = ?", key)
            if row is not None and row[0] != vm and row[1] in (None, self._boot_id):
                raise Conflict("host.owned_by_other", f"{key} belongs to another VM", details=f"owner {row[0]}")
            self._db.execute(
                "INSERT INTO owners (object, vm, boot_id, detail) VALUES (?, ?, ?, ?) ON CONFLICT (object) "
                "DO UPDATE SET vm = excluded.vm, boot_id = excluded.boot_id, detail = excluded.detail",
                (key, vm, self._boot_id if until_reboot else None, detail),
            )

    def release(self, key: str) -> None:
        """Forget the owner after the object is gone."""
        with self._write():
            self._db.execute("DELETE FROM owners WHERE object = ?", (key,))

    def managed_gpus(self) -> frozenset[str]:
        with self._lock, _translated():
            return frozenset(str(row[0]) for row in self._db.execute("SELECT address FROM gpus"))

    def manage_gpus(self, addresses: tuple[str, ...]) -> None:
        with self._write():
            self._db.execute("DELETE FROM gpus")
            self._db.executemany("INSERT INTO gpus (address) VALUES (?)", [(a,) for a in sorted(set(addresses))])

    @contextmanager
    def _write(self) -> Iterator[None]:
        with self._lock, _translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _one(self, statement: str, *values: str) -> tuple[object, ...] | None:
        row: tuple[object, ...] | None = self._db.execute(statement, values).fetchone()
        return row

    def _meta(self, key: str) -> str | None:
        row = self._one("SELECT value FROM meta WHERE key = ?", key)
        return None if row is None else str(row[0])

    def _set_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

    def _epoch(self) -> int:
        return int(self._meta("epoch") or 0)

    def _raise_epoch(self, epoch: int) -> None:
        """Move on to a newer epoch; attempts are counted anew in it."""
        if epoch > self._epoch():
            self._set_meta("epoch", str(epoch))
            self._db.execute("DELETE FROM attempts")

    def _check_site(self) -> None:
        """A configuration for another site means a take-over: what the former site owned stays known as its VMs'."""
        if self._meta("site") != self._site:
            self._set_meta("site", self._site)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _unusable(error) from error


def _unusable(error: Exception) -> Fatal:
    return Fatal(
        "agent.ledger_unusable",
        "the agent cannot write down what it is about to do",
        hint="see whether the host's disk is full or read-only",
        details=str(error),
    )
