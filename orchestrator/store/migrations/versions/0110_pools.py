# SPDX-License-Identifier: Apache-2.0
"""Pools that several hosts mount, and what lies in them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0110"
down_revision = "0109"


def upgrade() -> None:
    op.create_table(
        "pools",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("capacity_bytes", sa.BigInteger, nullable=False),
        sa.Column("free_bytes", sa.BigInteger, nullable=False),
        sa.Column("claimed_bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pools"),
        sa.UniqueConstraint("name", name="uq_pools_name"),
    )
    op.create_table(
        "pool_claims",
        sa.Column("holder", sa.String(36), nullable=False),
        sa.Column("pool", sa.String(36), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("holder", name="pk_pool_claims"),
        sa.ForeignKeyConstraint(["pool"], ["pools.id"], name="fk_pool_claims_pool_pools"),
    )
    op.create_index("ix_pool_claims_pool", "pool_claims", ["pool"])
    op.add_column("volumes", sa.Column("pool", sa.String(23)))


def downgrade() -> None:
    op.drop_column("volumes", "pool")
    op.drop_table("pool_claims")
    op.drop_table("pools")
