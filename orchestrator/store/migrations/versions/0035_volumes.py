# SPDX-License-Identifier: Apache-2.0
"""Data volumes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    op.create_table(
        "volumes",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(63), nullable=True),
        sa.Column("vm", sa.String(36), nullable=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_volumes")),
        sa.UniqueConstraint("tenant", "name", name=op.f("uq_volumes_tenant_name")),
    )
    op.create_index(op.f("ix_volumes_host"), "volumes", ["host"])
    op.create_index(op.f("ix_volumes_vm"), "volumes", ["vm"])


def downgrade() -> None:
    op.drop_table("volumes")
