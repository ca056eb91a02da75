# SPDX-License-Identifier: Apache-2.0
"""Tickets for consoles, and consoles that are open."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0103"
down_revision = "0102"


def upgrade() -> None:
    op.create_table(
        "console_sessions",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("vm", sa.String(36), nullable=False),
        sa.Column("kind", sa.String(9), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("bound", sa.String(64), nullable=False),
        sa.Column("until", sa.Float, nullable=False),
        sa.Column("opened_at", sa.Float),
        sa.Column("claimed_at", sa.Float),
        sa.PrimaryKeyConstraint("id", name="pk_console_sessions"),
    )


def downgrade() -> None:
    op.drop_table("console_sessions")
