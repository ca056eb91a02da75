# SPDX-License-Identifier: Apache-2.0
"""The schema's version: upgraded on opening, refused when this program does not know it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, column, inspect, select, table

from orchestrator.core.errors import Conflict

if TYPE_CHECKING:
    from alembic.config import Config

_MIGRATIONS: Final = Path(__file__).with_name("migrations")
_VERSION: Final = select(table("alembic_version", column("version_num")).c.version_num)


def alembic_config(connection: Connection) -> Config:
    """Alembic's settings for this connection; env.py takes it from the attributes."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def check_unchanged(connection: Connection, revision: str) -> None:
    """Another program may have brought the schema on while this one ran with ``revision``; an older one than that is
    that of a database that was restored, which is found out otherwise.

    :raises Conflict: ``store.schema_changed``
    """
    current = connection.execute(_VERSION).scalar_one_or_none()
    if current is not None and current > revision:
        raise Conflict(
            "store.schema_changed",
            f"another server has brought the database from schema {revision} to {current}",
            hint="install its version of vgpuctl here too, then start this server again",
        )


def bring_up_to_date(connection: Connection) -> None:
    """Upgrade to this program's schema inside the connection's transaction: all of it or nothing.

    The library is slow to import, and most servers start on a database that needs nothing of it.

    :raises Conflict: ``store.newer_schema``, ``store.older_schema``
    """
    exists = inspect(connection).has_table("alembic_version")
    current = connection.execute(_VERSION).scalar_one_or_none() if exists else None
    known = _revisions()
    if current == known[-1]:
        return
    if current is not None and current < known[0]:
        raise Conflict(
            "store.older_schema",
            f"the database has schema {current}, older than {known[0]}, the first that can be brought up to date",
            hint="use the vgpuctl that wrote it, or move the database away and start with an empty one",
        )
    if current is not None and current not in known:
        raise Conflict(
            "store.newer_schema",
            f"the database has schema {current}, which this version of vgpuctl does not know",
            hint="use the newer vgpuctl that wrote it, or restore a backup made before the upgrade",
        )
    if connection.dialect.name == "postgresql":  # to move large tables takes as long as it takes
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        # So does reading the migrations on a busy machine. Who waits for one that was stopped ends it: connections.py.
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
    from alembic import command

    command.upgrade(alembic_config(connection), "head")


def newest_revision() -> str:
    """The schema of this program."""
    return _revisions()[-1]


def _revisions() -> list[str]:
    """Oldest first. The name of a migration's file begins with its revision."""
    return sorted(file.name.partition("_")[0] for file in _MIGRATIONS.glob("versions/[0-9]*.py"))
