# SPDX-License-Identifier: Apache-2.0
"""Which site a database belongs to, read without changing anything."""

from __future__ import annotations

from sqlalchemy import create_engine, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.core.errors import Retryable
from orchestrator.store.tables import meta


def site_at(url: str) -> str | None:
    """None: no server has begun there.

    :raises Retryable: ``store.unavailable``
    """
    try:
        engine = create_engine(url)
        with engine.connect() as connection:
            if not inspect(connection).has_table(meta.name):
                return None
            return connection.execute(select(meta.c.value).where(meta.c.key == "site")).scalar_one_or_none()
    except (SQLAlchemyError, ModuleNotFoundError) as error:
        raise Retryable(
            "store.unavailable",
            "the database cannot be used",
            details=str(error),
            hint="does its server run, is database_url right?",
        ) from error
