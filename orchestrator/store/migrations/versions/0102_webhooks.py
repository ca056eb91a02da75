# SPDX-License-Identifier: Apache-2.0
"""Addresses that are told what happens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0102"
down_revision = "0101"


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("nouns", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.Integer, nullable=False),
        sa.Column("failing_since", sa.Float),
        sa.Column("next_at", sa.Float, nullable=False),
        sa.Column("why", sa.Text),
        sa.Column("dead", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
        sa.UniqueConstraint("tenant", "name", name="uq_webhooks_tenant_name"),
    )


def downgrade() -> None:
    op.drop_table("webhooks")
