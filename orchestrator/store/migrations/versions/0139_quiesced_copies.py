# SPDX-License-Identifier: Apache-2.0
"""Whether file systems were frozen when a copy of a disk began."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0139"
down_revision = "0138"


def upgrade() -> None:
    for table in ("backups", "volumes"):
        op.add_column(table, sa.Column("quiesced", sa.String(160)))


def downgrade() -> None:
    for table in ("volumes", "backups"):
        op.drop_column(table, "quiesced")
