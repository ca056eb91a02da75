# SPDX-License-Identifier: Apache-2.0
"""The scene's database as it was before, on either kind of database."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from pysqlite3 import dbapi2 as sqlite3
from sqlalchemy import create_engine, delete, insert, select

from orchestrator.store.tables import metadata

_NOT_COMPARED = frozenset(
    {
        "operations",
        "steps",
        "audit",
        "events",
        "sqlite_sequence",
        "meta",
        "snapshots",
        "looks",
        "findings",
        "alembic_version",
        "maintenances",
        "gpu_cleanings",
        "guests",
        "vgpu_metadata",
        "disk_copies",
        "suspended_vms",
        "console_sessions",
        "ended_web_sessions",
    }
)
_SUMS = {"host_usage": ("vcpus", "memory_mib", "disk_bytes"), "tenant_usage": ("used",)}
Rows = list[dict[str, Any]]


def is_at_nothing(table: str, row: dict[str, Any]) -> bool:
    """A sum that stays when the last claim, the last VM or its host goes."""
    return table in _SUMS and not any(row[name] for name in _SUMS[table])


def lasting(table: str, rows: Rows, volatile: Collection[str]) -> Rows:
    """Of the rows what has to be as before: no sum of nothing, no column of ``volatile``, no moment of a snapshot."""
    kept = [row for row in rows if not is_at_nothing(table, row)]
    return [{key: _timeless(key, value) for key, value in row.items() if key not in volatile} for row in kept]


def _timeless(column: str, value: object) -> object:
    """Of a GPU's health not in which words it is told of; of a claim not how its device was cleaned last."""
    if column == "cleaned":
        return None
    if column == "health" and value is not None:
        health: Any = json.loads(value) if isinstance(value, str) else value
        return health and (health["state"], health.get("mends"))
    return re.sub("created_at[^,]*", "", str(value)) if column == "snapshots" else value


class ResettableDatabase(Protocol):
    """``url`` is what the control plane opens; ``keep`` remembers all rows, ``restore`` brings them back."""

    url: str

    def keep(self) -> None: ...
    def restore(self) -> None: ...
    def compared(self) -> dict[str, Rows]:
        """What must be as before: not the journals, not what was merely observed."""

    def close(self) -> None: ...


class ResettableSqlite:
    def __init__(self, directory: Path) -> None:
        self._file = directory / "vgpuctl.sqlite"
        self._kept = sqlite3.connect(":memory:")
        self.url = f"sqlite:///{self._file}"

    def keep(self) -> None:
        with closing(sqlite3.connect(self._file)) as database:
            database.backup(self._kept)

    def restore(self) -> None:
        with closing(sqlite3.connect(self._file)) as database:
            self._kept.backup(database)

    def compared(self) -> dict[str, Rows]:
        with closing(sqlite3.connect(self._file)) as database:
            database.row_factory = sqlite3.Row
            names = [row["name"] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {
                name: [dict(row) for row in database.execute(f"SELECT * FROM {name} ORDER BY 1, 2")]
                for name in set(names) - _NOT_COMPARED
            }

    def close(self) -> None:
        self._kept.close()


class ResettablePostgres:
    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = create_engine(url)
        self._kept: dict[str, Rows] = {}

    def keep(self) -> None:
        self._kept = self._tables()

    def restore(self) -> None:
        with self._engine.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(delete(table))
            for table in metadata.sorted_tables:
                if rows := self._kept[table.name]:
                    connection.execute(insert(table), rows)

    def compared(self) -> dict[str, Rows]:
        return {name: rows for name, rows in self._tables().items() if name not in _NOT_COMPARED}

    def _tables(self) -> dict[str, Rows]:
        with self._engine.connect() as connection:
            return {
                table.name: [
                    dict(zip(table.columns.keys(), row, strict=True))  # a column may be called otherwise in the code
                    for row in connection.execute(select(table).order_by(*table.primary_key.columns))
                ]
                for table in metadata.sorted_tables
            }

    def close(self) -> None:
        self._engine.dispose()
