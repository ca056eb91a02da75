# SPDX-License-Identifier: Apache-2.0
"""Browsers' sessions that somebody has logged out of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0104"
down_revision = "0103"


def upgrade() -> None:
    op.create_table(
        "ended_web_sessions",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("credential", sa.String(64), nullable=False),
        sa.Column("until", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ended_web_sessions"),
    )


def downgrade() -> None:
    op.drop_table("ended_web_sessions")
