# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, inspect

from orchestrator.store.schema import alembic_config
from orchestrator.store.tables import metadata
from tests.postgres.cluster import Cluster

KEY = b"c2ltdWxhdGVkLWhvc3RzLWhhdmUtbm8tc2VjcmV0cyE="
OLD = "0001"
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
    engine = create_engine(url)
    with engine.connect() as connection:
        found = (
            MigrationContext.configure(connection).get_current_revision(),
            set(inspect(connection).get_table_names()),
        )
    engine.dispose()
    return found


def upgraded(url: str, dies_before: int) -> bool:
    """Whether a process that upgrades lives to the end; it is killed before that change of the schema."""
    done = subprocess.run([sys.executable, "-c", DIES_BEFORE, url, KEY.decode(), str(dies_before)], timeout=300)
    assert done.returncode in {0, -signal.SIGKILL}
    return done.returncode == 0


@pytest.mark.fault("F100")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_an_upgrade_that_is_killed_leaves_the_old_schema_and_the_next_one_finishes(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster | None = request.getfixturevalue("postgres") if backend == "postgresql" else None
    url = f"sqlite:///{tmp_path / 'old.sqlite'}" if cluster is None else cluster.database()
    engine = create_engine(url)
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), OLD)
    engine.dispose()
    before = schema(url)
    assert before[0] == OLD
    for dies_before in (1, 2, 5, 12, 25):
        if upgraded(url, dies_before):
            pytest.fail(f"an upgrade has fewer than {dies_before} changes")
        assert schema(url) == before, dies_before
    assert upgraded(url, 10**6)
    assert schema(url)[1] >= set(metadata.tables)
