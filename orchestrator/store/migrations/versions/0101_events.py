# SPDX-License-Identifier: Apache-2.0
"""What happened in the fleet, for those who watch it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0100"


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("noun", sa.String(20), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("change", sa.String(20), nullable=False),
        sa.Column("tenant", sa.String(63)),
        sa.Column("host", sa.String(63)),
        sa.Column("subject", sa.Text),
        sa.Column("state", sa.String(20)),
        sa.Column("details", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_at", "events", ["at"])
    op.create_index("ix_events_tenant", "events", ["tenant"])


def downgrade() -> None:
    op.drop_table("events")
