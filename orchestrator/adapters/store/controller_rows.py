# SPDX-License-Identifier: Apache-2.0
"""The controllers that share this database, and that they live."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select, update

from orchestrator.adapters.store.tables import controllers


class SqlControllers:
    def __init__(self, connection: Connection) -> None:
        self._db = connection

    def beat(self, name: str) -> dict[str, int]:
        """Say that ``name`` lives; how often every controller has said so yet."""
        more = update(controllers).where(controllers.c.name == name).values(beats=controllers.c.beats + 1)
        if self._db.execute(more).rowcount == 0:
            self._db.execute(insert(controllers).values(name=name, beats=1))
        return {row.name: row.beats for row in self._db.execute(select(controllers))}

    def remove(self, name: str) -> None:
        self._db.execute(delete(controllers).where(controllers.c.name == name))
