# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from orchestrator.store.database import Store
from orchestrator.store.tables import metadata
from tests.fakes.new_database import engine_beside
from tests.fakes.versions import LATER_SCHEMA, ROOT, tree_with_a_later_schema
from tests.postgres.cluster import Cluster

KEY = b"c2ltdWxhdGVkLWhvc3RzLWhhdmUtbm8tc2VjcmV0cyE="
DIES_BEFORE = """
import os, signal, sys
from sqlalchemy import Engine, event
from orchestrator.store.database import Store
left = int(sys.argv[3])

@event.listens_for(Engine, "before_cursor_execute")
def count(_connection, _cursor, statement, *_rest):
    global left
    if statement.split()[0] in {"CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "DELETE"}:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

Store(sys.argv[1], key=sys.argv[2].encode(), new_site="site").close()
"""


def schema(url: str) -> tuple[str | None, set[str]]:
    engine = engine_beside(url)
    with engine.connect() as connection:
        found = (
            MigrationContext.configure(connection).get_current_revision(),
            set(inspect(connection).get_table_names()),
        )
    engine.dispose()
    return found


def upgraded(url: str, tree: Path, dies_before: int) -> bool:
    """Whether a process of that tree that upgrades lives to the end; it is killed before that change of the schema."""
    command = [sys.executable, "-c", DIES_BEFORE, url, KEY.decode(), str(dies_before)]
    done = subprocess.run(command, cwd=tree, timeout=300)
    assert done.returncode in {0, -signal.SIGKILL}
    return done.returncode == 0


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, backend: str) -> str:
    if backend == "postgresql":
        cluster: Cluster = request.getfixturevalue("postgres")
        return cluster.database()
    return f"sqlite:///{tmp_path / 'vgpuctl.sqlite'}"


@pytest.mark.fault("F100")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_an_upgrade_that_is_killed_leaves_the_old_schema_and_the_next_one_finishes(url: str, tmp_path: Path) -> None:
    Store(url, key=KEY, new_site="site").close()
    newer = tree_with_a_later_schema(tmp_path / "newer")
    before = schema(url)
    for dies_before in range(1, 6):
        assert not upgraded(url, newer, dies_before), f"an upgrade has fewer than {dies_before} changes"
        assert schema(url) == before, dies_before
    assert upgraded(url, newer, 10**6)
    assert schema(url) == (LATER_SCHEMA, before[1] | {"racks"})


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_first_start_that_is_killed_leaves_an_empty_database_and_the_next_one_finishes(url: str) -> None:
    for dies_before in (1, 12, 25):
        assert not upgraded(url, ROOT, dies_before), f"a first start has fewer than {dies_before} changes"
        assert schema(url) == (None, set()), dies_before
    assert upgraded(url, ROOT, 10**6)
    assert schema(url)[1] >= set(metadata.tables)
