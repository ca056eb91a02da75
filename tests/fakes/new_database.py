# SPDX-License-Identifier: Apache-2.0
"""A new SQLite database, as a copy of one that was migrated once: the migrations take as long as many a test."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from orchestrator.adapters.store.database import SqlStore


def new_store(file: Path, key: bytes) -> SqlStore:
    """What SqlStore opens there; a ``file`` that exists stays as it is."""
    if not file.exists():
        file.write_bytes(_migrated(key))
    return _opened(file, key)


@cache
def _migrated(key: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "new.sqlite"
        _opened(file, key).close()
        return file.read_bytes()


def _opened(file: Path, key: bytes) -> SqlStore:
    return SqlStore(f"sqlite:///{file}", key=key, new_site="site")
