# SPDX-License-Identifier: Apache-2.0
"""How pieces of GPUs were cleaned when their claims ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0131"
down_revision = "0130"


def upgrade() -> None:
    op.create_table(
        "gpu_cleanings",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True, nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("gpu", sa.String(32), nullable=False),
        sa.Column("gpu_uuid", sa.String(64), nullable=False),
        sa.Column("device", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("type_name", sa.String(64), nullable=False),
        sa.Column("slots", sa.JSON, nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("vm", sa.String(36), nullable=False),
        sa.Column("vm_name", sa.String(63), nullable=False),
        sa.Column("operation", sa.String(36)),
        sa.Column("ended_at", sa.Float, nullable=False),
        sa.Column("cleaned_at", sa.Float),
        sa.Column("method", sa.String(20)),
        sa.Column("health", sa.String(16), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_gpu_cleanings"),
    )
    op.create_index("ix_gpu_cleanings_cleaned_at", "gpu_cleanings", ["cleaned_at"])
    op.create_index("ix_gpu_cleanings_vm", "gpu_cleanings", ["vm"])


def downgrade() -> None:
    op.drop_table("gpu_cleanings")
