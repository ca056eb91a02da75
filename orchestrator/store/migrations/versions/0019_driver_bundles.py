# SPDX-License-Identifier: Apache-2.0
"""Files that drivers are installed from"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "driver_bundles",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("key_id", sa.String(length=16), nullable=False),
        sa.Column("comment", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_driver_bundles")),
    )


def downgrade() -> None:
    op.drop_table("driver_bundles")
