# SPDX-License-Identifier: Apache-2.0
"""Quotas of tenants and of the pool that they share"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "quotas",
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("resource", sa.String(length=100), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "resource", name=op.f("pk_quotas")),
    )


def downgrade() -> None:
    op.drop_table("quotas")
