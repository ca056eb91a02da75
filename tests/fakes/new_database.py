# SPDX-License-Identifier: Apache-2.0
"""A new database, as a copy of one that was migrated once: the migrations take as long as many a test.
And connections to one beside its store's."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from pysqlite3 import dbapi2 as sqlite
from sqlalchemy import Engine, create_engine, make_url

from orchestrator.store.database import Store
from tests.postgres.cluster import Cluster


def new_store(file: Path, key: bytes) -> Store:
    """What Store opens there; a ``file`` that exists stays as it is."""
    if not file.exists():
        file.write_bytes(migrated(key))
    return _opened(file, key)


def engine_beside(url: str) -> Engine:
    """Of a database that a store of this process may have open. By the store's SQLite: the locks of a process on a file
    do not stand between two libraries, and go when either closes it."""
    return create_engine(url, module=sqlite) if url.startswith("sqlite") else create_engine(url)


def new_url(cluster: Cluster, key: bytes) -> str:
    """Of a database of PostgreSQL."""
    return cluster.database(like=_migrated_in(cluster, key))


@cache
def _migrated_in(cluster: Cluster, key: bytes) -> str:
    url = cluster.database()
    Store(url, key=key, new_site="site").close()
    return str(make_url(url).database)


@cache
def migrated(key: bytes) -> bytes:
    """The file of such a database; made once in a process."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "new.sqlite"
        _opened(file, key).close()
        return file.read_bytes()


def _opened(file: Path, key: bytes) -> Store:
    return Store(f"sqlite:///{file}", key=key, new_site="site")
