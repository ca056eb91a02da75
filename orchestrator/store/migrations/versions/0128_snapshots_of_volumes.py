# SPDX-License-Identifier: Apache-2.0
"""Snapshots of data volumes: called ``volume/snapshot``."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0128"
down_revision = "0127"


def upgrade() -> None:
    with op.batch_alter_table("volumes") as volumes:
        volumes.add_column(sa.Column("snapshot_of", sa.String(36)))
        volumes.alter_column("name", type_=sa.String(127), existing_nullable=False)


def downgrade() -> None:
    op.execute(
        "UPDATE pools SET claimed_bytes = claimed_bytes - (SELECT COALESCE(SUM(size_bytes), 0) FROM pool_claims"
        " WHERE pool = pools.id AND holder IN (SELECT id FROM volumes WHERE snapshot_of IS NOT NULL))"
    )
    op.execute("DELETE FROM pool_claims WHERE holder IN (SELECT id FROM volumes WHERE snapshot_of IS NOT NULL)")
    op.execute("DELETE FROM volumes WHERE snapshot_of IS NOT NULL")
    with op.batch_alter_table("volumes") as volumes:
        volumes.alter_column("name", type_=sa.String(63), existing_nullable=False)
        volumes.drop_column("snapshot_of")
