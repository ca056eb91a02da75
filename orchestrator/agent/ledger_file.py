# SPDX-License-Identifier: Apache-2.0
"""The ledger's SQLite file: one connection for all threads, every change on disk when its block ends."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.core.errors import Fatal

Row = tuple[object, ...]
Value = str | int | None


class LedgerFile:
    """Statements are run inside :meth:`read` or :meth:`write`, by one thread at a time."""

    def __init__(self, directory: Path, schema: Sequence[str]) -> None:
        """``schema``: statements that bring the file from version n to n + 1, from 0 on.

        :raises Fatal: ``agent.ledger_unusable``, ``agent.ledger_newer``"""
        self._lock = threading.Lock()
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(
                directory / "ledger.sqlite", check_same_thread=False, isolation_level=None, timeout=10
            )
            # EXTRA: also that the rollback journal is gone is on disk, or a power cut takes back what was committed.
            self._db.execute("PRAGMA synchronous=EXTRA")
            self._upgrade(schema)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(error) from error

    def _upgrade(self, schema: Sequence[str]) -> None:
        """All of it or nothing: an agent that is killed meanwhile finds the file as it was."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > len(schema):
            self._db.close()
            raise Fatal(
                "agent.ledger_newer",
                f"the ledger has version {version}, and this agent knows {len(schema)}",
                hint="a newer agent has written it: install that one again: 'vgpuctl host upgrade-agent HOST'",
            )
        for number in range(version, len(schema)):
            self._db.executescript(f"BEGIN IMMEDIATE; {schema[number]} PRAGMA user_version = {number + 1}; COMMIT;")

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def read(self) -> Iterator[None]:
        """:raises Fatal: ``agent.ledger_unusable``"""
        with self._lock, _translated():
            yield

    @contextmanager
    def write(self) -> Iterator[None]:
        """Everything in the block or nothing.

        :raises Fatal: ``agent.ledger_unusable``
        """
        with self._lock, _translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def run(self, statement: str, values: Sequence[Value] = ()) -> None:
        self._db.execute(statement, values)

    def run_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        self._db.executemany(statement, rows)

    def all(self, statement: str, *values: Value) -> list[Row]:
        return self._db.execute(statement, values).fetchall()

    def one(self, statement: str, *values: Value) -> Row | None:
        row: Row | None = self._db.execute(statement, values).fetchone()
        return row

    def meta(self, key: str) -> str | None:
        row = self.one("SELECT value FROM meta WHERE key = ?", key)
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        self.run("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


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
