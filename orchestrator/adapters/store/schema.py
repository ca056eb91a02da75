# SPDX-License-Identifier: Apache-2.0
"""The schema's version: upgraded on opening, refused when it is newer than this program."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from orchestrator.core.errors import Conflict


def alembic_config(connection: Connection) -> Config:
    """Alembic's settings for this connection; env.py takes it from the attributes."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.attributes["connection"] = connection
    return config


def bring_up_to_date(connection: Connection) -> None:
    """Upgrade to this program's schema inside the connection's transaction: all of it or nothing.

    :raises Conflict: ``store.newer_schema``
    """
    config = alembic_config(connection)
    scripts = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_revision()
    if current == scripts.get_current_head():
        return
    if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
        raise Conflict(
            "store.newer_schema",
            f"the database has schema {current}, which this version of vgpuctl does not know",
            hint="use the newer vgpuctl that wrote it, or restore a backup made before the upgrade",
        )
    command.upgrade(config, "head")
