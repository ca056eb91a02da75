# SPDX-License-Identifier: Apache-2.0
"""Encrypted data volumes; their keys are secrets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0135"
down_revision = "0134"


def upgrade() -> None:
    with op.batch_alter_table("volumes") as volumes:
        volumes.add_column(sa.Column("encryption", sa.String(8), nullable=False, server_default="none"))


def downgrade() -> None:
    """Volumes that are encrypted stay in the table, and an older version takes none of their files for its own."""
    with op.batch_alter_table("volumes") as volumes:
        volumes.drop_column("encryption")
