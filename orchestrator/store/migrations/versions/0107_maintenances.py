# SPDX-License-Identifier: Apache-2.0
"""An upgrade of drivers is one kind of declared maintenance, and tenants' policies hold for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0107"
down_revision = "0106"


def upgrade() -> None:
    op.rename_table("driver_upgrades", "maintenances")
    _each("maintenances", "id", "document", _declared)
    _each("policies", "tenant", "document", lambda document: _renamed(document, "driver_upgrade", "maintenance"))
    _each("webhooks", "id", "nouns", lambda nouns: _noun(nouns, "driver_upgrade", "maintenance"))
    op.execute("UPDATE events SET noun = 'maintenance' WHERE noun = 'driver_upgrade'")


def downgrade() -> None:
    op.execute("UPDATE events SET noun = 'driver_upgrade' WHERE noun = 'maintenance'")
    _each("webhooks", "id", "nouns", lambda nouns: _noun(nouns, "maintenance", "driver_upgrade"))
    _each("policies", "tenant", "document", lambda document: _renamed(document, "maintenance", "driver_upgrade"))
    _without_others()
    _each("maintenances", "id", "document", _upgrade)
    op.rename_table("maintenances", "driver_upgrades")


def _without_others() -> None:
    """Before it there were upgrades alone."""
    rows = sa.table("maintenances", sa.column("id"), sa.column("document", sa.JSON))
    connection = op.get_bind()
    for its_id, document in connection.execute(sa.select(rows.c.id, rows.c.document)).all():
        if document["act"] != "upgrade":
            connection.execute(sa.delete(rows).where(rows.c.id == its_id))


def _each(table: str, key: str, member: str, change: Callable[[Any], Any]) -> None:
    rows = sa.table(table, sa.column(key), sa.column(member, sa.JSON))
    connection = op.get_bind()
    for its_key, document in connection.execute(sa.select(rows.c[key], rows.c[member])).all():
        connection.execute(sa.update(rows).where(rows.c[key] == its_key).values({member: change(document)}))


def _declared(document: dict[str, Any]) -> dict[str, Any]:
    state = "cancelled" if document["state"] == "aborted" else document["state"]
    return {**document, "act": "upgrade", "state": state, "starts_at": document["created_at"]}


def _upgrade(document: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in document.items() if name not in _ADDED}
    return {**kept, "state": "aborted" if document["state"] == "cancelled" else document["state"]}


_ADDED = {"act", "starts_at", "ends_by", "reason", "overran"}


def _renamed(document: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    return {after if name == before else name: value for name, value in document.items()}


def _noun(nouns: list[str], before: str, after: str) -> list[str]:
    return [after if noun == before else noun for noun in nouns]
