# SPDX-License-Identifier: Apache-2.0
"""A copy of an SQLite database that others are writing to."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pysqlite3 import dbapi2 as sqlite
from sqlalchemy import URL

from orchestrator.core.errors import Fatal, Retryable


def url_of(file: Path) -> str:
    """Of an SQLite database, for :class:`~orchestrator.store.database.Store`."""
    return URL.create("sqlite", database=str(file)).render_as_string(hide_password=False)


def copy_database(source: Path, target: Path) -> None:
    """One consistent state of ``source``; writers are not held up.

    :raises Retryable: ``store.unavailable``; :raises Fatal: ``store.damaged``
    """
    try:
        with closing(sqlite.connect(f"file:{source}?mode=ro", uri=True)) as old, closing(sqlite.connect(target)) as new:
            old.backup(new)
            damage = [row[0] for row in new.execute("PRAGMA integrity_check") if row[0] != "ok"]
    except sqlite.Error as error:
        raise Retryable(
            "store.unavailable",
            f"{source} cannot be copied",
            details=str(error),
            hint="look whether its disk is full or fails",
        ) from error
    if damage:
        raise Fatal(
            "store.damaged",
            f"{source} is damaged",
            details="; ".join(damage),
            hint="restore the newest backup: docs/howto/back-up.md",
        )
