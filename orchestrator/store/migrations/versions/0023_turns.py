# SPDX-License-Identifier: Apache-2.0
"""Observations and ends of operations are ordered by a counter, and operations of a subject by number

Until now wall clocks ordered them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

_operations = sa.table(
    "operations",
    *(sa.column(name, sa.String) for name in ("id", "subject")),
    *(sa.column(name, sa.Float) for name in ("created_at", "finished_at")),
    *(sa.column(name, sa.BigInteger) for name in ("ended_turn", "number")),
)


def upgrade() -> None:
    op.add_column("looks", sa.Column("turn", sa.BigInteger(), nullable=False, server_default="0"))
    op.drop_column("looks", "taken_at")
    op.add_column("operations", sa.Column("ended_turn", sa.BigInteger(), nullable=True))
    op.add_column("operations", sa.Column("number", sa.Integer(), nullable=False, server_default="0"))
    op.create_index(op.f("ix_operations_ended_turn"), "operations", ["ended_turn"])
    connection, numbers = op.get_bind(), dict[str, int]()
    stored = sa.select(_operations.c.id, _operations.c.subject).order_by(_operations.c.created_at, _operations.c.id)
    for row in connection.execute(stored).all():
        numbers[row.subject] = numbers.get(row.subject, 0) + 1
        _set(connection, row.id, "number", numbers[row.subject])
    # All looks are older than all ends: nothing is concluded before each host was observed once more.
    op.execute("UPDATE operations SET ended_turn = 1 WHERE finished_at IS NOT NULL")


def downgrade() -> None:
    op.drop_index(op.f("ix_operations_ended_turn"), "operations")
    op.drop_column("operations", "number")
    op.drop_column("operations", "ended_turn")
    op.add_column("looks", sa.Column("taken_at", sa.Float(), nullable=False, server_default="0"))
    op.drop_column("looks", "turn")


def _set(connection: sa.Connection, operation: str, column: str, value: int) -> None:
    connection.execute(sa.update(_operations).where(_operations.c.id == operation).values({column: value}))
