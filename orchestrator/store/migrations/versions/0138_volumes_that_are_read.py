# SPDX-License-Identifier: Apache-2.0
"""Data volumes that several VMs read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0138"
down_revision = "0136"


def upgrade() -> None:
    with op.batch_alter_table("volumes") as volumes:
        volumes.add_column(sa.Column("read_only_of", sa.String(36)))
    op.create_index("ix_volumes_readers", "volumes", ["read_only_of", "vm"], unique=True)


def downgrade() -> None:
    """Readers go: an older version would have them as volumes of their own."""
    op.execute("DELETE FROM volumes WHERE read_only_of IS NOT NULL")
    op.drop_index("ix_volumes_readers", "volumes")
    with op.batch_alter_table("volumes") as volumes:
        volumes.drop_column("read_only_of")
