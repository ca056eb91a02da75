# SPDX-License-Identifier: Apache-2.0
"""How long disks took from host to host."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0109"
down_revision = "0108"


def upgrade() -> None:
    op.create_table(
        "disk_copies",
        sa.Column("operation", sa.String(36), nullable=False),
        sa.Column("source", sa.String(63), nullable=False),
        sa.Column("target", sa.String(63), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("low_s", sa.Float),
        sa.Column("high_s", sa.Float),
        sa.Column("at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("operation", name="pk_disk_copies"),
    )
    op.create_index("ix_disk_copies_pair", "disk_copies", ["source", "target", "at"])


def downgrade() -> None:
    op.drop_table("disk_copies")
