# SPDX-License-Identifier: Apache-2.0
"""The schema's version: upgraded on opening, refused when it is newer than this program."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from orchestrator.core.errors import Conflict

_MIGRATIONS = str(Path(__file__).with_name("migrations"))


def alembic_config(connection: Connection) -> Config:
    """Alembic's settings for this connection; env.py takes it from the attributes."""
    config = Config()
    config.set_main_option("script_location", _MIGRATIONS)
    config.attributes["connection"] = connection
    return config


def bring_up_to_date(connection: Connection) -> None:
    """Upgrade to this program's schema inside the connection's transaction: all of it or nothing.

    :raises Conflict: ``store.newer_schema``
    """
    current = MigrationContext.configure(connection).get_current_revision()
    known = _revisions()
    if current == known[0]:
        return
    if current is not None and current not in known:
        raise Conflict(
            "store.newer_schema",
            f"the database has schema {current}, which this version of vgpuctl does not know",
            hint="use the newer vgpuctl that wrote it, or restore a backup made before the upgrade",
        )
    if connection.dialect.name == "postgresql":  # to move large tables takes as long as it takes
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    command.upgrade(alembic_config(connection), "head")


@cache
def _revisions() -> tuple[str, ...]:
    """Newest first; to find them is to run every migration's file."""
    return tuple(script.revision for script in ScriptDirectory(_MIGRATIONS).walk_revisions())
